"""What a model would have forecast at past origins of a history, beside what came."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base.errors import DataError
from forecaster.datasets import reader
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.questions import TOGETHER, History, following


@dataclass(frozen=True)
class Replay:
    """Forecasts (N, steps, targets, 1 + levels) of the series `which` (N,) of a history, each from
    `drop` (N,) rows before its end, the earliest first."""

    history: History
    which: np.ndarray
    drop: np.ndarray
    forecasts: np.ndarray
    targets: list[int]

    @cached_property
    def came(self) -> np.ndarray:
        """The values that came, (N, steps, targets)."""
        ends = self.history.items.bounds[self.which + 1] - self.drop
        rows = ends[:, None] + np.arange(self.history.steps)
        came: np.ndarray = self.history.series.values[rows][..., self.targets]
        return came

    @cached_property
    def origins(self) -> np.ndarray:
        """The step of the grid of the last row that each forecast was made from, (N,)."""
        items = self.history.items
        origins: np.ndarray = (items.places + items.lengths)[self.which] - self.drop - 1
        return origins

    def table(self) -> pd.DataFrame:
        """The table of `Predictor.predict` for all origins, the earliest first.

        After the ids stands `origin`, the time of the last row that was read, and after each target
        and its quantiles what came, in columns such as "load actual".
        """
        values = np.concatenate([self.forecasts, self.came[..., None]], axis=-1)
        labels: Any = [*self.history.levels, "actual"]
        whole = replace(self.history, levels=labels)
        starts = np.flatnonzero(np.diff(self.drop, prepend=-1))
        pieces = zip(*(np.split(each, starts[1:]) for each in (self.which, self.drop, values)),
                     strict=True)  # fmt: skip
        tables = [
            _table(replace(whole, chosen=which, drop=int(drop[0])), forecast)
            for which, drop, forecast in pieces
        ]
        return pd.concat(tables, ignore_index=True)


def replay(
    model: Predictor,
    table: pd.DataFrame | str | Path,
    steps: int,
    stride: int,
    start: int = 0,
    levels: Sequence[float] = (),
    say: Callable[[str], None] = lambda _: None,
    newest: int | None = None,
) -> Replay:
    """Forecast `steps` from origins `stride` rows apart, the last one as late as is possible.

    An origin has at least `start` rows before it, and at least those that the model needs; it has
    at most `newest` rows after it, if given. Covariates known ahead are those of the history.
    Raises DataError for a history too short for one origin, and for one that cannot be read.
    """
    form, where = model.form, "the history"
    dataset = reader.history(table, form.reading, where=where)
    for sentence in dataset.said:
        say(sentence)
    series = dataset.series.select(form.columns)
    items, known = series.layout, series.known
    least = max(start, form.needs)
    after = steps if known is None else form.horizon
    if (longest := int(items.lengths.max())) < least + after:
        raise DataError(
            f"{where} has {longest} rows, but an origin needs {least} rows before it and {after} "
            "after it"
        )
    whole = History(
        form, steps, [*levels], series, items, np.arange(len(items)),
        following(series, form.horizon), after, where, "refuse", say,
    )  # fmt: skip
    most = longest - least if newest is None else min(longest - least, newest)
    drops = range(after, most + 1, stride)[::-1]
    chosen = [np.flatnonzero(items.lengths - drop >= least) for drop in drops]
    which, drop = np.concatenate(chosen), np.repeat(drops, [len(each) for each in chosen])
    parts = []
    for first in range(0, len(which), TOGETHER):
        those = slice(first, first + TOGETHER)
        values, quantiles = model.forecast_quantiles(
            whole.question(which[those], drop[those]), levels
        )
        parts.append(np.concatenate([values[..., None], quantiles], axis=-1)[:, :steps])
    return Replay(whole, which, drop, np.concatenate(parts), list(model.schema.target_positions))


def _table(history: History, values: np.ndarray) -> pd.DataFrame:
    """The table of the forecasts from one origin, and of what came, with `origin`."""
    table, items, chosen = history.table(values), history.items, history.chosen
    last = history.series.times[(items.places + items.lengths)[chosen] - history.drop - 1]
    if history.form.reading.timezone == "UTC":
        last = last.tz_localize("UTC")
    origins = last[:1] if history.form.reading.panel else last
    table.insert(len(history.form.reading.id), "origin", np.repeat(origins, history.steps))
    return history.opened(table)
