from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention.aft_conv import (
    AFTConvAttention,
    aft_conv_attention,
    aft_conv_kernel,
    definition,
)
from forecaster.attention.base import Place
from forecaster.attention.common import banded

from .agreement import assert_agree, inputs

tiled_or_dense = pytest.mark.parametrize("tile", [None, 4], ids=["dense", "tiled"])


def tensors(
    batch: int, length: int, window: int, wide: bool = False, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """q, k, v and a kernel for two heads."""
    q, k, v = inputs(batch, queries=length, keys=length, width=3, dtype=dtype)
    kernel = torch.randn(2, window, generator=torch.Generator().manual_seed(2)).to(dtype)
    return [q, k if wide else k[..., :1], v, kernel]


def use_tiles(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    if size is not None:
        monkeypatch.setattr(banded, "_TILE", size)
        monkeypatch.setattr(banded, "_DENSE", size)


def module(length: int = 23, **options: Any) -> AFTConvAttention:
    torch.manual_seed(0)
    return AFTConvAttention(Place(6, 2, length, length), **options)


@tiled_or_dense
@pytest.mark.parametrize("window", [2, 6])
def test_a_causal_window_may_be_even(
    monkeypatch: pytest.MonkeyPatch, window: int, tile: int | None
) -> None:
    use_tiles(monkeypatch, tile)
    assert_agree(
        lambda *x: aft_conv_attention(*x, causal=True),
        lambda *x: definition(*x, causal=True),
        tensors(1, 9, window),
        1e-9,
    )


def test_the_kernel_is_normalised_then_scaled() -> None:
    raw = torch.randn(3, 9, generator=torch.Generator().manual_seed(0)).double()
    gain, offset = torch.tensor([[0.5, -2.0, 0.0], [1.0, 3.0, -4.0]]).double()
    kernel = aft_conv_kernel(raw, gain, offset)
    torch.testing.assert_close(kernel.mean(1), offset)
    torch.testing.assert_close(kernel.std(1, correction=0), gain.abs(), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": torch.zeros(2, 4)}, "must be odd unless causal, .* got window=4"),
        ({"kernel": torch.zeros(2, 0)}, r"a window of at least 1, got \(2, 0\)"),
        ({"k": torch.zeros(2, 2, 7, 2)}, r"k may have width 1, .* k \(2, 2, 7, 2\)"),
    ],
)
def test_refuses_sizes_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    arguments = dict(zip(("q", "k", "v", "kernel"), tensors(2, 7, 3), strict=True))
    with pytest.raises(ValueError, match=message):
        aft_conv_attention(**{**arguments, **change})


def test_only_a_decoder_may_have_an_even_window() -> None:
    with pytest.raises(ValueError, match=r"must be odd unless causal, .* got window=8"):
        module(window=8)
    decoder = AFTConvAttention(Place(6, 2, 7, 7, role="decoder"), window=8)
    series = torch.randn(2, 7, 6)
    assert decoder(series, causal=True).shape == series.shape
    with pytest.raises(ValueError, match="must be odd unless causal"):
        decoder(series)


def test_refuses_an_empty_window() -> None:
    with pytest.raises(ValueError, match="window must be at least 1, got window=0"):
        module(window=0)


def test_starts_without_biases_and_learns_them() -> None:
    attention = module(window=5)
    assert attention.key_projection.weight.shape == (2, 6)
    assert attention.raw_kernel.std() > 0.5
    x = torch.randn(2, 23, 6)
    out = attention(x)
    out.square().sum().backward()
    for parameter in (attention.kernel_gain, attention.kernel_offset):
        assert parameter.grad is not None
        assert (parameter.grad != 0).all()
    with torch.no_grad():
        attention.raw_kernel.mul_(3.0)
    assert torch.equal(attention(x), out)
