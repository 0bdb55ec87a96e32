from typing import Any

import pytest
import torch

from forecaster.attention import AFTSimpleAttention, Place, aft_simple, aft_simple_attention

from .agreement import assert_agree, inputs

both = pytest.mark.parametrize("causal", [False, True])
each_type = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def agree(tensors: Any, tolerance: float, **options: Any) -> None:
    assert_agree(
        lambda q, k, v: aft_simple_attention(q, k, v, **options),
        lambda q, k, v: aft_simple.definition(q, k, v, **options),
        tensors,
        tolerance,
    )


@both
@each_type
def test_keys_of_any_size(causal: bool, dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = inputs(queries=70, keys=70, dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    uniform = 100 * torch.rand(k.shape, generator=generator, dtype=torch.float64) - 50
    ramp = torch.linspace(-50, 50, 70)[:, None].to(dtype) + k.detach()
    for keys in (uniform.to(dtype), ramp, -ramp, 20 * ramp, -20 * ramp):
        agree((q, keys, v), tolerance, causal=causal)


def test_without_causal_all_steps_get_the_same_mean() -> None:
    q, k, v = inputs()
    out = aft_simple_attention(q, k, v) / q.sigmoid()
    torch.testing.assert_close(out, out[:, :, :1].expand_as(out))


@both
def test_equal_keys_give_the_gated_mean(causal: bool) -> None:
    q, k, v = inputs()
    steps = torch.arange(1.0, 8.0).double()[:, None]
    mean = v.cumsum(2) / steps if causal else v.mean(2, keepdim=True)
    out = aft_simple_attention(q, torch.zeros_like(k), v, causal=causal)
    torch.testing.assert_close(out, q.sigmoid() * mean)


def test_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="got 7 queries, 5 keys"):
        aft_simple_attention(*inputs(keys=5), causal=True)
    with pytest.raises(ValueError, match=r"attention 'aft-simple' .* set model\.mix=false"):
        AFTSimpleAttention(Place(6, 2, 7, 7, mix=True))


@both
def test_heads_change_nothing(causal: bool) -> None:
    results = []
    for heads in (1, 3):
        torch.manual_seed(0)
        module = AFTSimpleAttention(Place(6, heads, 7, 7))
        results.append(module(torch.randn(2, 7, 6), causal=causal))
    torch.testing.assert_close(*results)
