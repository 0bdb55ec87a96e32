"""The mean is tested by aft-simple and fastformer."""

import pytest
import torch
from torch import Tensor

from forecaster.attention.common import prefix


def test_only_the_steep_blocks_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, tops = [], prefix._tops

    def spy(a: Tensor, before: Tensor, chunk: int) -> Tensor:
        sizes.append(chunk)
        return tops(a, before, chunk)

    monkeypatch.setattr(prefix, "_AT_ONCE", 64)
    monkeypatch.setattr(prefix, "_tops", spy)
    score = torch.zeros(1, 1, 192, 1)
    score[:, :, 100:] = 50.0  # within the second of three blocks
    prefix.prefix_softmax_mean(score, torch.randn(1, 1, 192, 1))
    assert sizes == [32, 32, 1, 32]
