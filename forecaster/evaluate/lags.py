"""What a forecast looks at, as time lags: one definition for every attention and every skeleton.

The profile is the absolute gradient of the forecast with respect to the inputs (input-gradient
saliency, Simonyan, Vedaldi and Zisserman, arXiv:1312.6034, sec. 3), ordered by how many steps
before the forecast step an input lies. It says what a small change of an input would change, not
how much the input helps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from forecaster.datasets import Windows


@dataclass(frozen=True)
class LagProfile:
    """Where a model looks.

    `matrix` (T, P + T - 1): the mean of |d forecast_h / d past_(t - lag)| over windows and
    columns, row h - 1 for horizon step h, column lag - 1 for an input `lag` steps before that
    step; divided by the sum of all, so that it sums to 1. All zero for a model that does not look
    at its past. `windows` is how many were asked.
    """

    matrix: NDArray[np.float64]
    windows: int

    @property
    def by_lag(self) -> NDArray[np.float64]:
        """(P + T - 1,): the share of each lag, the first being that of lag 1.

        The mean over the horizon steps that can look so far, again divided by the sum: a short lag
        is beyond the reach of the later steps, and a sum would take that for a lack of interest.
        """
        horizon, lags = self.matrix.shape
        lag = np.arange(1, lags + 1)
        able = np.minimum.reduce([lag, lag[::-1], np.full(lags, min(horizon, lags - horizon + 1))])
        mean: NDArray[np.float64] = self.matrix.sum(axis=0) / able
        return mean / (mean.sum() or 1)

    @property
    def peak(self) -> int:
        """The lag with the largest share; 0 for a model that does not look at its past."""
        return int(self.by_lag.argmax()) + 1 if self.matrix.any() else 0


def lag_profile(
    model: nn.Module,
    windows: Windows,
    count: int = 32,
    report: Callable[[int], None] = lambda steps: None,
) -> LagProfile:
    """The lag profile of a model, over at most `count` windows spread evenly.

    Each window is asked for one predicted column, the columns taking turns, and answers with its
    gradient to all input columns. That is one backward pass per horizon step; `report` is told
    that a step is done. The model is left in eval mode.
    """
    model = model.eval()
    chosen = torch.linspace(0, len(windows) - 1, min(count, len(windows))).round().long()
    batch = windows.batch(chosen)
    past = batch.past.detach().requires_grad_()
    with torch.enable_grad():
        forecast = model(past, *batch.inputs[1:])
    turn = torch.arange(len(chosen), device=past.device)
    asked = forecast[turn, :, turn % forecast.shape[2]]  # (B, T)
    horizon, steps = windows.horizon, windows.past
    matrix = np.zeros((horizon, steps + horizon - 1))
    if asked.requires_grad:
        for h in range(horizon):
            (gradient,) = torch.autograd.grad(
                asked[:, h].sum(), past, retain_graph=True, materialize_grads=True
            )
            share = gradient.abs().double().mean(dim=(0, 2)).flip(0)  # the newest step first
            matrix[h, h : h + steps] = share.cpu().numpy()
            report(1)
    total = matrix.sum()
    return LagProfile(matrix / total if total > 0 else matrix, len(chosen))
