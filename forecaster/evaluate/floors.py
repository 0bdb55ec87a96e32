"""What any model has to beat: forecasts that need no training, and one closed-form linear map.

Whatever has to be chosen (how many cycles, how strong a penalty) is chosen on validation windows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from forecaster.datasets import Batch, Windows
from forecaster.errors import DataError
from forecaster.evaluate.metrics import Forecast, score

CYCLES = (1, 2, 3, 5, 7, 10, 14, 21, 28, 42)
MULTIPLICATIONS = 10**10
"""What the products of windows may cost where all are not to be had at once: some seconds."""
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


def last_value(targets: list[int], horizon: int, past: int = 1) -> Floor:
    """The last observed value of the look-back; the training mean where there is none."""

    def forecast(batch: Batch) -> Tensor:
        return _last(*_targets(batch, targets)).expand(-1, horizon, -1)

    return Floor("last value", past, forecast)


def _targets(batch: Batch, targets: list[int]) -> tuple[Tensor, Tensor | None]:
    """Past values (B, P, K), and which of them are observed."""
    observed = batch.observed
    return batch.past[:, :, targets], None if observed is None else observed[:, :, targets]


def _last(past: Tensor, observed: Tensor | None) -> Tensor:
    """(B, 1, K): the last observed value of each column, 0 where there is none."""
    if observed is None:
        return past[:, -1:]
    places = torch.arange(past.shape[1], device=past.device)[:, None]
    return past.gather(1, (observed * places).amax(dim=1, keepdim=True))


def cycle_mean(
    season: int, cycles: int, targets: list[int], horizon: int, name: str, chosen: str = ""
) -> Floor:
    """The mean of the last `cycles` cycles, repeated; one cycle is the seasonal naive.

    Missing values are left out; a step of the cycle without any gets the training mean.
    """

    def forecast(batch: Batch) -> Tensor:
        past, observed = _targets(batch, targets)
        shape = (cycles, season)
        past = past[:, -cycles * season :].unflatten(1, shape)
        if observed is None:
            mean: Tensor = past.mean(dim=1)
        else:
            seen = observed[:, -cycles * season :].unflatten(1, shape).sum(dim=1)
            mean = past.sum(dim=1) / seen.clamp(min=1)
        return mean.repeat(1, -(-horizon // season), 1)[:, :horizon]

    return Floor(name, cycles * season, forecast, chosen)


def best_cycle_mean(
    season: int, targets: list[int], horizon: int, validation: Windows, rows_before: int
) -> Floor:
    """The cycle mean whose number of cycles has the least validation MSE.

    `rows_before`: steps of the grid before the first validation target. Raises DataError when they
    do not hold a cycle.
    """
    candidates = [k for k in CYCLES if k * season <= rows_before]
    if not candidates:
        raise DataError(
            f"the {rows_before} training rows do not hold one cycle of {season} steps; name a "
            "shorter season or bring more rows"
        )
    floors = [cycle_mean(season, k, targets, horizon, "cycle mean") for k in candidates]
    errors = [score(f.forecast, validation.looking_back(f.past)).mse for f in floors]
    best = candidates[min(range(len(errors)), key=errors.__getitem__)]
    chosen = f"k = {best} cycles of {season} steps, chosen on validation"
    return cycle_mean(season, best, targets, horizon, "cycle mean", chosen)


def linear_map(train: Windows, validation: Windows) -> Floor:
    """Ridge regression from the look-back to the horizon, shared by all target columns.

    Each window is centred on its last value (as NLinear, Zeng et al. 2023), which missing ones
    count as; the penalty, relative to the mean diagonal of the Gram matrix, is chosen on
    validation.
    """
    targets, past, device = list(train.targets), train.past, train.values.device
    gram, cross, count = products(train)
    judged, across, _ = products(validation)
    values, vectors = torch.linalg.eigh(gram)
    rotated = vectors.T @ cross

    def solve(penalty: float) -> Tensor:
        # at least a trace, for columns that never change
        trace = penalty * values.mean().clamp(min=1e-9)
        weights: Tensor = vectors @ (rotated / (values.clamp(min=0) + trace)[:, None])
        return weights

    def error(weights: Tensor) -> float:
        """The squared error on validation, but for a constant."""
        return float((weights * (judged @ weights - 2 * across)).sum())

    errors = [error(solve(penalty)) for penalty in PENALTIES]
    penalty = PENALTIES[min(range(len(errors)), key=errors.__getitem__)]
    weights = solve(penalty).float().to(device)

    def forecast(batch: Batch) -> Tensor:
        inputs, centre = _centred(batch, targets)
        ahead: Tensor = (inputs @ weights).transpose(1, 2) + centre
        return ahead

    chosen = f"ridge, P = {past}, penalty {penalty:g} chosen on validation"
    if count < len(train):
        chosen += f", from {count:,} of {len(train):,} windows"
    return Floor("linear map", past, forecast, chosen)


def _centred(batch: Batch, targets: list[int]) -> tuple[Tensor, Tensor]:
    """Past less its last value (B, K, P), 0 where missing, and that value (B, 1, K)."""
    past, observed = _targets(batch, targets)
    centre = _last(past, observed)
    inputs = past - centre if observed is None else (past - centre) * observed
    return inputs.transpose(1, 2), centre


def products(windows: Windows) -> tuple[Tensor, Tensor, int]:
    """sum x x' (P, P) and sum x y' (P, T), and of how many windows.

    x is the centred past of a window and a target column, y its future. Of a panel and where values
    are missing, evenly spaced windows stand for all, as many as MULTIPLICATIONS allow; a step ahead
    whose value is missing in some of them is taken to be like the others.
    """
    past, targets = windows.past, list(windows.targets)
    if windows.complete and windows.items is None and windows.every == 1:
        sums = centred_products(windows)
        return sums[:past, :past], sums[:past, past:], len(windows)
    each = len(targets) * past * (past + windows.horizon)
    count = min(len(windows), max(1, MULTIPLICATIONS // each))
    gram = torch.zeros(past, past, dtype=torch.float64, device=windows.values.device)
    cross = gram.new_zeros(past, windows.horizon)
    observed = gram.new_zeros(windows.horizon)
    chosen = torch.linspace(0, len(windows) - 1, count, dtype=torch.float64).round().long()
    for index in chosen.split(windows.evaluation_batch):
        batch = windows.batch(index)
        inputs, centre = _centred(batch, targets)
        x, y = inputs.flatten(0, 1).double(), batch.target - centre
        if batch.target_observed is None:
            observed += len(x)
        else:
            y = y * batch.target_observed
            observed += batch.target_observed.sum(dim=(0, 2))
        gram += x.T @ x
        cross += x.T @ y.transpose(1, 2).flatten(0, 1).double()
    cross *= count * len(targets) / observed.clamp(min=1)
    return gram.cpu(), cross.cpu(), count


def centred_products(windows: Windows) -> Tensor:
    """sum x_i x_j over all windows and target columns, (P + T, P + T), in float64 on the CPU.

    x is a window, past and future, less the last value of its past. Windows are one row apart, so
    the raw sum at (i + 1, j + 1) is that at (i, j) plus a product that enters and less one that
    leaves: the cost is N (P + T) a column, not N (P + T)^2.
    """
    n, steps = len(windows), windows.past + windows.horizon
    first = windows.origin(0)[1] - windows.past
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
        last_value(targets, horizon, train.past),
        *naive,
        best_cycle_mean(seasons[0], targets, horizon, validation, rows_before),
        linear_map(train, validation),
    ]
