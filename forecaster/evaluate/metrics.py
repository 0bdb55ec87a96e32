"""Errors of forecasts over windows: sums in float64, divided once by the count."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from forecaster.datasets import Batch, Windows

Forecast = Callable[[Batch], Tensor]
"""Takes a batch, returns scaled values (B, T, targets)."""


@dataclass(frozen=True)
class Score:
    """Errors of one forecast over every window of a split, on scaled values.

    `squared` and `absolute` (T, K) are means over windows by step and column; `by_window` (n,) is
    the squared error of each window, in time order.
    """

    windows: int
    squared: np.ndarray
    absolute: np.ndarray
    by_window: np.ndarray

    @property
    def mse(self) -> float:
        return float(self.squared.mean())

    @property
    def mae(self) -> float:
        return float(self.absolute.mean())


def score(forecast: Forecast, windows: Windows, batch: int = 256) -> Score:
    """Score every window, stride 1, whatever the batch size."""
    squared = absolute = torch.zeros(())
    by_window = []
    with torch.inference_mode():
        for index in torch.arange(len(windows)).split(batch):
            data = windows.batch(index)
            error = (forecast(data).float() - data.target).double()
            square = error.square()
            by_window.append(square.mean(dim=(1, 2)).cpu())
            squared = squared.to(square) + square.sum(dim=0)
            absolute = absolute.to(square) + error.abs().sum(dim=0)
    count = len(windows)
    return Score(
        windows=count,
        squared=(squared / count).cpu().numpy(),
        absolute=(absolute / count).cpu().numpy(),
        by_window=torch.cat(by_window).numpy(),
    )


def naive_mae(values: np.ndarray, season: int) -> np.ndarray:
    """Mean |y_t - y_{t-season}| of each column over the training rows: the unit of MASE.

    Hyndman and Koehler 2006. Columns that never change give nan, since MASE is undefined there.
    """
    change: np.ndarray = np.abs(values[season:] - values[:-season]).mean(axis=0)
    return np.where(change > 0, change, np.nan)


def paired_interval(
    difference: np.ndarray, block: int, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of the mean of a series of paired differences by block bootstrap.

    Windows overlap, so neighbours are not independent: circular blocks of `block` windows are
    drawn (Politis and Romano 1992).
    """
    n = len(difference)
    block = min(block, n)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([difference, difference[:block]]))])
    block_sums = sums[block : block + n] - sums[:n]
    starts = np.random.default_rng(seed).integers(0, n, size=(draws, -(-n // block)))
    means = block_sums[starts].mean(axis=1) / block
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
