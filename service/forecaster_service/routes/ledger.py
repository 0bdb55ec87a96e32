"""After the forecast: GET /models/NAME/live says how good it was, POST /actuals what came."""

from typing import Annotated, Any

import numpy as np
import pandas as pd
from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from forecaster.forecast import kept
from forecaster_service import forecasting
from forecaster_service.answering import PROBLEMS, BodyRoute
from forecaster_service.http_errors import HttpError, busy, invalid, responses
from forecaster_service.keeping import SECONDS
from forecaster_service.routes.models import Name
from forecaster_service.schemas import Answer, ModelName, SeriesValues, Strict
from forecaster_service.slots import Served
from forecaster_service.store import Store, store_of

NO_LEDGER = "this service keeps no ledger: FORECASTER_LEDGER names its folder"


class ActualsRequest(Strict):
    """The values that came, of one or many series."""

    inputs: Annotated[list[SeriesValues], Field(fail_fast=True, min_length=1)]
    model: ModelName | None = None
    """A name that GET /models lists; by default the first model."""


class Kept(Answer):
    """What was taken over."""

    values: int
    """How many values, without those that are missing."""


class Live(Answer):
    """How good the forecasts of a model were."""

    looked: str | None
    """When this was found, ISO 8601; null if nothing was scored yet."""
    scored: int
    """The forecast steps whose values came, of the newest that are looked at."""
    waiting: int
    """Those that wait for theirs."""
    strange: int
    """Those that do not count: their newest value is none that came."""
    test_scaled: float | None
    """The mean absolute error on the test split, in standard deviations of each series."""
    periods: list[dict[str, Any]]
    """For the last day, week and month of steps, and all: how many, the mean absolute error in
    units and scaled, the ratio to the seasonal naive forecast, the bias, and the share of values in
    each band."""
    by: dict[str, list[dict[str, Any]]]
    """The same for each series, target and step ahead."""
    alarms: list[dict[str, Any]]
    """What is watched, the evidence that it got worse, and since which origin that is an alarm."""


class ActualsRoute(BodyRoute):
    """A route that only those may use who may say which values came."""

    def admit(self, request: Request, store: Store) -> None:
        if store.keeper.ledger is None:
            raise HttpError(404, NO_LEDGER)
        if not store.keeper.believes(getattr(request.state, "key", None)):
            raise HttpError(403, "this key may not say what came: see FORECASTER_ACTUALS_KEYS")
        super().admit(request, store)

    async def answer(self, made: Kept, request: Request, store: Store) -> Response:
        return JSONResponse(made.model_dump(), 202)


router = APIRouter(tags=["after the forecast"])
writing = APIRouter(route_class=ActualsRoute, tags=["after the forecast"])


@router.get("/models/{name:path}/live", operation_id="get_live", responses=responses(404, 422, 503))
async def live(request: Request, name: Name) -> Live:
    """How good the forecasts of a model were, by the values that came since."""
    store = store_of(request)
    served = store.get(name)
    if store.keeper.ledger is None:
        raise HttpError(404, NO_LEDGER)
    found = store.keeper.found(served.forecaster)
    nothing = {"looked": None, "scored": 0, "waiting": 0, "strange": 0, "test_scaled": None}
    return Live.model_validate(found or {**nothing, "periods": [], "by": {}, "alarms": []})


@writing.post(
    "/actuals",
    operation_id="post_actuals",
    status_code=202,
    responses={**PROBLEMS, **responses(403)},
)
def actuals(body: Annotated[ActualsRequest, Body()], request: Request) -> Kept:
    """Say which values came. Only an API key whose name is in FORECASTER_ACTUALS_KEYS may."""
    store = store_of(request)
    served, flaws = store.get(body.model), []
    parts = []
    for place, series in enumerate(body.inputs):
        try:
            parts.append(_rows(series, served))
        except forecasting.RefusedError as refused:
            flaws.append(refused.flaw(("inputs", place)))
    if flaws:
        raise invalid(flaws)
    rows = pd.concat(parts, ignore_index=True)
    if not store.keeper.came(rows):
        raise busy("too many values wait to be written", "ledger", SECONDS)
    return Kept(values=len(rows))


def _rows(series: SeriesValues, served: Served) -> pd.DataFrame:
    """Raises RefusedError for values that do not fit the model."""
    schema = served.forecaster.schema
    columns = series.columns or list(schema.targets)
    forecasting.check_names("columns", columns, [], schema.columns)
    rows: Any = (
        series.target if forecasting.in_rows(series.target) else [[v] for v in series.target]
    )
    if {len(row) for row in rows} != {len(columns)}:
        raise forecasting.RefusedError(
            ("target",), f"expected {len(columns)} columns in every row", "column_count"
        )
    values = np.array(rows, dtype=np.float64)
    start, _ = forecasting.times(series.start, served.forecaster.bundle.past, served.forecaster)
    own = [columns.index(target) for target in schema.targets if target in columns]
    times = pd.date_range(start, periods=len(values), freq=schema.freq).to_numpy("M8[us]")
    targets = [columns[place] for place in own]
    return kept.came([series.item_id or ""], targets, times[None], values[None][..., own])
