import pytest
import torch

from forecaster.attention import AFTSimpleAttention, Place


@pytest.mark.parametrize("causal", [False, True])
def test_heads_change_nothing(causal: bool) -> None:
    results = []
    for heads in (1, 3):
        torch.manual_seed(0)
        module = AFTSimpleAttention(Place(6, heads, 7, 7))
        results.append(module(torch.randn(2, 7, 6), causal=causal))
    torch.testing.assert_close(*results)
