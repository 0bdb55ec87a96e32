"""The mean by itself; its uses in AFT-local and AFT-conv are tested with those."""

import pytest
import torch
from torch import Tensor

from forecaster.attention.common import banded
from forecaster.attention.common.banded import banded_mean, diagonals
from tests.attention.agreement import assert_agree


def slow(k: Tensor, v: Tensor, band: Tensor, low: int, causal: bool) -> Tensor:
    steps, taps = v.shape[2], band.shape[2]
    rows = []
    for t in range(steps):
        seen = range(t + 1) if causal else range(steps)
        logits = []
        for s in seen:
            column = s - t - low
            bias = (
                band[:, min(t, band.shape[1] - 1), column]
                if 0 <= column < taps
                else band.new_zeros(1)
            )
            logits.append(k[:, :, s] + bias[:, None])
        weights = torch.stack(logits, 2).softmax(2)
        rows.append((weights * v[:, :, : len(logits)]).sum(2))
    return torch.stack(rows, 2)


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


def test_diagonals_are_a_view_of_shifted_rows() -> None:
    tiles = torch.arange(24.0).view(1, 4, 6)
    seen = diagonals(tiles, 1, 2)
    assert torch.equal(seen[0], torch.stack([tiles[0, r, 1 + r : 3 + r] for r in range(4)]))
    seen.zero_()
    assert (tiles[0, 3, 4:6] == 0).all()
