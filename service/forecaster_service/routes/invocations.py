"""POST /invocations, for clients of `mlflow models serve`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from fastapi import APIRouter, Body, Request
from pydantic_core import to_json

from forecaster import frames
from forecaster.errors import ForecasterError
from forecaster.predict import Predictor
from forecaster_service.answering import PROBLEMS, ForecastRoute, Order, model_for
from forecaster_service.batching import Done
from forecaster_service.forecasting import MOST_QUANTILES, Forecast, Inputs, Job
from forecaster_service.foreign import (
    SCORING,
    Predictions,
    Scoring,
    ScoringRequest,
    SplitScoring,
)
from forecaster_service.http_errors import Flaw, HttpError, Location, invalid
from forecaster_service.schemas import ModelIdentity
from forecaster_service.settings import Settings
from forecaster_service.store import store_of

MOST_CELLS = 2**23
"""The most values of a table, counting all steps between its first and its last time."""
MOST_WORDS = 1000
"""The most characters of an error message about a table."""


class TableRoute(ForecastRoute):
    rows_are_objects = True


@dataclass(frozen=True)
class Asked(Job):
    """A job, and the table that was sent with it."""

    question: frames.Question


router = APIRouter(route_class=TableRoute, tags=["mlflow"])


@router.post("/invocations", operation_id="score", response_model=Predictions, responses=PROBLEMS)
def invocations(body: Annotated[ScoringRequest, Body()], request: Request) -> Order[Asked]:
    """The answer of `mlflow models serve` for the same model: a table in, a table out, and
    `notices` about what stands out in the forecast.

    The table is a history as `Predictor.predict` takes it: the time column, the id column of a
    long panel and the model's columns; null is a missing value. For a model with covariates known
    ahead, rows for the steps of its horizon follow, without other values.
    """
    served = model_for(request, None)
    job = _prepare(body, store_of(request).settings, served.forecaster)
    return Order(served, job, _write)


def _prepare(body: Scoring, settings: Settings, forecaster: Predictor) -> Asked:
    """Read the table. Raises HttpError 422 if it does not fit the model or the limits."""
    horizon, levels = body.params.horizon, body.params.quantile_levels
    try:
        forecaster.check_levels(levels)
        question = frames.ask(
            forecaster.form, _frame(body), horizon, levels, None, None, "the history",
            most=MOST_CELLS,
        )  # fmt: skip
        targets = len(forecaster.schema.targets)
        series, numbers = len(question.items), question.steps * targets * len(levels)
        if series > settings.max_series:
            raise HttpError(422, f"expected at most {settings.max_series:,} series, got {series:,}")
        if series * numbers > MOST_QUANTILES:
            raise HttpError(
                422,
                f"expected at most {MOST_QUANTILES:,} quantiles in one answer, got "
                f"{series * numbers:,}: ask for fewer levels, steps or series",
            )
        inputs = list(_inputs(question))
    except ForecasterError as error:
        detail = str(error)  # may contain long names from the table
        more = " ..." if len(detail) > MOST_WORDS else ""
        raise HttpError(422, detail[:MOST_WORDS] + more) from None
    return Asked(inputs, [], question.steps, list(question.levels), [], series > 1, question)


def _inputs(question: frames.Question) -> Iterator[Inputs]:
    """What the model reads of each series."""
    nothing = np.empty((question.form.past + question.form.horizon, 0))
    for part in question.histories():
        for i, name in enumerate(part.items):
            known = nothing if part.covariates is None else part.covariates[i]
            static = {attribute: values[i] for attribute, values in part.static.items()}
            start, rows = part.starts[i], part.rows[i]
            yield Inputs(name or None, part.values[i], start, known, static, rows)


def _frame(body: Scoring) -> pd.DataFrame:
    """The table of a request. Raises HttpError 422 unless it is a full rectangle."""
    if isinstance(body, SplitScoring):
        columns, rows = body.dataframe_split.columns, body.dataframe_split.data
        for number, row in enumerate(rows):
            if len(row) != len(columns):
                message = f"row {number + 1}: expected {len(columns)} values, got {len(row)}"
                raise _ragged(("dataframe_split", "data", number), message)
        return pd.DataFrame(rows, columns=columns)
    table: Any = next(getattr(body, key) for key, kind in SCORING.items() if type(body) is kind)
    if isinstance(table, dict):
        if len({len(column) for column in table.values()}) > 1:
            raise _ragged(("inputs",), "expected the same number of values in each column")
        return pd.DataFrame(table)
    names = list(dict.fromkeys(name for row in table for name in row))
    if len(names) * len(table) > MOST_CELLS:
        message = f"{len(names):,} names in {len(table):,} rows are more than {MOST_CELLS:,} cells"
        raise HttpError(422, message)
    return pd.DataFrame(table, columns=names)


def _ragged(location: Location, message: str) -> HttpError:
    return invalid([Flaw(loc=list(location), msg=message, type="ragged")])


def _write(
    job: Asked, done: Done[Forecast], forecaster: Predictor, model: ModelIdentity, request_id: str
) -> bytes:
    """The table of the forecast, in rows as MLflow writes them, and the notices."""
    values = [np.concatenate([forecast[..., None], q], axis=-1) for forecast, q in done.results]
    table = job.question.table(np.stack(values)[:, : job.steps])
    time = forecaster.schema.time
    table[time] = [stamp.isoformat() for stamp in table[time]]
    notices = [notice.model_dump() for notice in job.notices]
    return to_json({"predictions": table.to_dict("records"), "notices": notices})
