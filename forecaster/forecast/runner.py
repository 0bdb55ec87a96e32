"""A model on its device, asked from the processor."""

from collections.abc import Callable

import torch
from torch import Tensor

from forecaster.base import machine
from forecaster.base.errors import DeviceLostError


class Runner:
    """Calls `model` on `device`, "cpu" or "cuda", which already holds its weights.

    On a CPU it uses exactly `threads` threads: another number changes the last digits.
    """

    def __init__(self, model: Callable[..., Tensor], device: str, threads: int = 1) -> None:
        self.model, self.device, self.threads = model, device, threads

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """The model's output on the processor, for inputs from there.

        Raises torch.OutOfMemoryError if the batch is too large for the device, DeviceLostError if
        the device no longer works.
        """
        set_up = machine.threads(self.threads) if self.device == "cpu" else machine.exact()
        try:
            with torch.inference_mode(), set_up:
                there = (None if x is None else machine.sent(x, self.device) for x in inputs)
                return self.model(*there).cpu()
        except RuntimeError as error:
            if _is_full(error):
                raise torch.OutOfMemoryError(_first_line(error)) from None
            if works(self.device):
                raise
            raise DeviceLostError(f"the GPU is lost: {_first_line(error)}") from error


def works(device: str) -> bool:
    """Whether the device still computes; in a broken context, every later call fails, too."""
    try:
        return bool(torch.ones(1, device=device).sum().item() == 1)
    except RuntimeError as error:
        return _is_full(error)


def _is_full(error: RuntimeError) -> bool:
    """Whether memory ran out: torch's, or that of cuBLAS."""
    words = ("out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
