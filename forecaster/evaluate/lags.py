"""The time lags that a forecast depends on, with one definition for all attentions and skeletons.

The profile is the absolute gradient of the forecast with respect to the inputs (input-gradient
saliency, Simonyan, Vedaldi and Zisserman, arXiv:1312.6034, sec. 3), ordered by how many steps
before the forecast step an input lies. It shows the effect of a small change of an input, not how
much the input helps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from forecaster.datasets.windows import Windows


@dataclass(frozen=True)
class LagProfile:
    """The dependence of a model's forecast on its inputs, by lag.

    `matrix` (T, P + T - 1): the mean of |d forecast_h / d past_(t - lag)| over windows and
    columns, row h - 1 for horizon step h, column lag - 1 for an input `lag` steps before that
    step; divided by its sum, so that it sums to 1. All zero for a model that does not depend on its
    past. `windows` is the number of windows used.
    """

    matrix: NDArray[np.float64]
    windows: int

    @property
    def by_lag(self) -> NDArray[np.float64]:
        """(P + T - 1,): the share of each lag, starting with lag 1.

        It is the mean over the horizon steps that can reach the lag, again divided by the sum:
        later steps cannot reach a short lag, and a plain sum would count that as independence.
        """
        horizon, lags = self.matrix.shape
        lag = np.arange(1, lags + 1)
        able = np.minimum.reduce([lag, lag[::-1], np.full(lags, min(horizon, lags - horizon + 1))])
        mean: NDArray[np.float64] = self.matrix.sum(axis=0) / able
        return mean / (mean.sum() or 1)

    @property
    def peak(self) -> int:
        """The lag with the largest share; 0 for a model that does not depend on its past."""
        return int(self.by_lag.argmax()) + 1 if self.matrix.any() else 0


def lag_profile(
    model: nn.Module,
    windows: Windows,
    count: int = 32,
    report: Callable[[int], None] = lambda steps: None,
) -> LagProfile:
    """The lag profile of a model, over at most `count` windows spread evenly.

    Each window contributes the gradient of one predicted column, in turns, with respect to all
    input columns. That takes one backward pass per horizon step; `report` is called after each
    step. The model is left in eval mode.
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
