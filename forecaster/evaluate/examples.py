"""Example windows: the best, the median and the worst, by the error of the model itself."""

from dataclasses import dataclass

import numpy as np
import torch

from forecaster.datasets import Windows
from forecaster.evaluate.metrics import Forecast, Score

PICKED = ("best", "median", "worst")


@dataclass(frozen=True)
class Example:
    """A window, numbered from 0: past (P, K), truth and forecast (T, K), scaled; nan: missing."""

    number: int
    past: np.ndarray
    truth: np.ndarray
    forecast: np.ndarray


def examples(forecast: Forecast, windows: Windows, scored: Score) -> dict[str, Example]:
    """One window for each name in PICKED, among those with any observed value."""
    order = np.argsort(scored.by_window, kind="stable")
    order = order[: np.count_nonzero(~np.isnan(scored.by_window))]
    found = {}
    for name, place in zip(PICKED, (0, len(order) // 2, -1), strict=True):
        number = int(order[place])
        batch = windows.batch(torch.tensor([number], device=windows.values.device))
        with torch.inference_mode():
            ahead = forecast(batch)
        past, truth = batch.past, batch.target
        if batch.observed is not None and batch.target_observed is not None:
            past = past.masked_fill(~batch.observed, torch.nan)
            truth = truth.masked_fill(~batch.target_observed, torch.nan)
        own = (past[..., list(windows.targets)], truth, ahead)
        found[name] = Example(number, *(values[0].cpu().numpy() for values in own))
    return found
