"""The rows of covariates known ahead that a forecast needs, for the user to fill in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import quoted
from forecaster.datasets import reader
from forecaster.datasets.calendar import future_times
from forecaster.datasets.dataset import Items, Series, id_parts
from forecaster.datasets.reader.formats import Format
from forecaster.forecast.question import Form

CYCLES: tuple[tuple[str, ...], ...] = (
    (),
    ("time of day",),
    ("weekday",),
    ("weekday", "time of day"),
    ("month",),
    ("month", "day"),
    ("month", "day", "time of day"),
)
"""The cycles of the calendar that may determine a covariate, the simplest first; the empty one
stands for a covariate that never changes."""


def future_rows(
    form: Form,
    history: pd.DataFrame | str | Path | bytes | Format,
    *,
    where: str = "the history",
    say: Callable[[str], None] = lambda _: None,
    most: int | None = None,
    most_series: int | None = None,
    only: int | None = None,
) -> pd.DataFrame:
    """The rows of the horizon: ids, time and the covariates known ahead of a model.

    There is a row for each step after the last one with a value of a target, for each series, or
    for the one at the place `only`.
    A covariate has a value where the history goes on with rows that have it, or where the calendar
    has always determined it (`CYCLES`, each position seen twice or more); all other cells are
    missing. `say` gets sentences on what is filled and what is not. Raises UsageError for a model
    without covariates known ahead, DataError for more than `most` values between the first and the
    last stamp, or more than `most_series` series.
    """
    reading = form.reading
    names = reading.future_covariates
    if not names:
        raise UsageError(
            "this model takes no covariates known ahead: its forecast needs no file of the future"
        )
    columns = [*reading.targets, *reading.past_covariates]
    # as past covariates they may have gaps, and the rows after the history end nothing
    loose = replace(
        reading, targets=tuple(columns), past_covariates=names, future_covariates=(), panel=False
    )
    series = reader.history(history, loose, where=where, most=most).series
    items = series.layout
    chosen = range(len(items)) if only is None else [only]
    if most_series is not None and len(chosen) > most_series:
        raise DataError(f"{where}: expected at most {most_series:,} series, got {len(items):,}")
    parts = reading.read_as(names)
    values, known = np.split(series.values, [series.values.shape[1] - len(parts)], axis=1)
    frames = [
        _block(series, items, item, ~np.isnan(values).all(axis=1), known, form.horizon)
        for item in chosen
    ]
    times = pd.DatetimeIndex(np.concatenate([stamps for stamps, _ in frames]))
    cells = np.concatenate([block for _, block in frames])
    stamps = series.times[items.steps]
    owners = [np.repeat(np.arange(len(items)), items.lengths), np.repeat(chosen, form.horizon)]
    for place in range(len(parts)):
        if np.isnan(cells[:, place]).any():
            past = _keyed(owners[0], stamps, known[:, place])
            ahead = _keyed(owners[1], times, cells[:, place])
            cells[:, place] = _determined(past, ahead)
    table = pd.DataFrame(index=range(len(times)))
    labels = [id_parts(items.names[item], len(reading.id)) for item in chosen]
    for place, column in enumerate(reading.id):
        table[column] = np.repeat([label[place] for label in labels], form.horizon)
    table[str(reading.time)] = times.tz_localize("UTC") if reading.timezone == "UTC" else times
    for name in names:
        numbers = cells[:, [parts.index(part) for part in reading.read_as([name])]]
        words = reading.categories.get(name)
        table[name] = numbers if words is None else _words(numbers, words)
    _tell(table, names, say)
    return table


def _block(
    series: Series,
    items: Items,
    item: int,
    there: np.ndarray,
    known: np.ndarray,
    horizon: int,
) -> tuple[pd.DatetimeIndex, np.ndarray]:
    """The stamps of the horizon of an item, and what its rows after the history hold of it."""
    rows = slice(items.bounds[item], items.bounds[item + 1])
    observed = np.flatnonzero(there[rows])
    last = int(observed[-1]) if len(observed) else -1
    cells = np.full((horizon, known.shape[1]), np.nan)
    block = known[rows][last + 1 : last + 1 + horizon]
    cells[: len(block)] = block
    begin = series.times[int(items.places[item]) + max(last, 0)]
    times = future_times(begin, horizon, series.freq)
    return (times if last >= 0 else times[:-1].insert(0, begin)), cells


def _keyed(owner: np.ndarray, times: pd.DatetimeIndex, cells: np.ndarray) -> pd.DataFrame:
    """A covariate (N,) beside the positions of its rows in the cycles of the calendar."""
    return pd.DataFrame(
        {
            "series": owner,
            "time of day": times.hour * 60 + times.minute,
            "weekday": times.day_of_week,
            "month": times.month,
            "day": times.day,
            "value": cells,
        }
    )


def _determined(past: pd.DataFrame, ahead: pd.DataFrame) -> np.ndarray:
    """The covariate `ahead` with values where the simplest cycle that fits the `past` has them."""
    seen, filled = past.dropna(subset=["value"]), ahead["value"]
    for cycle in CYCLES:
        by = ["series", *cycle]
        groups = seen.groupby(by)["value"].agg(["min", "max", "size"])
        fits = (groups["min"] == groups["max"]) & (groups["size"] > 1)
        fits = fits[fits.groupby("series").transform("all")]
        value = groups["min"].reindex(fits.index).rename("filled in")
        filled = filled.fillna(ahead.join(value, on=by)["filled in"])
    return filled.to_numpy(dtype=float)


def _words(flags: np.ndarray, words: Sequence[str]) -> list[Any]:
    """Words from their indicators (N, words); None where they are missing."""
    return [
        None if np.isnan(row).any() or not row.any() else words[int(row.argmax())] for row in flags
    ]


def _tell(table: pd.DataFrame, names: Sequence[str], say: Callable[[str], None]) -> None:
    empty = {name: int(table[name].isna().sum()) for name in names}
    if full := [name for name in names if not empty[name]]:
        say(f"Filled from the file or the calendar: {quoted(full)}; change what will be different.")
    if left := [f"'{name}' ({count:,} rows)" for name, count in empty.items() if count]:
        say(f"To fill in: {', '.join(left)}.")
