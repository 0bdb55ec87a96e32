import pytest
import torch

from forecaster.attention.common.kernels import prefix_sum


def test_prefix_sum_adds_in_single_precision_under_autocast_and_for_half() -> None:
    x = torch.full((1, 1, 3000, 1), 1.001)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert prefix_sum(x)[0, 0, -1, 0].item() == pytest.approx(3003, rel=1e-5)
    ones = torch.ones(1, 1, 3000, 1, dtype=torch.bfloat16)
    assert prefix_sum(ones)[0, 0, -1, 0].item() == 3000
