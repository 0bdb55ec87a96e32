"""Small folds for the tests of parts, of one series or of a panel, with or without gaps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from forecaster.datasets.dataset import Items
from forecaster.datasets.windows import Windows
from forecaster.model import Task
from forecaster.parts import Fold

TARGETS = (2, 0)
SEASON, PAST, HORIZON = 6, 24, 8


def series(rows: int = 400, seed: int = 0) -> Tensor:
    """Three columns with a cycle of six steps whose level wanders."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, 3, generator=generator)
    cycle = torch.sin(torch.arange(rows) * torch.pi / 3)[:, None]
    return cycle + 0.5 * noise + 0.1 * noise.cumsum(dim=0)


def holed(values: Tensor, share: float = 0.2, seed: int = 3) -> Tensor:
    """The same with missing values."""
    missing = torch.rand(values.shape, generator=torch.Generator().manual_seed(seed)) < share
    return values.masked_fill(missing, torch.nan)


def windows(values: Tensor, first: int, last: int, **changes: Any) -> Windows:
    facts: dict[str, Any] = {"past": PAST, "horizon": HORIZON, "targets": TARGETS} | changes
    facts.setdefault("calendar", places(len(values)))
    return Windows(values, first=first, last=last, **facts)


def places(rows: int, season: int = SEASON) -> Tensor:
    """A calendar feature (rows, 1) that gives the place in the cycle, from -0.5 to 0.5."""
    return (torch.arange(rows) % season / (season - 1) - 0.5)[:, None]


def task_of(data: Windows, season: int = SEASON) -> Task:
    covariates = data.calendar.shape[1] - 1
    covariates += 0 if data.covariates is None else data.covariates.shape[1]
    return Task(
        data.values.shape[1], data.targets, data.past, data.past, data.horizon, 1, season,
        covariates=covariates,
    )  # fmt: skip


def fold(values: Tensor, seasons: tuple[int, ...] = (SEASON,), **changes: Any) -> Fold:
    """A fold of 400 rows: the first 240 train, the next 80 choose, and the rest is for the test."""
    moving = changes.pop("moving", 0)
    train, choose = (windows(values, *rows, **changes) for rows in ((0, 240), (240, 320)))
    phases = tuple((float(each - 1),) if each == SEASON else () for each in seasons)
    return Fold(
        task_of(train, seasons[0]), train, choose, seasons, phases, moving, train.past, seasons[0]
    )


def rest(values: Tensor, **changes: Any) -> Windows:
    return windows(values, 320, 400, **changes)


def panel(missing: bool = True) -> Windows:
    """Three series, the last with few rows before its windows."""
    rows = torch.cat([series(120), series(90, seed=1), series(40, seed=2)])
    if missing:
        rows = holed(rows)
        rows[140:180] = torch.nan
    items = Items(tuple("abc"), np.array([0, 120, 210, 250]), np.array([0, 10, 80]))
    calendar = places(120)
    return Windows(rows, calendar, 12, HORIZON, 60, 120, TARGETS, items, padding=6)


def panel_fold(missing: bool = True) -> Fold:
    choose = panel(missing)
    train = replace(choose, first=0, last=60)
    about = (SEASON,), ((float(SEASON - 1),),), 0, train.past, SEASON
    return Fold(task_of(train), train, choose, *about)


def forecast(part: Callable[..., Tensor], data: Windows, batch: int = 1000) -> Tensor:
    """The forecast of every window, (N, T, K)."""
    with torch.inference_mode():
        index = torch.arange(len(data)).split(batch)
        return torch.cat([part(*data.batch(each).inputs) for each in index])


def own_pasts(data: Windows) -> tuple[Tensor, Tensor]:
    """The targets' past (N, P, K) of every window, and which of it is observed."""
    batch = data.batch(torch.arange(len(data)))
    past = batch.past[..., list(data.targets)]
    if batch.observed is None:
        return past, torch.ones_like(past, dtype=torch.bool)
    return past, batch.observed[..., list(data.targets)]


def errors(part: Callable[..., Tensor], data: Windows) -> Tensor:
    """The error of every value, (N, T, K), computed directly; nan where it is missing."""
    batch = data.batch(torch.arange(len(data)))
    off = (forecast(part, data) - batch.target).double()
    seen = batch.target_observed
    return off if seen is None else off.masked_fill(~seen, torch.nan)


def error(part: Callable[..., Tensor], data: Windows) -> float:
    """The MSE over the observed targets."""
    return float(errors(part, data).square().nanmean())
