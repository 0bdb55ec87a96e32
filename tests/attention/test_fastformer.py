import pytest
import torch
from torch import nn

from forecaster.attention import FastformerAttention, Place, additive_attention
from forecaster.attention.fastformer import definition

from .agreement import defined, inputs


def module(**options: object) -> FastformerAttention:
    torch.manual_seed(0)
    return FastformerAttention(Place(6, 2, 11, 11), **options)  # type: ignore[arg-type]


def test_a_causal_row_knows_only_its_prefix() -> None:
    """Unlike others, a row of a longer series without causal mixes all of it."""
    tensors, weights = inputs(queries=40, keys=40), (torch.randn(2, 6).double(),) * 2
    rows = additive_attention(*tensors, *weights, causal=True)
    for n in (1, 35):
        prefix = additive_attention(*(x[:, :, :n] for x in tensors), *weights, causal=n > 1)
        torch.testing.assert_close(rows[:, :, :n], prefix, atol=1e-12, rtol=0)


@pytest.mark.parametrize("share_value", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_the_module_is_its_formula(causal: bool, share_value: bool) -> None:
    attention, x = module(share_value=share_value), torch.randn(2, 11, 6)
    assert (attention.value_projection is None) is share_value
    value = attention.query_projection if share_value else attention.value_projection
    assert isinstance(value, nn.Linear)
    q, k, v = (
        layer(x).view(2, 11, 2, 3).transpose(1, 2)
        for layer in (attention.query_projection, attention.key_projection, value)
    )
    weights = attention.query_score.weight, attention.key_score.weight
    u = defined(definition)(q, k, v, *weights, causal=causal)
    want = attention.out_projection(u.transpose(1, 2).flatten(2)) + attention.query_projection(x)
    torch.testing.assert_close(attention(x, causal=causal), want)


def test_starts_as_the_authors_do() -> None:
    torch.manual_seed(0)
    for name, parameter in FastformerAttention(Place(64, 4, 11, 11)).named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            assert 0.016 < parameter.std() < 0.024


def test_drops_what_is_added_to_the_query_in_training_only() -> None:
    attention, x = module(dropout=0.5), torch.randn(2, 11, 6)
    plain = attention.eval()(x)
    query = attention.query_projection(x)
    dropped = attention.train()(x) - query
    doubled = torch.isclose(dropped, 2 * (plain - query), atol=1e-6)
    assert ((dropped.abs() < 1e-7) | doubled).all()
    assert not doubled.all()
