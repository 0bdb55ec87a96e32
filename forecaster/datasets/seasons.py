"""What is measured of a series: its cycles, how strongly its columns are related beyond them, and
which columns known ahead are events."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.datasets.calendar import DAY, holiday_feature, parse_step, step_length
from forecaster.datasets.dataset import Dataset, Items, Series

TRAIN = 0.7
"""The part of the time steps that is examined: a model may be tested on the rest."""

SHOWS = 0.15
"""The smallest autocorrelation of a season, or two standard errors if that is more: it is the
share of the variance that repeats."""

ITEMS, COLUMNS, ROWS = 32, 32, 20_000
"""The most series of a panel, columns and newest rows examined: more than two years of hours."""

RARE = 0.05
"""Values other than zero in less than this share of the steps are events: a day of each
week is more, and is a season."""

_MINUTE, _HOUR = DAY // 1440, DAY // 24
_CALENDAR = {"B": (5, 261), "W": (52,), "MS": (12,), "ME": (12,), "QS": (4,), "QE": (4,)}


def candidates(freq: str) -> tuple[int, ...]:
    """The natural cycles of a time step, in steps, the shortest first.

    They are a day and a week; for steps of days a week and a year; for steps below a minute a
    minute, an hour and a day.
    """
    step = step_length(freq)
    if step is None:
        count, unit, _ = parse_step(freq)
        cycles = _CALENDAR.get(unit, ())
        return tuple(cycle // count for cycle in cycles if cycle % count == 0 and cycle > count)
    lengths = (_MINUTE, _HOUR, DAY) if step < _MINUTE else (DAY, 7 * DAY)
    if step >= DAY:
        lengths = (7 * DAY, 365 * DAY)
    return tuple(length // step for length in lengths if length > step and length % step == 0)


def infer_seasons(
    series: Series, targets: int, among: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Find the cycles, in steps, in the first `targets` columns of a series, the shortest first.

    The candidates are `among`, the shortest first, or else the natural cycles of the step. A cycle
    is recognised by the autocorrelation at its length, averaged over columns and items, after the
    mean of a cycle around each step and the profiles of the shorter cycles found are removed. Only
    the first TRAIN of the time steps count, and at least two cycles must fit in. The result is (1,)
    if there is no cycle.
    """
    parts = training_parts(series, targets)
    longest = max((len(part) for part in parts), default=0)
    shown: list[int] = []
    for season in candidates(series.freq) if among is None else among:
        if 2 * season > longest:
            break
        fitting = [part for part in parts if len(part) >= 2 * season]
        correlations = [_autocorrelation(part, season) for part in fitting]
        values = np.concatenate(correlations)
        values = values[np.isfinite(values)]
        pairs = np.median([len(part) - season for part in fitting])
        if len(values) and values.mean() > max(SHOWS, 2 / np.sqrt(pairs)):
            shown.append(season)
            parts = [_without(part, season) for part in parts]
    return tuple(shown) or (1,)


def training_parts(series: Series, targets: int) -> list[NDArray[np.float64]]:
    """The training rows (rows, columns) of some items, in some of the first `targets` columns.

    Items and columns are evenly spread; the items of a panel are cut at the same time.
    """
    columns = np.unique(np.linspace(0, targets - 1, COLUMNS).astype(int))
    items = series.layout
    rows = np.minimum(int(TRAIN * len(series.times)) - items.places, items.lengths)
    there = np.flatnonzero(rows > 0)
    if not len(there):
        return []
    chosen = there[np.unique(np.linspace(0, len(there) - 1, ITEMS).astype(int))]
    spans = [(int(items.bounds[item]), int(items.bounds[item] + rows[item])) for item in chosen]
    return [
        np.asarray(series.values[max(begin, end - ROWS) : end, columns], dtype=np.float64)
        for begin, end in spans
    ]


def _detrended(rows: NDArray[np.float64], season: int) -> NDArray[np.float64]:
    """Rows (n, C) minus the mean of a cycle around each, and with mean 0."""
    there = ~np.isnan(rows)
    step = np.arange(len(rows))
    low, high = (step - season // 2).clip(0), (step - season // 2 + season).clip(max=len(rows))

    def around(values: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(axis=0)])
        return np.asarray(total[high] - total[low])

    level = around(np.where(there, rows, 0)) / np.maximum(around(there.astype(float)), 1)
    rest = rows - level
    return rest - _mean(rest)


def _mean(cycles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the observed values over the first axis, 0 if there are none."""
    there = ~np.isnan(cycles)
    total = np.where(there, cycles, 0).sum(axis=0)
    return np.asarray(total / np.maximum(there.sum(axis=0), 1))


def _autocorrelation(rows: NDArray[np.float64], season: int) -> NDArray[np.float64]:
    """Autocorrelation at lag `season` of each detrended column of `rows` (n, C); NaN if flat."""
    largest = np.nan_to_num(np.abs(rows)).max(axis=0)
    rest = _detrended(rows / np.where(largest > 0, largest, 1), season)
    spread = _mean(rest**2)
    flat = spread <= 1e-18  # rounding, as the largest value is 1
    return np.where(flat, np.nan, _mean(rest[season:] * rest[:-season]) / np.where(flat, 1, spread))


def _without(rows: NDArray[np.float64], season: int) -> NDArray[np.float64]:
    cycles = -(-len(rows) // season)
    filled = np.full((cycles * season, rows.shape[1]), np.nan)
    filled[: len(rows)] = _detrended(rows, season)
    profile = _mean(filled.reshape(cycles, season, -1))
    return rows - np.tile(profile, (cycles, 1))[: len(rows)]


def mean_correlation(values: NDArray[np.floating[Any]], seasons: Sequence[int]) -> float | None:
    """How strongly columns move together, 0 to 1: their mean absolute correlation.

    `values` (N, C) are NaN where missing. The mean of each place in the longest season that fits in
    four times is removed first, so that a common daily or weekly pattern does not count. Constant
    columns, and pairs that are never observed together, are left out; None if no pair is left.
    """
    fitting = [season for season in seasons if 4 * season <= len(values)]
    place = np.arange(len(values)) % max(fitting, default=1)
    frame = pd.DataFrame(values)
    apart = frame - frame.groupby(place).transform("mean")
    moves = apart.std() > 1e-9 * frame.abs().max()
    apart = apart.loc[:, moves]
    matrix = apart.corr(min_periods=10).to_numpy()
    pairs = np.abs(matrix[np.triu_indices(len(matrix), 1)])
    pairs = pairs[np.isfinite(pairs)]
    return float(pairs.mean()) if len(pairs) else None


@dataclass(frozen=True)
class Facts:
    """Measurements of a data set, made only in the first TRAIN of its steps.

    `steps` is the length of the time grid, `rows` the number of rows examined in the longest
    series. `seasons` is () if none was found, `cycles` is how often the shortest fits into `rows`.
    `together` is None if there are not two columns to forecast, or the data are a panel.
    """

    name: str
    steps: int
    rows: int
    freq: str
    seasons: tuple[int, ...]
    cycles: int
    series: int
    targets: int
    together: float | None
    known: tuple[str, ...]
    events: tuple[dict[str, Any], ...]
    """Columns known ahead that are rarely not zero: the name, in which `share` of the steps, and in
    how many runs (`count`)."""


def measure(dataset: Dataset, holidays: str | None = None) -> Facts:
    """Measure a data set, with the public holidays of a region if one is named."""
    series = dataset.series
    items = series.layout
    rows = int(items.rows_before(int(TRAIN * len(series.times))).max())
    targets = 1 if series.items else len(dataset.targets)
    among = sorted({*candidates(series.freq), *dataset.seasons} - {1})
    seasons = tuple(season for season in infer_seasons(series, targets, among) if season > 1)
    parts = training_parts(series, targets) if targets > 1 else []
    return Facts(
        name=dataset.name,
        steps=len(series.times),
        rows=rows,
        freq=series.freq,
        seasons=seasons,
        cycles=rows // min(seasons) if seasons else 0,
        series=len(items),
        targets=targets,
        together=mean_correlation(parts[0], seasons) if parts else None,
        known=tuple(dataset.reading.read_from(series.known_columns)),
        events=tuple(_events(series, items, holidays)),
    )


def _events(series: Series, items: Items, holidays: str | None) -> Iterator[dict[str, Any]]:
    """Yield the events of each column known ahead, and the holidays, if they are rare."""
    end = int(TRAIN * len(series.times))
    if series.known is not None:
        seen = np.flatnonzero(items.before(end))
        begins = np.isin(seen, items.bounds[:-1])
        for name, column in zip(series.known_columns, series.known.T, strict=True):
            yield from _event(name, column[seen] != 0, begins)
    if holidays is not None:
        off = holiday_feature(series.times[:end], holidays)[:, 0] > 0
        yield from _event(f"public holidays of {holidays}", off, np.arange(end) == 0)


def _event(
    name: str, happens: NDArray[np.bool_], first: NDArray[np.bool_]
) -> Iterator[dict[str, Any]]:
    """Yield the event of a column, from `happens` in each row and the `first` rows of series."""
    begins = happens & (first | ~np.roll(happens, 1))
    share = happens.mean() if len(happens) else 0.0
    if 0 < share < RARE:
        yield {"name": name, "share": float(share), "count": int(begins.sum())}
