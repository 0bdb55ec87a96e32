"""The errors of forecasts on windows, for many forecasts at a time."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from forecaster.base.errors import DivergedError
from forecaster.datasets.windows import Batch, Windows, sample
from forecaster.parts.base import forecast_of

Forecast = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
MOST = 2_000
"""The most windows that are used; if there are more, evenly spaced ones: neighbours overlap, so
more tell little and take longer."""
VALUES = 2**22
"""The most numbers of the products of each series, 32 MB; with more, only those of all are kept."""


class Products(NamedTuple):
    """The errors of n forecasts on windows, float64 on the CPU.

    `relative` (n, n) holds the mean products of errors, those of each target in each window divided
    by the mean square of all errors of `weighed` forecasts there: so it counts in which windows a
    forecast is better than others, not how hard a window is. `mse` (n,) are mean squared errors,
    `pairs` counts the pairs of windows and targets. `of_series` (S, n, n) are the relative products
    in each series of a panel, the mean of all in one without windows; None for one series, and
    where they would take more than VALUES numbers.
    """

    relative: Tensor
    mse: Tensor
    pairs: int
    of_series: Tensor | None = None


def products(forecasts: Sequence[Forecast], windows: Windows, most: int = MOST) -> Products:
    """The errors of forecasts on windows; missing values do not count.

    Raises DivergedError naming the first forecast that is not finite.
    """
    n, pairs, values = len(forecasts), 0, 0
    sums, squares = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    series = 0 if windows.items is None else len(windows.items)
    series = series if series * n * n <= VALUES else 0
    of_series, counts = torch.zeros(series, n, n, dtype=torch.float64), torch.zeros(series)
    weighed = [i for i, forecast in enumerate(forecasts) if getattr(forecast, "weighed", True)]
    with torch.inference_mode():
        for batch in sample(windows, most):
            off = torch.stack([_off(forecast, batch) for forecast in forecasts])
            rows = off.permute(1, 3, 0, 2).flatten(0, 1).double()  # (B K, n, T)
            crossed = rows @ rows.transpose(1, 2)
            square = crossed.diagonal(dim1=1, dim2=2)
            squares += square.sum(dim=0).cpu()
            mean = square[:, weighed].mean(dim=1)
            some = mean > 0
            crossed = (crossed[some] / mean[some, None, None]).cpu()
            sums += crossed.sum(dim=0)
            if series and batch.item is not None:
                item = batch.item.repeat_interleave(batch.target.shape[2])[some].cpu()
                of_series.index_add_(0, item, crossed)
                counts += item.bincount(minlength=series)
            pairs += int(some.sum())
            values += _counted(batch)
    _check(forecasts, squares)
    relative = sums / max(pairs, 1)
    counts = counts[:, None, None]
    of_series = torch.where(counts > 0, of_series / counts.clamp(min=1), relative)
    return Products(relative, squares / max(values, 1), pairs, of_series if series else None)


def by_window(forecasts: Sequence[Forecast], windows: Windows, most: int = MOST) -> Tensor:
    """The mean squared error of n forecasts in each window, (N, n); otherwise as `products`."""
    errors = []
    with torch.inference_mode():
        for batch in sample(windows, most):
            off = torch.stack([_off(forecast, batch) for forecast in forecasts], dim=1)
            sums = off.square().sum(dim=(2, 3), dtype=torch.float64)
            seen = batch.target_observed
            counts = torch.ones_like(batch.target) if seen is None else seen
            errors.append((sums / counts.sum(dim=(1, 2)).clamp(min=1)[:, None]).cpu())
    squares = torch.cat(errors)
    _check(forecasts, squares.sum(dim=0))
    return squares


def ratio(some: Tensor, others: Tensor) -> float:
    """The error of the best of some forecasts over that of the best of others.

    Errors (N, n) and (N, m) in the same windows count relative to the mean of both in their window.
    """
    usual = (some.mean(dim=1) + others.mean(dim=1)) / 2
    counted = usual > 0
    best, other = (
        float((errors[counted] / usual[counted, None]).mean(dim=0).min())
        for errors in (some, others)
    )
    return best / other if other > 0 else float("nan")


def mse(forecasts: Sequence[Forecast], windows: Windows) -> Tensor:
    """The mean squared error of each forecast, (n,); otherwise as `products`."""
    sums = torch.zeros(len(forecasts), dtype=torch.float64)
    count = 0
    with torch.inference_mode():
        for batch in sample(windows, MOST):
            for place, forecast in enumerate(forecasts):
                sums[place] += _off(forecast, batch).square_().sum(dtype=torch.float64).cpu()
            count += _counted(batch)
    _check(forecasts, sums)
    return sums / max(count, 1)


def _off(forecast: Forecast, batch: Batch) -> Tensor:
    """The errors (B, T, K) of a forecast, 0 where the true value is missing."""
    off = batch.within(forecast_of(forecast, batch)) - batch.target
    seen = batch.target_observed
    return off if seen is None else off.masked_fill_(~seen, 0.0)


def _counted(batch: Batch) -> int:
    seen = batch.target_observed
    return batch.target.numel() if seen is None else int(seen.sum())


def _check(forecasts: Sequence[Forecast], squared: Tensor) -> None:
    for forecast, total in zip(forecasts, squared.tolist(), strict=True):
        if not isfinite(total):
            name = getattr(forecast, "name", type(forecast).__name__)
            raise DivergedError(
                f"the forecast of the part '{name}' is not finite on the windows that evaluate it: "
                "correct the part, or remove the package that provides it"
            )
