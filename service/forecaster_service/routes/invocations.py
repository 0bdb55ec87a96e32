"""POST /invocations, for clients of `mlflow models serve`."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import numpy as np
import pandas as pd
from fastapi import APIRouter, Body, Request
from pydantic_core import to_json

from forecaster.base.errors import DataError
from forecaster.forecast import questions
from forecaster.forecast.notices import refuse_left_out
from forecaster.forecast.predictor import Predictor
from forecaster_service import forecasting
from forecaster_service.answering import PROBLEMS, ForecastRoute, Order, model_for
from forecaster_service.batching import Done
from forecaster_service.forecasting import Forecast, Inputs, Job
from forecaster_service.foreign import Predictions, ScoringRequest, Split
from forecaster_service.settings import Settings
from forecaster_service.slots import Served
from forecaster_service.store import store_of

MOST_CELLS = 2**23
"""The most values of a table, counting all steps between its first and its last time."""


class TableRoute(ForecastRoute):
    rows_are_objects = True


router = APIRouter(route_class=TableRoute, tags=["mlflow"])


@router.post("/invocations", operation_id="score", response_model=Predictions, responses=PROBLEMS)
def invocations(body: Annotated[ScoringRequest, Body()], request: Request) -> Order:
    """The answer of `mlflow models serve` for the same model: a table in, a table out, and
    `notices` about what stands out in the forecast.

    The table is a history as `Predictor.predict` takes it: the time column, the id column of a
    long panel and the model's columns; null is a missing value. For a model with covariates known
    ahead, rows for the steps of its horizon follow, without other values.
    """
    served = model_for(request, None)
    history = _ask(body, store_of(request).settings, served.forecaster)
    inputs, levels = list(_inputs(history)), list(history.levels)
    job = Job(inputs, history.steps, levels, notices=[], places=len(inputs) > 1)
    return Order(served, job, partial(_write, history))


def _ask(body: ScoringRequest, settings: Settings, forecaster: Predictor) -> questions.History:
    """Read the table. Raises DataError or UsageError if it does not fit the model or the limits."""
    levels = body.params.quantile_levels
    forecaster.check_levels(levels)
    history = questions.ask(
        forecaster.form, _frame(body), body.params.horizon, levels, None, None, "the history",
        say=refuse_left_out, most=MOST_CELLS,
    )  # fmt: skip
    series = len(history.items)
    if series > settings.max_series:
        raise DataError(f"expected at most {settings.max_series:,} series, got {series:,}")
    forecasting.check_quantiles(
        series * history.steps * len(forecaster.schema.targets) * len(levels)
    )
    return history


def _inputs(history: questions.History) -> Iterator[Inputs]:
    """What the model reads of each series."""
    nothing = np.empty((history.form.past + history.form.horizon, 0))
    for part in history.questions():
        for i, name in enumerate(part.items):
            known = nothing if part.covariates is None else part.covariates[i]
            static = {attribute: values[i] for attribute, values in part.static.items()}
            start, rows = part.starts[i], part.rows[i]
            yield Inputs(name or None, part.values[i], start, known, static, rows)


def _frame(body: ScoringRequest) -> pd.DataFrame:
    """The table of a request. Raises DataError unless it is a full rectangle."""
    (table,) = body.tables
    if isinstance(table, Split):
        for number, row in enumerate(table.data):
            if len(row) != len(table.columns):
                where = f"dataframe_split.data[{number}]"
                raise DataError(f"{where}: expected {len(table.columns)} values, got {len(row)}")
        return pd.DataFrame(table.data, columns=table.columns)
    if isinstance(table, dict):
        if len({len(column) for column in table.values()}) > 1:
            raise DataError("inputs: expected the same number of values in each column")
        return pd.DataFrame(table)
    names = list(dict.fromkeys(name for row in table for name in row))
    if len(names) * len(table) > MOST_CELLS:
        raise DataError(
            f"{len(names):,} names in {len(table):,} rows are more than {MOST_CELLS:,} cells"
        )
    return pd.DataFrame(table, columns=names)


def _write(
    history: questions.History, job: Job, done: Done[Forecast], served: Served, request_id: str
) -> bytes:
    """The table of the forecast, in rows as MLflow writes them, and the notices."""
    values = [np.concatenate([f[..., None], q], axis=-1) for f, q, _ in done.results]
    table = history.opened(history.table(np.stack(values)[:, : job.steps]))
    time = served.forecaster.schema.time
    table[time] = [stamp.isoformat() for stamp in table[time]]
    answer = {"predictions": table.to_dict("records"), "notices": job.notices}
    return to_json(answer, inf_nan_mode="null")
