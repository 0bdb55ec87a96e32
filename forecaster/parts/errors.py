"""The errors of forecasts on windows, for many forecasts at a time."""

from collections.abc import Callable, Iterator, Sequence
from math import isfinite

import torch
from torch import Tensor

from forecaster.base.errors import DivergedError
from forecaster.datasets.windows import Batch, Windows

Forecast = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
MOST = 2_000
"""The most windows that are used; if there are more, evenly spaced ones."""


def chosen(windows: Windows, most: int = MOST) -> Tensor:
    """The indices of at most `most` windows, evenly spaced, including the first and the last."""
    count = min(len(windows), most)
    return torch.linspace(0, len(windows) - 1, count, dtype=torch.float64).round().long()


def products(
    forecasts: Sequence[Forecast], windows: Windows, most: int = MOST
) -> tuple[Tensor, Tensor]:
    """Mean products of errors of n forecasts at each step, (T, n, n), and the value counts, (T,).

    They are in float64 on the CPU, over the targets of the windows; missing ones do not count.
    Raises DivergedError naming the first forecast that is not finite.
    """
    n, horizon, columns = len(forecasts), windows.horizon, len(windows.targets)
    sums = torch.zeros(horizon, n, n, dtype=torch.float64)
    counts = torch.zeros(horizon, dtype=torch.float64)
    with torch.inference_mode():
        for batch in _batches(windows, most):
            size = len(batch.target)
            steps = torch.empty(
                horizon, n, size, columns, dtype=torch.float64, device=batch.target.device
            )
            for place, forecast in enumerate(forecasts):
                steps[:, place] = _off(forecast, batch).transpose(0, 1)
            rows = steps.flatten(2)
            sums += (rows @ rows.transpose(1, 2)).cpu()
            counts += _counted(batch)
    _check(forecasts, sums.diagonal(dim1=1, dim2=2).sum(dim=0))
    return sums / counts.clamp(min=1)[:, None, None], counts


def mse(forecasts: Sequence[Forecast], windows: Windows, most: int = MOST) -> Tensor:
    """The mean squared error of each forecast, (n,); otherwise as `products`."""
    sums = torch.zeros(len(forecasts), dtype=torch.float64)
    count = 0.0
    with torch.inference_mode():
        for batch in _batches(windows, most):
            for place, forecast in enumerate(forecasts):
                sums[place] += _off(forecast, batch).square_().sum(dtype=torch.float64).cpu()
            count += float(_counted(batch).sum())
    _check(forecasts, sums)
    return sums / max(count, 1)


def _batches(windows: Windows, most: int) -> Iterator[Batch]:
    return map(windows.batch, chosen(windows, most).split(windows.evaluation_batch))


def _off(forecast: Forecast, batch: Batch) -> Tensor:
    """The errors (B, T, K) of a forecast, 0 where the true value is missing."""
    off = forecast(*batch.inputs) - batch.target
    seen = batch.target_observed
    return off if seen is None else off.masked_fill_(~seen, 0.0)


def _counted(batch: Batch) -> Tensor:
    """The number of true values at each step, (T,)."""
    if batch.target_observed is not None:
        return batch.target_observed.sum(dim=(0, 2)).cpu()
    size, horizon, columns = batch.target.shape
    return torch.full((horizon,), size * columns)


def _check(forecasts: Sequence[Forecast], squared: Tensor) -> None:
    for forecast, own in zip(forecasts, squared.tolist(), strict=True):
        if not isfinite(own):
            name = getattr(forecast, "name", type(forecast).__name__)
            raise DivergedError(
                f"the forecast of the part '{name}' is not finite on the windows that evaluate it: "
                "correct the part, or remove the package that provides it"
            )
