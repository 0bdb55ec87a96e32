"""The mean is tested by AFT-local and AFT-conv."""

import torch

from forecaster.attention.common.banded import diagonals


def test_diagonals_are_a_view_of_shifted_rows() -> None:
    tiles = torch.arange(24.0).view(1, 4, 6)
    seen = diagonals(tiles, 1, 2)
    assert torch.equal(seen[0], torch.stack([tiles[0, r, 1 + r : 3 + r] for r in range(4)]))
    assert seen.data_ptr() == tiles[0, 0, 1:].data_ptr()
