"""What a model would have forecast at past origins of a history, beside what came."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base.errors import DataError
from forecaster.datasets import reader
from forecaster.datasets.items import Items
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.questions import TOGETHER, History, Question


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

    def at(drop: int) -> History:
        """The history as it was `drop` rows before its end."""

        def ahead(which: np.ndarray) -> np.ndarray:
            assert known is not None
            rows = (items.bounds[which + 1] - drop)[:, None] + np.arange(-form.past, form.horizon)
            covariates: np.ndarray = known[np.maximum(rows, items.bounds[which][:, None])]
            return covariates

        chosen = np.flatnonzero(items.lengths - drop >= wanted)
        return History(form, steps, labels, series, items, chosen, None if known is None else ahead,
                       drop, where, "refuse", say)  # fmt: skip

    drops = range(after, longest - wanted + 1, stride)[::-1]
    tables = []
    for group in _together([at(drop) for drop in drops]):
        values, quantiles = model.forecast_quantiles(
            _joined([each.question(each.chosen) for each in group]), levels
        )
        whole = np.concatenate([values[..., None], quantiles], axis=-1)[:, :steps]
        ends = np.cumsum([len(each.chosen) for each in group])[:-1]
        targets = list(model.schema.target_positions)
        for each, own in zip(group, np.split(whole, ends), strict=True):
            tables.append(_table(each, own, targets))
    return pd.concat(tables, ignore_index=True)


def _together(histories: Sequence[History]) -> Iterator[list[History]]:
    """Histories in groups of about TOGETHER series."""
    group: list[History] = []
    for each in histories:
        group.append(each)
        if sum(len(one.chosen) for one in group) >= TOGETHER:
            yield group
            group = []
    if group:
        yield group


def _joined(questions: Sequence[Question]) -> Question:
    """Several questions as one."""
    first = questions[0]
    covariates = [each.covariates for each in questions if each.covariates is not None]
    return replace(
        first,
        values=np.concatenate([each.values for each in questions]),
        starts=pd.DatetimeIndex(np.concatenate([each.starts for each in questions])),
        covariates=np.concatenate(covariates) if covariates else None,
        static={key: [v for each in questions for v in each.static[key]] for key in first.static},
        items=[name for each in questions for name in each.items],
        rows=[count for each in questions for count in each.rows],
    )


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
