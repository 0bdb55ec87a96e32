"""The mean is tested by AFT-local and AFT-conv."""

import torch

from forecaster.attention.common.banded import diagonals


def test_diagonals_are_a_view_of_shifted_rows() -> None:
    tiles = torch.arange(24.0).view(1, 4, 6)
    seen = diagonals(tiles, 1, 2)
    assert torch.equal(seen[0], torch.stack([tiles[0, r, 1 + r : 3 + r] for r in range(4)]))
    seen.zero_()
    assert (tiles[0, 3, 4:6] == 0).all()
