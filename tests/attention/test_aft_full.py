import pytest
import torch

from forecaster.attention import AFTFullAttention, Place, aft_attention, aft_simple_attention
from forecaster.attention.aft_full import definition

from .agreement import defined, inputs

both = pytest.mark.parametrize("causal", [False, True])


@both
def test_no_biases_make_aft_simple(causal: bool) -> None:
    tensors = inputs(queries=40, keys=40)
    out = aft_attention(*tensors, torch.zeros(40, 40).double(), causal=causal)
    torch.testing.assert_close(out, aft_simple_attention(*tensors, causal=causal))


@both
def test_the_module_is_its_definition_between_projections(causal: bool) -> None:
    """One head of all features, and biases that are products of rows of two tables."""
    torch.manual_seed(0)
    attention, x = AFTFullAttention(Place(6, 2, 7, 7)), torch.randn(2, 7, 6)
    assert attention.query_positions.shape == (7, 128)
    assert 0.009 < attention.query_positions.std() < 0.011
    torch.nn.init.normal_(attention.query_positions)
    q, k, v = (
        layer(x)[:, None]
        for layer in (
            attention.query_projection,
            attention.key_projection,
            attention.value_projection,
        )
    )
    y = defined(definition)(
        q, k, v, (attention.query_positions, attention.key_positions), causal=causal
    )
    torch.testing.assert_close(attention(x, causal=causal), attention.out_projection(y[:, 0]))
