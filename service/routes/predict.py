"""POST /predict."""

from asyncio import get_running_loop
from time import perf_counter
from typing import Annotated

from asgi_correlation_id import correlation_id
from fastapi import APIRouter, Body, Response
from fastapi.concurrency import run_in_threadpool

from service import forecasting
from service.body import JSONRoute
from service.deps import ReadyDep, StoreDep
from service.problems import responses
from service.schemas import ForecastRequest, ForecastResponse

router = APIRouter(route_class=JSONRoute, tags=["forecast"])
PROBLEMS = responses(404, 413, 415, 422, 503)


@router.post("/v1/predict", response_model=ForecastResponse, responses=PROBLEMS)
@router.post("/predict", response_model=ForecastResponse, responses=PROBLEMS)
async def predict(
    body: Annotated[ForecastRequest, Body()], ready: ReadyDep, store: StoreDep
) -> Response:
    """Forecast what follows each series, in its units.

    Either form is taken: one series with everything at the top, or `inputs` with many. All series
    of a request run together. A history longer than the model looks back is cut to its newest
    part, which `warnings` tells; a shorter one is refused. Columns may come in any order by name.
    """
    served = store.get(body.model)
    job = await run_in_threadpool(forecasting.prepare, body, served.forecaster)
    content = await get_running_loop().run_in_executor(
        store.device, forecasting.answer, job, served.forecaster, served.identity,
        correlation_id.get(), perf_counter(), store.settings.max_batch,
    )  # fmt: skip
    return Response(content, media_type="application/json")
