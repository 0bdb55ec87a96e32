import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from forecaster.attention.common.kernels import prefix_sum, slices
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


@given(*[st.integers(1, 6)] * 2, st.integers(1, 100), st.integers(1, 1000))
def test_covers_every_head_once_in_as_few_slices_as_fit(
    series: int, heads: int, each: int, at_once: int
) -> None:
    seen = torch.zeros(series, heads)
    for part in slices(series, heads, each, at_once):
        seen[part] += 1
        count = seen[part].numel()
        assert count == 1 or count * each <= at_once
        whole = seen[part].shape[1] == heads
        assert whole or seen[part].shape[0] == 1
    assert (seen == 1).all()
