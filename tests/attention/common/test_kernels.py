import pytest
import torch
from torch import Tensor

from forecaster.attention.common.kernels import prefix_sum
from tests.attention.agreement import assert_agree, inputs


@pytest.mark.parametrize("length", [1, 31, 32, 33, 65, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_prefix_sum(length: int, reverse: bool) -> None:
    """Forward and gradient, which is a sum from the other end."""

    def want(x: Tensor) -> Tensor:
        return x.flip(2).cumsum(2).flip(2) if reverse else x.cumsum(2)

    _, _, x = inputs(keys=length)
    for each in (x, x.contiguous()):
        assert_agree(lambda x: prefix_sum(x, reverse), want, [each], 1e-12)


def test_prefix_sum_adds_in_single_precision_under_autocast_and_for_half() -> None:
    x = torch.full((1, 1, 3000, 1), 1.001)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert prefix_sum(x)[0, 0, -1, 0].item() == pytest.approx(3003, rel=1e-5)
    ones = torch.ones(1, 1, 3000, 1, dtype=torch.bfloat16)
    assert prefix_sum(ones)[0, 0, -1, 0].item() == 3000
