from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention.aft_local import AFTLocalAttention, aft_local_attention, definition
from forecaster.attention.base import Place
from forecaster.attention.common import banded

from .agreement import assert_agree, inputs

both = pytest.mark.parametrize("causal", [False, True])
tiled_or_dense = pytest.mark.parametrize("tile", [None, 4], ids=["dense", "tiled"])
# The range of exponents below 0 in float32 and float64 decides how m is computed.


def biases(length: int, window: int, heads: int | None = None, size: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (length, 2 * window - 1) if heads is None else (heads, length, 2 * window - 1)
    return (size * torch.randn(shape, generator=generator).double()).requires_grad_()


def use_tiles(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    if size is not None:
        monkeypatch.setattr(banded, "_TILE", size)
        monkeypatch.setattr(banded, "_DENSE", size)


def module(length: int = 23, **options: Any) -> AFTLocalAttention:
    torch.manual_seed(0)
    return AFTLocalAttention(Place(6, 2, length, length), **options)


@both
@pytest.mark.parametrize("length", [127, 128, 129, 161])
def test_lengths_around_the_real_tiles(length: int, causal: bool) -> None:
    """Short enough for a dense softmax with the biases expanded."""
    q, k, v = inputs(1, 2, length, length, width=3)
    offset = torch.arange(length) - torch.arange(length)[:, None]
    column = (offset + 31).clamp(0, 62)

    def dense(q: Tensor, k: Tensor, v: Tensor, band: Tensor) -> Tensor:
        w = band.gather(1, column).masked_fill(offset.abs() > 31, 0.0)
        scores = k[:, :, None] + w[:, :, None]
        if causal:
            scores = scores.masked_fill((offset > 0)[..., None], -torch.inf)
        return q.sigmoid() * (scores.softmax(3) * v[:, :, None]).sum(3)

    assert_agree(
        lambda *x: aft_local_attention(*x, window=32, causal=causal),
        dense,
        [q, k, v, biases(length, 32)],
        1e-9,
    )


def steep(kind: str, length: int) -> Tensor:
    """Keys (1, 1, length, 3) for which a single shift is not enough."""
    ramp = torch.linspace(-50, 50, length).double()
    generator = torch.Generator().manual_seed(3)
    keys = {
        "uniform": 100 * torch.rand(length, 3, generator=generator).double() - 50,
        "rising": ramp[:, None] + torch.arange(3),
        "falling": -ramp[:, None] + torch.arange(3),
        "step": 50 * ramp.sign()[:, None] + torch.arange(3),
        "peak": 50 - 2 * ramp.abs()[:, None] + torch.arange(3),
        "beyond float64": 40 * ramp[:, None] + torch.arange(3),
    }
    return keys[kind][None, None]


@both
@tiled_or_dense
@pytest.mark.parametrize("kind", ["uniform", "rising", "falling", "step", "peak", "beyond float64"])
def test_steep_keys_and_biases(
    monkeypatch: pytest.MonkeyPatch, kind: str, causal: bool, tile: int | None
) -> None:
    use_tiles(monkeypatch, tile)
    q, _, v = inputs(1, 1, 19, 19, dtype=torch.float32)
    band = (20 * torch.rand(19, 5, generator=torch.Generator().manual_seed(4)) - 10).float()
    assert_agree(
        lambda *x: aft_local_attention(*x, window=3, causal=causal),
        lambda *x: definition(*x, window=3, causal=causal),
        [q, steep(kind, 19).float(), v, band],
        1e-4,
    )


@both
@tiled_or_dense
@pytest.mark.parametrize("size", [100.0, 1e4])
def test_biases_that_float32_cannot_exponentiate(
    monkeypatch: pytest.MonkeyPatch, causal: bool, tile: int | None, size: float
) -> None:
    use_tiles(monkeypatch, tile)
    tensors = [*inputs(1, queries=13, keys=13, dtype=torch.float32), biases(13, 3, 2, size).float()]
    assert_agree(
        lambda *x: aft_local_attention(*x, window=3, causal=causal),
        lambda *x: definition(*x, window=3, causal=causal),
        tensors,
        1e-4,
    )


def test_what_the_caller_cannot_see_does_not_matter() -> None:
    q, k, v = inputs(queries=9, keys=9)
    band = biases(9, 3).detach()
    changed = band.clone()
    for t in range(9):
        for column in range(5):
            if not 0 <= t + column - 2 <= t:
                changed[t, column] = 9.0
    first, second = (
        aft_local_attention(q, k, v, w, window=3, causal=True) for w in (band, changed)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, aft_local_attention(q, k, v, changed, window=3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 0}, "window must be at least 1, got window=0"),
        ({"window": 4}, r"band_bias must be .* = \(7, 7\), or \(2, 7, 7\) .* got \(7, 5\)"),
        (
            {"k": torch.zeros(2, 2, 9, 3), "v": torch.zeros(2, 2, 9, 3)},
            "keys as queries, got 7 and 9",
        ),
    ],
)
def test_refuses_sizes_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    q, k, v = inputs(queries=7, keys=7)
    arguments: dict[str, Any] = {"q": q, "k": k, "v": v, "band_bias": biases(7, 3), "window": 3}
    with pytest.raises(ValueError, match=message):
        aft_local_attention(**{**arguments, **change})


@pytest.mark.parametrize(("length", "window"), [(1, 1), (1, 5), (4, 9), (9, 3), (10, 4), (23, 23)])
def test_the_factors_are_multiplied_where_the_band_is(length: int, window: int) -> None:
    attention = module(window=window)
    with torch.no_grad():
        a, b = attention.query_factors[:length], attention.key_factors[:length]
        band, products = attention.band_bias(length), a @ b.T
    assert band.shape == (length, 2 * window - 1)
    for t in range(length):
        for s in range(max(0, t - window + 1), min(length, t + window)):
            torch.testing.assert_close(band[t, s - t + window - 1], products[t, s])


def test_starts_with_small_factors_of_the_paper() -> None:
    for factors in (module(500).query_factors, module(500).key_factors):
        assert factors.shape == (500, 128)
        assert factors.std().item() == pytest.approx(0.01, rel=0.05)


def test_learns_its_factors() -> None:
    attention = module(window=3)
    attention(torch.randn(2, 23, 6), causal=True).square().sum().backward()
    for factors in (attention.query_factors, attention.key_factors):
        assert factors.grad is not None
        assert factors.grad.abs().amax(1).gt(0).sum() >= 21


def test_takes_shorter_series_but_no_longer_ones() -> None:
    attention = module(23, window=3)
    assert attention(torch.randn(2, 7, 6)).shape == (2, 7, 6)
    with pytest.raises(ValueError, match="biases for 23 steps, got a series of 24"):
        attention(torch.randn(2, 24, 6))


def test_refuses_impossible_places_and_options() -> None:
    with pytest.raises(ValueError, match=r"'aft-local' does not use .* model.mix=false"):
        AFTLocalAttention(Place(6, 2, 7, 7, mix=True))
    with pytest.raises(ValueError, match="got window=0"):
        module(window=0)
