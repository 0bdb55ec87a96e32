"""What any model has to beat: forecasts that need no training, and one closed-form linear map.

Whatever has to be chosen (how many cycles, how strong a penalty) is chosen on validation windows.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from forecaster.datasets import Batch, Windows
from forecaster.errors import DataError
from forecaster.evaluate.metrics import Forecast, score

CYCLES = (1, 2, 3, 5, 7, 10, 14, 21, 28, 42)
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Floor:
    """A named floor, the look-back it needs, and how it was chosen."""

    name: str
    past: int
    forecast: Forecast
    chosen: str = ""


def training_mean(targets: int, horizon: int) -> Floor:
    """The mean of the training rows, which is zero in scaled values."""
    return Floor("training mean", 1, lambda b: b.past.new_zeros(len(b.past), horizon, targets))


def last_value(targets: list[int], horizon: int) -> Floor:
    return Floor("last value", 1, lambda b: b.past[:, -1:, targets].expand(-1, horizon, -1))


def cycle_mean(
    season: int, cycles: int, targets: list[int], horizon: int, name: str, chosen: str = ""
) -> Floor:
    """The mean of the last `cycles` cycles, repeated; one cycle is the seasonal naive."""

    def forecast(batch: Batch) -> Tensor:
        past = batch.past[:, -cycles * season :, targets]
        mean: Tensor = past.unflatten(1, (cycles, season)).mean(dim=1)
        return mean.repeat(1, -(-horizon // season), 1)[:, :horizon]

    return Floor(name, cycles * season, forecast, chosen)


def best_cycle_mean(
    season: int, targets: list[int], horizon: int, validation: Windows, rows_before: int
) -> Floor:
    """The cycle mean whose number of cycles has the least validation MSE.

    `rows_before`: rows known before the first validation target. Raises DataError when they do
    not hold a cycle.
    """
    candidates = [k for k in CYCLES if k * season <= rows_before]
    if not candidates:
        raise DataError(
            f"the {rows_before} training rows do not hold one cycle of {season} steps; name a "
            "shorter season or bring more rows"
        )
    floors = [cycle_mean(season, k, targets, horizon, "cycle mean") for k in candidates]
    errors = [score(f.forecast, replace(validation, past=f.past)).mse for f in floors]
    best = candidates[min(range(len(errors)), key=errors.__getitem__)]
    chosen = f"k = {best} cycles of {season} steps, chosen on validation"
    return cycle_mean(season, best, targets, horizon, "cycle mean", chosen)


def linear_map(train: Windows, validation: Windows) -> Floor:
    """Ridge regression from the look-back to the horizon, shared by all target columns.

    Each window is centred on its last value (as NLinear, Zeng et al. 2023); the penalty, relative
    to the mean diagonal of the Gram matrix, is chosen on validation.
    """
    targets, past, device = list(train.targets), train.past, train.values.device
    sums, judge = centred_products(train), centred_products(validation)
    values, vectors = torch.linalg.eigh(sums[:past, :past])
    rotated = vectors.T @ sums[:past, past:]

    def solve(penalty: float) -> Tensor:
        # at least a trace, for columns that never change
        trace = penalty * values.mean().clamp(min=1e-9)
        weights: Tensor = vectors @ (rotated / (values.clamp(min=0) + trace)[:, None])
        return weights

    def error(weights: Tensor) -> float:
        """The squared error on validation, but for a constant."""
        gram, cross = judge[:past, :past], judge[:past, past:]
        return float((weights * (gram @ weights - 2 * cross)).sum())

    errors = [error(solve(penalty)) for penalty in PENALTIES]
    penalty = PENALTIES[min(range(len(errors)), key=errors.__getitem__)]
    weights = solve(penalty).float().to(device)

    def forecast(batch: Batch) -> Tensor:
        centre = batch.past[:, -1:, targets]
        x = (batch.past[:, -past:, targets] - centre).transpose(1, 2)
        ahead: Tensor = (x @ weights).transpose(1, 2) + centre
        return ahead

    chosen = f"ridge, P = {past}, penalty {penalty:g} chosen on validation"
    return Floor("linear map", past, forecast, chosen)


def centred_products(windows: Windows) -> Tensor:
    """sum x_i x_j over all windows and target columns, (P + T, P + T), in float64 on the CPU.

    x is a window, past and future, less the last value of its past. Windows are one row apart, so
    the raw sum at (i + 1, j + 1) is that at (i, j) plus a product that enters and less one that
    leaves: the cost is N (P + T) a column, not N (P + T)^2.
    """
    n, steps = len(windows), windows.past + windows.horizon
    first = windows.starts.start
    rows = windows.values[first : first + n + steps - 1, list(windows.targets)].double().cpu()
    sums = torch.empty(steps, steps, dtype=torch.float64)
    sums[0] = torch.from_numpy(
        sum(np.correlate(column, column[:n], mode="valid") for column in rows.T.numpy())
    )
    sums[:, 0] = sums[0]
    entering, leaving = rows[n:], rows[: steps - 1]
    change = entering @ entering.T - leaving @ leaving.T
    for i in range(1, steps):
        sums[i, 1:] = sums[i - 1, :-1] + change[i - 1]
    last = sums[windows.past - 1].clone()
    return sums - last - last[:, None] + last[windows.past - 1]


def all_floors(
    train: Windows, validation: Windows, seasons: tuple[int, ...], rows_before: int
) -> list[Floor]:
    """Every floor for these windows; `rows_before` as for `best_cycle_mean`."""
    targets, horizon = list(train.targets), train.horizon
    naive = [
        cycle_mean(season, 1, targets, horizon, f"seasonal naive, {season}")
        for season in seasons
        if season <= rows_before
    ]
    return [
        training_mean(len(targets), horizon),
        last_value(targets, horizon),
        *naive,
        best_cycle_mean(seasons[0], targets, horizon, validation, rows_before),
        linear_map(train, validation),
    ]
