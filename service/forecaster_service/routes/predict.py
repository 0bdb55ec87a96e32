"""POST /predict."""

import asyncio
from asyncio import CancelledError, ensure_future, wrap_future
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Annotated, TypeVar

from asgi_correlation_id import correlation_id
from fastapi import APIRouter, Body, Request, Response

from forecaster.predict import Forecaster
from forecaster_service import forecasting
from forecaster_service.batching import Done
from forecaster_service.body import LARGE, Handler, JSONRoute, in_thread_if
from forecaster_service.forecasting import Forecast, Job
from forecaster_service.metrics import labels
from forecaster_service.problems import CLIENT_LEFT, Problem, responses
from forecaster_service.schemas import ForecastRequest, ForecastResponse, ModelIdentity
from forecaster_service.store import Store


class ForecastRoute(JSONRoute):
    """Answers 503 before the body is read, where there is no model or no room."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            request.app.state.store.admit()
            return await handler(request)

        return handle


router = APIRouter(route_class=ForecastRoute, tags=["forecast"])
PROBLEMS = responses(404, 413, 415, 422, 503, 504)
MANY = 2**13
"""From so many numbers on, an answer is written in another thread."""
Work = TypeVar("Work", bound=Job)


@router.post("/v1/predict", response_model=ForecastResponse, responses=PROBLEMS)
@router.post("/predict", response_model=ForecastResponse, responses=PROBLEMS)
async def predict(body: Annotated[ForecastRequest, Body()], request: Request) -> Response:
    """Forecast what follows each series, in its units.

    Either form is taken: one series with everything at the top, or `inputs` with many. What is
    asked at the same time runs together, which `timing` tells. A history longer than the model
    looks back is cut to its newest part, which `warnings` tells; a shorter one is refused. Columns
    may come in any order by name. null is a missing value: it is masked, and `warnings` counts it.
    What a model needs besides, GET /models tells, and its example has it.
    """
    prepare = partial(forecasting.prepare, body)
    return await answer(request, body.model, prepare, forecasting.write)


async def answer(
    request: Request,
    name: str | None,
    prepare: Callable[[Forecaster], Work],
    write: Callable[[Work, Done[Forecast], Forecaster, ModelIdentity, str], bytes],
) -> Response:
    """What the model called `name` answers: the JSON that `write` makes of the job of `prepare`.

    Whatever a request looks like, its forecast is made here: in the same queue and batches, with
    the same deadline and figures. Raises Problem where a step of it does, and 504 past the
    deadline.
    """
    store: Store = request.app.state.store
    served = store.get(name)
    request.state.model = served.identity
    large = len(await request.body()) >= LARGE
    job = await in_thread_if(large, prepare, served.forecaster)
    done = await _result(store.submit(served, job), request, store.settings.deadline_seconds)
    store.metrics.queue.labels(*labels(served.identity)).observe(done.queue)
    done = forecasting.at_levels(job, done, served.forecaster)
    large = sum(forecast.size + extra.size for forecast, extra in done.results) >= MANY
    content = await in_thread_if(
        large, write, job, done, served.forecaster, served.identity, correlation_id.get() or ""
    )
    headers = {"X-Forecaster-Model": served.header}
    return Response(content, headers=headers, media_type="application/json")


async def _result(work: Future[Done[Forecast]], request: Request, seconds: float) -> Done[Forecast]:
    """What `work` gives; it is cancelled when its client leaves or `seconds` have passed.

    Raises Problem 504 at that time.
    """
    result, left = wrap_future(work), ensure_future(_left(request))
    left.add_done_callback(lambda _: result.cancel())
    try:
        async with asyncio.timeout(seconds):
            return await result
    except TimeoutError:
        detail = f"the forecast was not made within {seconds:g} s; try again later"
        raise Problem(504, detail) from None
    except CancelledError:
        if not left.done():  # it is the server that ends this
            raise
        raise Problem(CLIENT_LEFT, "the client left") from None
    finally:
        result.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    """Returns when the client of a request that has been read is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
