from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    MixedChunkAttention,
    Place,
    flash,
    mixed_chunk_attention,
    relu_squared_attention,
)
from forecaster.attention.common import gated

from .agreement import inputs


def draws(
    length: int = 9, heads: int = 2, dtype: torch.dtype = torch.float64, batch: int = 3
) -> list[Tensor]:
    """quad_q, quad_k, lin_q, lin_k (of another width) and v (of a third)."""
    quad_q, quad_k, v = inputs(batch, heads, length, length, 3, 5, dtype)
    lin_q, lin_k, _ = inputs(batch, heads, length, length, 4, dtype=dtype, seed=1)
    return [quad_q, quad_k, lin_q, lin_k, v]


def module(length: int = 23, **options: Any) -> MixedChunkAttention:
    torch.manual_seed(0)
    place = Place(6, 2, length, length)
    return MixedChunkAttention(place, **{"key_width": 4, "chunk_size": 8, **options}).eval()


def series(length: int = 23) -> Tensor:
    return torch.randn(3, length, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("causal", [False, True])
def test_one_chunk_without_the_linear_path_is_squared_relu(causal: bool) -> None:
    quad_q, quad_k, lin_q, lin_k, v = draws()
    out = mixed_chunk_attention(
        quad_q, quad_k, lin_q, lin_k, v, chunk_size=9, causal=causal, linear_scale=0.0
    )
    torch.testing.assert_close(out, relu_squared_attention(quad_q, quad_k, v, causal=causal))


def test_one_causal_chunk_has_no_linear_path() -> None:
    quad_q, quad_k, lin_q, lin_k, v = draws()
    with_path = mixed_chunk_attention(quad_q, quad_k, lin_q, lin_k, v, causal=True)
    without = mixed_chunk_attention(quad_q, quad_k, 0 * lin_q, lin_k, v, causal=True)
    assert torch.equal(with_path, without)


def test_large_values_of_the_future_leave_no_rounding() -> None:
    tensors = [x.float() for x in draws()]
    late = [torch.cat([x[:, :, :4], 1e9 + x[:, :, 4:]], dim=2) for x in tensors]
    before, after = (mixed_chunk_attention(*x, chunk_size=3, causal=True) for x in (tensors, late))
    assert torch.equal(before[:, :, :4], after[:, :, :4])


def test_the_linear_path_is_summed_in_float32() -> None:
    ones = torch.ones(1, 1, 4096, 1, dtype=torch.bfloat16)  # bfloat16 is exact up to 256
    out = mixed_chunk_attention(0 * ones, ones, ones, ones, ones, linear_scale=1.0)
    assert (out == 4096).all()


def test_float16_saturates() -> None:
    x = torch.full((1, 1, 8, 64), 300.0, dtype=torch.float16)
    assert (mixed_chunk_attention(x, x, x, x, x) == torch.finfo(torch.float16).max).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_size": 0}, "chunk_size must be at least 1, got chunk_size=0"),
        (
            {"bias": torch.zeros(9, 9), "chunk_size": 4},
            r"\(C, C\) = \(4, 4\) or \(H, C, C\) = \(2, 4, 4\), got \(9, 9\)",
        ),
        ({"bias": torch.zeros(3, 4, 4), "chunk_size": 4}, r"got \(3, 4, 4\)"),
    ],
)
def test_refuses_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixed_chunk_attention(*draws(), **options)


def test_refuses_more_keys_than_queries() -> None:
    q, k, v = inputs(queries=5, keys=7)
    with pytest.raises(ValueError, match="got 5 queries, 7 keys"):
        mixed_chunk_attention(q, k, q, k, v)


def test_refuses_an_empty_chunk_in_the_unit_too() -> None:
    with pytest.raises(ValueError, match="got chunk_size=0"):
        module(chunk_size=0)


@pytest.mark.parametrize("options", [{}, {"linear_scale": 0.5}])
def test_the_unit_is_its_formula(options: dict[str, Any]) -> None:
    unit, x = module(**options), series()
    silu = torch.nn.functional.silu
    with torch.no_grad():
        unit.beta.copy_(torch.randn(4, 4, generator=torch.Generator().manual_seed(5)))
    u, v, z = (
        silu(projection(x))
        for projection in (unit.gate_projection, unit.value_projection, unit.shared_projection)
    )
    copies = (
        gated.rotate(gamma * z + beta, torch.arange(23))[:, None]
        for gamma, beta in zip(unit.gamma, unit.beta, strict=True)
    )
    quad_q, lin_q, quad_k, lin_k = copies
    steps = torch.arange(8)
    attended = flash.definition(
        quad_q,
        quad_k,
        lin_q,
        lin_k,
        v[:, None],
        bias=unit.relative_bias()[steps - steps[:, None] + 7],
        chunk_size=8,
        causal=True,
        **options,
    )
    want = unit.out_projection(u * attended[:, 0])
    torch.testing.assert_close(unit(x, causal=True), want, atol=1e-6, rtol=1e-5)


def test_takes_series_of_any_length() -> None:
    assert module(5)(series(23)).shape == (3, 23, 6)


@pytest.mark.parametrize("causal", [False, True])
def test_a_second_unit_can_replace_the_feed_forward(causal: bool) -> None:
    assert module().feed_forward() is None
    place = Place(6, 2, 23, 23, role="decoder" if causal else "encoder")
    torch.manual_seed(0)
    unit = MixedChunkAttention(place, chunk_size=4, linear_scale=0.5, gau_replaces_ffn=True)
    second = unit.feed_forward()
    assert isinstance(second, gated.SecondUnit)
    assert isinstance(second.attention, MixedChunkAttention)
    assert (second.attention.chunk_size, second.attention.linear_scale) == (4, 0.5)
    x = series()
    changed = torch.cat([x[:, :9], 5 + x[:, 9:]], dim=1)
    same = torch.equal(second(x)[:, :9], second(changed)[:, :9])
    assert same is causal
