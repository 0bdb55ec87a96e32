from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention.aft_conv import AFTConvAttention, aft_conv_attention, aft_conv_kernel
from forecaster.attention.base import Place
from forecaster.attention.common import banded

from .agreement import assert_agree, inputs
from .naive import aft_conv as naive

# 13 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])

both = pytest.mark.parametrize("causal", [False, True])
tiled_or_dense = pytest.mark.parametrize("tile", [None, 4], ids=["dense", "tiled"])
scalar_or_wide = pytest.mark.parametrize("wide", [False, True], ids=["scalar", "wide"])


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


@both
@tiled_or_dense
@scalar_or_wide
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    monkeypatch: pytest.MonkeyPatch,
    causal: bool,
    tile: int | None,
    wide: bool,
    masked: bool,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    use_tiles(monkeypatch, tile)
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK if masked else None}
    assert_agree(
        lambda *x: aft_conv_attention(*x, **options),
        lambda *x: naive.aft_conv(*x, **options),
        tensors(3, 13, 5, wide, dtype),
        tolerance,
    )


@both
@tiled_or_dense
@pytest.mark.parametrize(
    ("length", "window"), [(1, 1), (1, 7), (4, 3), (5, 13), (7, 1), (9, 9), (17, 11)]
)
def test_lengths_around_tiles_and_windows(
    monkeypatch: pytest.MonkeyPatch, length: int, window: int, causal: bool, tile: int | None
) -> None:
    use_tiles(monkeypatch, tile)
    assert_agree(
        lambda *x: aft_conv_attention(*x, causal=causal),
        lambda *x: naive.aft_conv(*x, causal=causal),
        tensors(1, length, window),
        1e-9,
    )


@tiled_or_dense
@pytest.mark.parametrize("window", [2, 6])
def test_a_causal_window_may_be_even(
    monkeypatch: pytest.MonkeyPatch, window: int, tile: int | None
) -> None:
    use_tiles(monkeypatch, tile)
    assert_agree(
        lambda *x: aft_conv_attention(*x, causal=True),
        lambda *x: naive.aft_conv(*x, causal=True),
        tensors(1, 9, window),
        1e-9,
    )


@both
@pytest.mark.parametrize("length", [128, 129, 161])
def test_lengths_around_the_real_tiles(length: int, causal: bool) -> None:
    """Short enough for one softmax over scores with the kernel expanded."""
    low = -32 if causal else -16
    offset = torch.arange(length) - torch.arange(length)[:, None]
    outside = (offset < low) | (offset > low + 32)

    def dense(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
        scores = kernel[:, (offset - low).clamp(0, 32)].masked_fill(outside, 0.0) + k.mT
        if causal:
            scores = scores.masked_fill(offset > 0, -torch.inf)
        return q.sigmoid() * (scores.softmax(3) @ v)

    assert_agree(
        lambda *x: aft_conv_attention(*x, causal=causal), dense, tensors(1, length, 33), 1e-9
    )


def steep(kind: str, length: int) -> Tensor:
    """Keys (1, 2, length, 1) for which a single shift is not enough."""
    ramp = torch.linspace(-50, 50, length)
    keys = {
        "uniform": 100 * torch.rand(length, generator=torch.Generator().manual_seed(3)) - 50,
        "rising": ramp,
        "falling": -ramp,
        "step": 50 * ramp.sign(),
        "beyond float64": 40 * ramp,
    }
    return torch.stack([keys[kind], keys[kind].flip(0)])[None, :, :, None]


@both
@tiled_or_dense
@scalar_or_wide
@pytest.mark.parametrize("kind", ["uniform", "rising", "falling", "step", "beyond float64"])
def test_steep_keys_and_biases(
    monkeypatch: pytest.MonkeyPatch, kind: str, causal: bool, tile: int | None, wide: bool
) -> None:
    use_tiles(monkeypatch, tile)
    q, _, v, kernel = tensors(1, 19, 5, dtype=torch.float32)
    k = steep(kind, 19)
    k = k + torch.arange(3) if wide else k
    kernel = 10 * kernel.tanh()

    def without_cancellation(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
        low = -4 if causal else -2
        rows = []
        for t in range(19):
            s = torch.arange(t + 1 if causal else 19)
            column = s - t - low
            near = (column >= 0) & (column < 5)
            w = torch.where(near, kernel[:, column.clamp(0, 4)], 0.0)
            weights = (k[:, :, s] + w[None, :, :, None]).softmax(2)
            rows.append((weights * v[:, :, s]).sum(2))
        return q.sigmoid() * torch.stack(rows, 2)

    assert_agree(
        lambda *x: aft_conv_attention(*x, causal=causal),
        without_cancellation,
        [q, k, v, kernel],
        1e-4,
    )


@both
@scalar_or_wide
def test_gradients_by_finite_differences(
    monkeypatch: pytest.MonkeyPatch, causal: bool, wide: bool
) -> None:
    use_tiles(monkeypatch, 2)
    mask = torch.tensor([[False, True, True, False, True]])
    raw = torch.randn(1, 3, generator=torch.Generator().manual_seed(2)).double().requires_grad_()
    gain, offset = (torch.tensor([x]).double().requires_grad_() for x in (0.7, -0.2))
    q, k, v = inputs(1, 1, queries=5, keys=5, width=2)
    assert torch.autograd.gradcheck(
        lambda q, k, v, *parameters: aft_conv_attention(
            q, k, v, aft_conv_kernel(*parameters), causal=causal, key_mask=mask
        ),
        [q, k if wide else k[..., :1], v, raw, gain, offset],
    )


@both
def test_a_kernel_of_zeros_is_a_softmax_over_time(causal: bool) -> None:
    q, k, v, _ = tensors(2, 40, 5)
    scores = k.mT.expand(-1, -1, 40, -1)
    if causal:
        scores = scores.masked_fill(torch.ones(40, 40).triu(1) > 0, -torch.inf)
    want = q.sigmoid() * (scores.softmax(3) @ v)
    out = aft_conv_attention(q, k, v, torch.zeros(2, 5).double(), causal=causal)
    torch.testing.assert_close(out, want)


def test_the_kernel_is_normalised_then_scaled() -> None:
    raw = torch.randn(3, 9, generator=torch.Generator().manual_seed(0)).double()
    gain, offset = torch.tensor([[0.5, -2.0, 0.0], [1.0, 3.0, -4.0]]).double()
    kernel = aft_conv_kernel(raw, gain, offset)
    torch.testing.assert_close(kernel, naive.aft_conv_kernel(raw, gain, offset))
    torch.testing.assert_close(kernel.mean(1), offset)
    torch.testing.assert_close(kernel.std(1, correction=0), gain.abs(), rtol=1e-4, atol=0)


@both
def test_strides_change_nothing(causal: bool) -> None:
    q, k, v, kernel = tensors(2, 40, 5)
    plain = aft_conv_attention(q, k, v, kernel, causal=causal)
    q, k, v = (x.transpose(0, 3).contiguous().transpose(0, 3) for x in (q, k, v))
    again = aft_conv_attention(q, k, v, kernel.T.contiguous().T, causal=causal)
    torch.testing.assert_close(again, plain)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_the_truth(dtype: torch.dtype, causal: bool) -> None:
    q, k, v, kernel = (x.to(dtype) for x in tensors(2, 40, 5))
    q, k, v = 30 * q, 30 * k, 30 * v
    out = aft_conv_attention(q, k, v, kernel, causal=causal)
    q, k, v, kernel = (x.double() for x in (q, k, v, kernel))
    want = aft_conv_attention(q, k, v, kernel, causal=causal)
    assert out.dtype is dtype
    torch.testing.assert_close(out.double(), want, atol=0.3, rtol=0.02)


def test_autocast_does_not_lower_the_sums() -> None:
    arguments = tensors(2, 150, 5, dtype=torch.float32)
    plain = aft_conv_attention(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(aft_conv_attention(*arguments), plain)


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


def test_says_what_it_amounts_to() -> None:
    assert module(84).amounts_to().text == "aft-conv: 2 kernels of 33 taps over 84 steps"
