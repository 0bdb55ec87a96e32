"""What a model would have forecast at past origins of a history, beside what came."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base.errors import DataError
from forecaster.datasets import reader
from forecaster.datasets.items import Items
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.questions import TOGETHER, History, following


def historical(
    model: Predictor,
    table: pd.DataFrame | str | Path,
    steps: int,
    stride: int,
    start: int = 0,
    levels: Sequence[float] = (),
    say: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Forecast `steps` from origins `stride` rows apart, the last one as late as is possible.

    An origin has at least `start` rows before it, and at least those that the model needs. Returns
    the table of `Predictor.predict` for all origins, the earliest first: after the ids stands
    `origin`, the time of the last row that was read, and after each target and its quantiles what
    came, in columns such as "load actual". Covariates known ahead are those of the history. Raises
    DataError for a history too short for one origin, and for one that cannot be read.
    """
    form, where = model.form, "the history"
    found = reader.history(table, form.reading, where=where)
    for sentence in found.said:
        say(sentence)
    series = found.series.select(form.columns)
    items, known = series.items or Items.single(len(series.times)), series.known
    wanted = max(start, form.needs)
    after = steps if known is None else form.horizon
    if (longest := int(items.lengths.max())) < wanted + after:
        raise DataError(
            f"{where} has {longest} rows, but an origin needs {wanted} rows before it and {after} "
            "after it"
        )
    labels: Any = [*levels, "actual"]

    whole = History(
        form, steps, labels, series, items, np.arange(len(items)), following(series, form.horizon),
        after, where, "refuse", say,
    )  # fmt: skip
    drops = range(after, longest - wanted + 1, stride)[::-1]
    chosen = [np.flatnonzero(items.lengths - drop >= wanted) for drop in drops]
    ends = np.cumsum([len(which) for which in chosen])
    which, drop = np.concatenate(chosen), np.repeat(drops, np.diff(ends, prepend=0))
    parts = []
    for first in range(0, len(which), TOGETHER):
        those = slice(first, first + TOGETHER)
        values, quantiles = model.forecast_quantiles(
            whole.question(which[those], drop[those]), levels
        )
        parts.append(np.concatenate([values[..., None], quantiles], axis=-1)[:, :steps])
    targets = list(model.schema.target_positions)
    tables = [
        _table(replace(whole, chosen=which, drop=drop), own, targets)
        for which, drop, own in zip(
            chosen, drops, np.split(np.concatenate(parts), ends[:-1]), strict=True
        )
    ]
    return pd.concat(tables, ignore_index=True)


def _table(history: History, values: np.ndarray, targets: list[int]) -> pd.DataFrame:
    """The table of the forecasts from one origin, with `origin` and what came."""
    series, items, chosen = history.series, history.items, history.chosen
    ends = items.bounds[chosen + 1] - history.drop
    rows = ends[:, None] + np.arange(history.steps)
    came = series.values[rows][..., targets, None]
    table = history.table(np.concatenate([values, came], axis=-1))
    last = series.times[(items.places + items.lengths)[chosen] - history.drop - 1]
    if history.form.reading.timezone == "UTC":
        last = last.tz_localize("UTC")
    origins = last[:1] if history.form.reading.panel else last
    table.insert(len(history.form.reading.id), "origin", np.repeat(origins, history.steps))
    return history.opened(table)
