"""How far forecasts are off on windows, many forecasts at a time."""

from collections.abc import Callable, Sequence
from math import isfinite

import torch
from torch import Tensor

from forecaster.datasets import Windows
from forecaster.errors import DivergedError

Forecast = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
MOST = 2_000
"""Windows that are looked at, evenly spaced ones where there are more."""


def chosen(windows: Windows, most: int = MOST) -> Tensor:
    """The numbers of at most so many of the windows, evenly spaced, the first and the last too."""
    count = min(len(windows), most)
    return torch.linspace(0, len(windows) - 1, count, dtype=torch.float64).round().long()


def products(
    forecasts: Sequence[Forecast], windows: Windows, most: int = MOST
) -> tuple[Tensor, Tensor]:
    """Mean products of errors of n forecasts at each step, (T, n, n), and of how many values, (T,).

    In float64 on the CPU, over the targets of the windows; missing ones count nowhere. Raises
    DivergedError naming the first forecast that is not finite.
    """
    n, horizon = len(forecasts), windows.horizon
    sums = torch.zeros(horizon, n, n, dtype=torch.float64)
    counts = torch.zeros(horizon, dtype=torch.float64)
    with torch.inference_mode():
        for index in chosen(windows, most).split(windows.evaluation_batch):
            batch = windows.batch(index)
            off = torch.stack([f(*batch.inputs) for f in forecasts], dim=-1)
            off = off - batch.target[..., None]
            if batch.target_observed is not None:
                off = off.masked_fill(~batch.target_observed[..., None], 0.0)
                counts += batch.target_observed.sum(dim=(0, 2)).cpu()
            else:
                counts += batch.target.shape[0] * batch.target.shape[2]
            steps = off.transpose(0, 1).flatten(1, 2).double()
            sums += (steps.transpose(1, 2) @ steps).cpu()
    own = sums.diagonal(dim1=1, dim2=2).sum(dim=0)
    for forecast, squared in zip(forecasts, own.tolist(), strict=True):
        if not isfinite(squared):
            name = getattr(forecast, "name", type(forecast).__name__)
            raise DivergedError(
                f"the forecast of the part '{name}' is not finite on the windows that judge it: "
                "mend the part, or remove the package that brings it"
            )
    return sums / counts.clamp(min=1)[:, None, None], counts


def mse(forecasts: Sequence[Forecast], windows: Windows, most: int = MOST) -> Tensor:
    """The mean squared error of each forecast, (n,)."""
    found, counts = products(forecasts, windows, most)
    squared = found.diagonal(dim1=1, dim2=2)
    return (squared * counts[:, None]).sum(dim=0) / counts.sum().clamp(min=1)
