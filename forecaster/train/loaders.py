"""Batches of windows: index tensors into strided views, in an order fixed by (seed, epoch)."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from forecaster.datasets.windows import Batch, Windows


class EpochOrder(Sampler[Tensor]):
    """Shuffled batches of window indices; a pure function of the seed and the epoch.

    With `stride` n, an epoch uses every n-th window, from an offset drawn for that epoch, but at
    least two windows; if more than `most` would be left, it uses about that many, evenly spread.
    Every epoch has the same number of steps and uses all its windows: windows that do not fill a
    batch are spread over the others, so no batch is too small for batch norm.
    """

    def __init__(
        self, windows: int, batch: int, stride: int, seed: int, most: int | None = None
    ) -> None:
        self.windows, self.batch, self.seed = windows, batch, seed
        wider = widened(windows, stride, most)
        self.stride = max(1, min(wider, windows // 2))
        self.random = wider > stride
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return max(1, self.windows // self.stride // self.batch)

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        if self.random:
            chosen = one_of_each(self.windows, self.stride, generator)
        else:
            offset = int(torch.randint(self.stride, (1,), generator=generator))
            chosen = torch.arange(offset, self.windows, self.stride)
        order = chosen[torch.randperm(len(chosen), generator=generator)]
        return iter(order.tensor_split(len(self)))


def in_order(
    windows: int, batch: int, stride: int = 1, most: int | None = None
) -> tuple[Tensor, ...]:
    """Every `stride`-th window once, in order, or at most `most` of them, evenly spread."""
    wider = widened(windows, stride, most)
    if wider > stride:
        chosen = one_of_each(windows, wider, torch.Generator().manual_seed(0))
    else:
        chosen = torch.arange(0, windows, stride)
    batches: tuple[Tensor, ...] = chosen.split(batch)
    return batches


def widened(windows: int, stride: int, most: int | None) -> int:
    """The stride, or the smallest larger one that leaves at most `most` windows."""
    return stride if most is None else max(stride, -(-windows // most))


def one_of_each(windows: int, stride: int, generator: torch.Generator) -> Tensor:
    """One random window of every `stride`, in ascending order.

    Evenly spaced windows might all begin at the same hour of the day.
    """
    runs = torch.arange(0, windows, stride)
    chosen = runs + torch.randint(stride, runs.shape, generator=generator)
    return chosen[chosen < windows]  # the last run may be short


class WindowBatches(Dataset[Batch]):
    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __getitem__(self, index: Tensor) -> Batch:
        return self.windows.batch(index)


def loader(windows: Windows, order: Iterable[Tensor], seed: int = 0) -> DataLoader[Batch]:
    """A loader whose items are whole batches; it draws nothing from the global generator."""
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(WindowBatches(windows), sampler=order, batch_size=None, generator=generator)
