import pytest
import torch

from forecaster.attention import full_attention, mean_attention

from .agreement import inputs


@pytest.mark.parametrize("causal", [False, True])
def test_is_full_attention_to_equal_keys(causal: bool) -> None:
    q, k, v = inputs(queries=5, keys=5)
    full = full_attention(q, torch.zeros_like(k), v, causal=causal)
    torch.testing.assert_close(mean_attention(q, k, v, causal=causal), full)
