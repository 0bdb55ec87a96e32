from typing import Any

import pytest
import torch

from forecaster.attention import MeanAttention, Place, full_attention, mean_attention

from . import naive
from .agreement import assert_agree, inputs

MASK = torch.tensor([[True, False, True, True, False], [False, False, False, True, True]])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    causal: bool, masked: bool, dtype: torch.dtype, tolerance: float
) -> None:
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK if masked else None}
    assert_agree(
        lambda q, k, v: mean_attention(q, k, v, **options),
        lambda q, k, v: naive.mean(q, k, v, **options),
        inputs(queries=5, keys=5, dtype=dtype),
        tolerance,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_is_full_attention_to_equal_keys(causal: bool) -> None:
    q, k, v = inputs(queries=5, keys=5)
    full = full_attention(q, torch.zeros_like(k), v, causal=causal)
    torch.testing.assert_close(mean_attention(q, k, v, causal=causal), full)


def test_owns_no_parameter_that_it_does_not_use() -> None:
    module, x = MeanAttention(Place(6, 2, 5, 5)), torch.randn(2, 5, 6)
    module(x, causal=True).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in module.parameters())
