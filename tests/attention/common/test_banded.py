"""The mean by itself; its uses in AFT-local and AFT-conv are tested with those."""

import pytest
import torch
from torch import Tensor

from forecaster.attention.common import banded
from forecaster.attention.common.banded import banded_mean, diagonals
from forecaster.attention.common.definitions import biased_mean, visible
from tests.attention.agreement import assert_agree


def slow(k: Tensor, v: Tensor, band: Tensor, low: int, causal: bool) -> Tensor:
    steps, taps = torch.arange(v.shape[2]), band.shape[2]
    tap = steps - steps[:, None] - low
    w = band.expand(-1, len(steps), -1).gather(2, tap.clamp(0, taps - 1).expand(len(band), -1, -1))
    w = w.masked_fill((tap < 0) | (tap >= taps), 0.0)
    return biased_mean(k, v, w, visible(v, v, causal, None))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dense", [0, 128])
@pytest.mark.parametrize(("heads", "rows", "width"), [(1, 11, 3), (2, 1, 1), (2, 11, 3)])
def test_equals_its_definition(
    causal: bool, dense: int, heads: int, rows: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(banded, "_DENSE", dense)
    monkeypatch.setattr(banded, "_TILE", 4)
    generator = torch.Generator().manual_seed(0)
    k = torch.randn(2, 2, 11, width, generator=generator, dtype=torch.float64)
    v = torch.randn(2, 2, 11, 3, generator=generator, dtype=torch.float64)
    low, taps = (-2, 3) if causal else (-2, 5)
    band = torch.randn(heads, rows, taps, generator=generator, dtype=torch.float64)
    assert_agree(
        lambda k, v, band: banded_mean(k, v, band, low, causal=causal),
        lambda k, v, band: slow(k, v, band, low, causal),
        [k, v, band],
        1e-9,
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [30.0, 300.0, 3000.0])
def test_keys_of_any_size(causal: bool, size: float) -> None:
    """In float32, in float64 and query by query."""
    k, v, band = (torch.randn(2, 2, 161, n, generator=torch.manual_seed(n)) for n in (3, 3, 5))
    assert_agree(
        lambda k, v, band: banded_mean(k, v, band[0], -4 if causal else -2, causal=causal),
        lambda k, v, band: slow(k, v, band[0], -4 if causal else -2, causal),
        [size * k, v, band],
        1e-3,
    )


def test_diagonals_are_a_view_of_shifted_rows() -> None:
    tiles = torch.arange(24.0).view(1, 4, 6)
    seen = diagonals(tiles, 1, 2)
    assert torch.equal(seen[0], torch.stack([tiles[0, r, 1 + r : 3 + r] for r in range(4)]))
    seen.zero_()
    assert (tiles[0, 3, 4:6] == 0).all()
