"""What a model would have forecast at past origins of a history, beside what came."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base.errors import DataError
from forecaster.datasets import reader
from forecaster.forecast.answer import Answer, opened
from forecaster.forecast.history import TOGETHER, History, following
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import concatenate


@dataclass(frozen=True)
class Replay:
    """The `answer` from N origins of the series `which` (N,) of a history, each `drop` (N,) rows
    before its end, the earliest first, and the values that `came` (N, steps, targets)."""

    history: History
    which: np.ndarray
    drop: np.ndarray
    answer: Answer
    came: np.ndarray

    @property
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
        levels: Any = [*self.answer.levels, "actual"]
        quantiles = np.concatenate([self.answer.quantiles, self.came[..., None]], axis=-1)
        whole = replace(self.answer, levels=levels, quantiles=quantiles)
        bounds = [*np.flatnonzero(np.diff(self.drop, prepend=-1)).tolist(), len(self.drop)]
        tables = [self._table(whole, slice(*ends)) for ends in pairwise(bounds)]
        return pd.concat(tables, ignore_index=True)

    def _table(self, whole: Answer, part: slice) -> pd.DataFrame:
        """The table of the forecasts from one origin, and of what came, with `origin`."""
        form, steps = self.history.form, self.history.steps
        table = whole[part].to_frame(self.history.where)
        last = self.history.series.times[self.origins[part]]
        if form.reading.timezone == "UTC":
            last = last.tz_localize("UTC")
        origins = last[:1] if form.reading.panel else last
        table.insert(len(form.reading.id), "origin", np.repeat(origins, steps))
        return opened(table, form)


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
        form,
        steps,
        [*levels],
        series,
        np.arange(len(items)),
        following(series, form.horizon),
        after,
    )
    most = longest - least if newest is None else min(longest - least, newest)
    drops = range(after, most + 1, stride)[::-1]
    chosen = [np.flatnonzero(items.lengths - drop >= least) for drop in drops]
    which, drop = np.concatenate(chosen), np.repeat(drops, [len(places) for places in chosen])
    parts = []
    for first in range(0, len(which), TOGETHER):
        those = slice(first, first + TOGETHER)
        question = whole.question(which[those], drop[those])
        numbers = model.forecast_quantiles(question, levels)
        parts.append(Answer.of(question, form, numbers, levels, ()).at(levels, steps))
    rows = (items.bounds[which + 1] - drop)[:, None] + np.arange(steps)
    came = series.values[rows][..., list(model.schema.target_positions)]
    return Replay(whole, which, drop, concatenate(parts), came)
