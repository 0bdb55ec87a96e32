"""From a request to the forecasts that answer it: the way that all routes share.

A route says how a request is read (the type of `body`), what job it is (`prepare`) and how its
forecasts are written (`write`). Admission, queue, batches, deadline and figures are the same for
all, and stand here.
"""

import asyncio
from asyncio import CancelledError, ensure_future, wrap_future
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from time import monotonic
from typing import Any, TypeVar, get_type_hints

from asgi_correlation_id import correlation_id
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from forecaster.predict import Predictor
from forecaster_service import forecasting
from forecaster_service.accept import JSON
from forecaster_service.access import pay
from forecaster_service.batching import Done
from forecaster_service.body import LARGE, in_thread_if, read
from forecaster_service.forecasting import Forecast, Job
from forecaster_service.http_errors import CLIENT_LEFT, HttpError, responses
from forecaster_service.metrics import Metrics, labels
from forecaster_service.schemas import ModelIdentity
from forecaster_service.store import Store, store_of

PROBLEMS = responses(404, 413, 415, 422, 503, 504)
MANY = 2**13
"""From so many numbers on, an answer is written in another thread."""
Work = TypeVar("Work", bound=Job)


class ForecastRoute(APIRoute):
    """A route that calls its endpoint with the JSON body, read as the type of the endpoint's
    parameter `body`, and with the request.

    It answers 503 before the body is read, where there is no model or no room. FastAPI's own
    handler also solves dependencies, which costs time: such a route has none.
    """

    rows_are_objects = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint
        kind: TypeAdapter[Any] = TypeAdapter(get_type_hints(endpoint, include_extras=True)["body"])

        async def handle(request: Request) -> Response:
            store = store_of(request)
            try:
                store.admit(_left_of(store, request))
                body = await read(
                    request, kind, store.settings, rows_are_objects=self.rows_are_objects
                )
                response: Response = await endpoint(body, request)
            except HttpError as error:
                store.metrics.refused(error.reason)
                raise
            return response

        return handle


async def answer(
    request: Request,
    name: str | None,
    prepare: Callable[[Predictor], Work],
    write: Callable[[Work, Done[Forecast], Predictor, ModelIdentity, str], bytes],
    media: str = JSON,
) -> Response:
    """What the model called `name` answers: what `write` makes of the job of `prepare`, which is
    of the type `media`.

    Raises HttpError where a step of it does, and 504 past the deadline.
    """
    store = store_of(request)
    served = store.get(name)
    request.state.model = served.identity
    large = len(await request.body()) >= LARGE
    job = await in_thread_if(large, prepare, served.forecaster)
    within = _left_of(store, request)
    work = store.submit(served, job, within)
    pay(request, len(job.inputs))
    done = await _result(work, request, within, store)
    store.metrics.queue.labels(*labels(served.identity)).observe(done.queue)
    done = forecasting.at_levels(job, done, served.forecaster)
    large = sum(forecast.size + extra.size for forecast, extra in done.results) >= MANY
    job = await in_thread_if(large, forecasting.remarked, job, done, served.forecaster)
    _count(job, store.metrics, labels(served.identity))
    content = await in_thread_if(
        large, write, job, done, served.forecaster, served.identity, correlation_id.get() or ""
    )
    headers = {"X-Forecaster-Model": served.header}
    return Response(content, headers=headers, media_type=media)


def _count(job: Job, metrics: Metrics, model: tuple[str, ...]) -> None:
    """The series of a job, and those that have a notice of each code."""
    metrics.forecasts.labels(*model).inc(len(job.inputs))
    noticed = defaultdict[str, set[int | None]](set)
    for notice in job.notices:
        noticed[notice.code].add(notice.input)
    for code, places in noticed.items():
        count = len(job.inputs) if None in places else len(places)
        metrics.notices.labels(code, *model).inc(count)


def _left_of(store: Store, request: Request) -> float:
    """The seconds until a request is to be answered, from when it came."""
    arrived: float = request.state.arrived
    return arrived + store.settings.deadline_seconds - monotonic()


async def _result(
    work: Future[Done[Forecast]], request: Request, within: float, store: Store
) -> Done[Forecast]:
    """What `work` gives; it is cancelled when its client leaves. Raises HttpError 504 when it
    has not come `within` so many seconds."""
    result, left = wrap_future(work), ensure_future(_left(request))
    left.add_done_callback(lambda _: result.cancel())
    try:
        async with asyncio.timeout(within):
            return await result
    except TimeoutError:
        seconds = store.settings.deadline_seconds
        detail = f"the forecast was not made within {seconds:g} s; try again later"
        raise HttpError(504, detail, reason="deadline") from None
    except CancelledError:
        if not left.done():  # it is the server that ends this
            raise
        raise HttpError(CLIENT_LEFT, "the client left") from None
    finally:
        result.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    """Returns when the client of a request that has been read is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
