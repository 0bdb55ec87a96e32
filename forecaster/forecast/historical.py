"""What a model would have forecast at past origins of a history, beside what came."""

from collections.abc import Callable, Sequence
from dataclasses import replace
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


def replay(
    model: Predictor,
    frame: pd.DataFrame | str | Path,
    steps: int,
    stride: int,
    start: int = 0,
    levels: Sequence[float] = (),
    say: Callable[[str], None] = lambda _: None,
    newest: int | None = None,
) -> tuple[History, Answer]:
    """Forecast `steps` from origins `stride` rows apart, the last one as late as is possible.

    An origin has at least `start` rows before it, and at least those that the model needs; it has
    at most `newest` rows after it, if given. Covariates known ahead are those of the history.
    Returns the histories before all origins, the earliest first, and the answer about them. Raises
    DataError for a history too short for one origin, and for one that cannot be read.
    """
    form, where = model.form, "the history"
    dataset = reader.history(frame, form.reading, where=where)
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
    most = longest - least if newest is None else min(longest - least, newest)
    drops = range(after, most + 1, stride)[::-1]
    chosen = [np.flatnonzero(items.lengths - drop >= least) for drop in drops]
    which, drop = np.concatenate(chosen), np.repeat(drops, [len(places) for places in chosen])
    ahead = following(series, form.horizon)
    histories = History(form, steps, [*levels], series, which, ahead, drop)
    parts = []
    for first in range(0, len(which), TOGETHER):
        those = slice(first, first + TOGETHER)
        question = histories.question(which[those], drop[those])
        numbers = model.forecast_quantiles(question, levels)
        parts.append(Answer.of(question, form, numbers, levels, ()).at(levels, steps))
    return histories, concatenate(parts)


def origins(history: History) -> np.ndarray:
    """The step of the grid of the last row before each forecast."""
    items = history.items
    steps: np.ndarray = (items.places + items.lengths)[history.chosen] - history.drop - 1
    return steps


def came(history: History) -> np.ndarray:
    """The values that came after the rows of each history, (N, steps, targets)."""
    form = history.form
    rows = (history.items.bounds[history.chosen + 1] - history.drop)[:, None]
    values: np.ndarray = history.series.values[rows + np.arange(history.steps)]
    return values[..., [form.columns.index(target) for target in form.targets]]


def table(history: History, answer: Answer) -> pd.DataFrame:
    """The table of `Predictor.predict` for all origins of a replay, the earliest first.

    After the ids stands `origin`, the time of the last row that was read, and after each target
    and its quantiles what came, in columns such as "load actual".
    """
    levels: Any = [*answer.levels, "actual"]
    quantiles = np.concatenate([answer.quantiles, came(history)[..., None]], axis=-1)
    whole, reading = replace(answer, levels=levels, quantiles=quantiles), history.form.reading
    last = history.series.times[origins(history)]
    if reading.timezone == "UTC":
        last = last.tz_localize("UTC")
    bounds = [*np.flatnonzero(np.diff(history.drop, prepend=-1)).tolist(), len(last)]
    tables = []
    for first, end in pairwise(bounds):
        rows = whole[first:end].to_frame(history.where)
        stamps = last[first : first + 1 if reading.panel else end]
        rows.insert(len(reading.id), "origin", np.repeat(stamps, history.steps))
        tables.append(opened(rows, history.form))
    return pd.concat(tables, ignore_index=True)
