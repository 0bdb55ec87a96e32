"""Batches of windows: index tensors into strided views, in an order fixed by (seed, epoch)."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from forecaster.datasets import Batch, Windows


class EpochOrder(Sampler[Tensor]):
    """Shuffled batches of window numbers; a pure function of the seed and the epoch.

    With `stride` n an epoch uses every n-th window, from an offset drawn for that epoch, but two
    windows at least. Every epoch has the same number of steps and uses all its windows: what does
    not fill a batch is spread over the others, so no batch is too small for batch norm.
    """

    def __init__(self, windows: int, batch: int, stride: int, seed: int) -> None:
        self.windows, self.batch, self.seed = windows, batch, seed
        self.stride = max(1, min(stride, windows // 2))
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return max(1, self.windows // self.stride // self.batch)

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        offset = int(torch.randint(self.stride, (1,), generator=generator))
        chosen = torch.arange(offset, self.windows, self.stride)
        order = chosen[torch.randperm(len(chosen), generator=generator)]
        return iter(order.tensor_split(len(self)))


class InOrder(Sampler[Tensor]):
    """Every `stride`-th window once, in time order."""

    def __init__(self, windows: int, batch: int, stride: int = 1) -> None:
        self.batches = torch.arange(0, windows, stride).split(batch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.batches)


class WindowBatches(Dataset[Batch]):
    """Windows whose item at an index tensor is a whole batch."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __getitem__(self, index: Tensor) -> Batch:
        return self.windows.batch(index)


def loader(windows: Windows, order: Sampler[Tensor], seed: int = 0) -> DataLoader[Batch]:
    """A loader whose items are whole batches; it draws nothing from the global generator."""
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(WindowBatches(windows), sampler=order, batch_size=None, generator=generator)
