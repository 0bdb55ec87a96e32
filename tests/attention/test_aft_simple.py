import pytest
import torch

from forecaster.attention import AFTSimpleAttention, Place, aft_simple_attention

from .agreement import inputs

both = pytest.mark.parametrize("causal", [False, True])


@both
def test_equal_keys_give_the_gated_mean(causal: bool) -> None:
    q, k, v = inputs()
    steps = torch.arange(1.0, 8.0).double()[:, None]
    mean = v.cumsum(2) / steps if causal else v.mean(2, keepdim=True)
    out = aft_simple_attention(q, torch.zeros_like(k), v, causal=causal)
    torch.testing.assert_close(out, q.sigmoid() * mean)


@both
def test_heads_change_nothing(causal: bool) -> None:
    results = []
    for heads in (1, 3):
        torch.manual_seed(0)
        module = AFTSimpleAttention(Place(6, heads, 7, 7))
        results.append(module(torch.randn(2, 7, 6), causal=causal))
    torch.testing.assert_close(*results)
