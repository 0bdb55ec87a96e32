import pytest
import torch

from forecaster.attention.common.kernels import (
    prefix_sum,
    softmax_attention,
)
from tests.attention.agreement import inputs


@pytest.mark.parametrize("length", [1, 31, 32, 33, 65, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_prefix_sum(length: int, reverse: bool) -> None:
    _, _, x = inputs(keys=length)
    want = x.flip(2).cumsum(2).flip(2) if reverse else x.cumsum(2)
    torch.testing.assert_close(prefix_sum(x, reverse), want)
    torch.testing.assert_close(prefix_sum(x.contiguous(), reverse), want)


def test_prefix_sum_takes_gradients_back() -> None:
    _, _, x = inputs(keys=40)
    weights = torch.randn_like(x)
    (gradient,) = torch.autograd.grad((prefix_sum(x) * weights).sum(), x)
    torch.testing.assert_close(gradient, weights.flip(2).cumsum(2).flip(2))


def test_prefix_sum_adds_in_single_precision_under_autocast_and_for_half() -> None:
    x = torch.full((1, 1, 3000, 1), 1.001)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert prefix_sum(x)[0, 0, -1, 0].item() == pytest.approx(3003, rel=1e-5)
    ones = torch.ones(1, 1, 3000, 1, dtype=torch.bfloat16)
    assert prefix_sum(ones)[0, 0, -1, 0].item() == 3000


def test_softmax_attention_pads_unequal_widths_exactly() -> None:
    q, k, v = inputs(width=2, value_width=5)
    want = (q @ k.transpose(2, 3) * 2**-0.5).softmax(3) @ v
    torch.testing.assert_close(softmax_attention(q, k, v), want)
