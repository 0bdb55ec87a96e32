"""The simulated device itself: what would fail or wait on a GPU is noticed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.gpu_simulated.device import Simulated

RAISES: dict[str, Callable[[Tensor], object]] = {
    "a tensor made on the host": lambda x: x + torch.ones(4),
    "a parameter left on the host": lambda x: nn.Linear(4, 2)(2 * x),
    "a mask on the host": lambda x: x.masked_fill(torch.ones(3, 4, dtype=torch.bool), 0.0),
    "a buffer filled on the host": lambda x: torch.zeros(3, 4).add_(x),
    "an index on the host to gather": lambda x: x.gather(1, torch.zeros(3, 1, dtype=torch.long)),
    "a generator of the host": lambda x: torch.rand(3, device="cuda", generator=torch.Generator()),
    "numbers for numpy": lambda x: x.numpy(),
}
WAITS: dict[str, Callable[[Tensor], object]] = {
    "a number": lambda x: x.sum().item(),
    "a branch by value": lambda x: bool(x.isfinite().all()),
    "a mask as index": lambda x: x[x > 0],
    "a list as index": lambda x: x[:, [0, 2]],
    "an index on the host": lambda x: x[:, torch.tensor([0, 2])],
    "places by value": lambda x: x.nonzero(),
    "numbers from a list": lambda x: x.new_tensor([1.0, 2.0]),
    "numbers from a list, made there": lambda x: torch.tensor([1.0, 2.0], device="cuda"),
    "a copy to the host": lambda x: x.cpu(),
    "a copy from the host": lambda x: torch.ones(4).to("cuda"),
    "a list": lambda x: x.tolist(),
    "unique values": lambda x: x.unique(),
}


@pytest.mark.parametrize("fault", RAISES)
def test_it_raises(fault: str) -> None:
    with Simulated():
        x = torch.randn(3, 4).to("cuda")
        with pytest.raises((RuntimeError, TypeError)):
            RAISES[fault](x)


@pytest.mark.parametrize("fault", WAITS)
def test_it_records_a_wait(fault: str) -> None:
    with Simulated() as gpu:
        x = torch.randn(3, 4).to("cuda")
        gpu.clear()
        WAITS[fault](x)
        assert len(gpu.waits) == 1


def test_what_a_gpu_does_by_itself_is_no_wait() -> None:
    with Simulated() as gpu:
        x = torch.randn(3, 4).to("cuda").requires_grad_()
        gpu.clear()
        mask = torch.arange(4, device="cuda") < 2
        y = (2 * x + 1).masked_fill(mask, 0.0).index_select(1, torch.arange(2, device="cuda"))
        y.sum().backward()
        assert gpu.waits == []
        assert 8 <= gpu.launches <= 20
        assert x.grad is not None
        assert (y.device.type, x.grad.device.type) == ("cuda", "cuda")
        assert x[0, 0].device.type == "cuda"
        gpu.clear()
        x.detach().view(4, 3).t()[:2].expand(2, 2, 4)
        assert gpu.launches == 0


def test_float64_is_seen() -> None:
    with Simulated() as gpu:
        x = torch.randn(3, 4).to("cuda")
        x + x.sum().double()
        assert gpu.doubles == []
        x.repeat(2, 1).double()
        assert len(gpu.doubles) == 1
