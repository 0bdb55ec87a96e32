"""From a request to the forecasts that answer it: the steps that all routes share.

A route defines how a request is read (the type of `body`), what job it becomes (`prepare`) and how
its forecasts are written (`write`). Admission, queue, batches, deadline and metrics are the same
for all routes and live in this module.
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
"""An answer with at least this many numbers is written in another thread."""
Work = TypeVar("Work", bound=Job)


class ForecastRoute(APIRoute):
    """A route that calls its endpoint with the request and its JSON body, validated as the type of
    the endpoint's parameter `body`.

    Where there is no model or no room, it answers 503 before it reads the body. It does not resolve
    dependencies, as FastAPI's own handler does, because that costs time and these routes have none.
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
    """The answer of the model called `name`: `prepare` turns the request into a job, and `write`
    turns its forecasts into content of the type `media`.

    Raises HttpError where a step does, and 504 past the deadline.
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
    """Count the series of a job, and for each notice code the series that have it."""
    metrics.forecasts.labels(*model).inc(len(job.inputs))
    noticed = defaultdict[str, set[int | None]](set)
    for notice in job.notices:
        noticed[notice.code].add(notice.input)
    for code, places in noticed.items():
        count = len(job.inputs) if None in places else len(places)
        metrics.notices.labels(code, *model).inc(count)


def _left_of(store: Store, request: Request) -> float:
    """The seconds left until the deadline of a request, which counts from its arrival."""
    arrived: float = request.state.arrived
    return arrived + store.settings.deadline_seconds - monotonic()


async def _result(
    work: Future[Done[Forecast]], request: Request, within: float, store: Store
) -> Done[Forecast]:
    """The result of `work`, which is cancelled when its client leaves. Raises HttpError 504 when it
    takes longer than `within` seconds."""
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
        if not left.done():  # cancelled by the server, not because the client left
            raise
        raise HttpError(CLIENT_LEFT, "the client left") from None
    finally:
        result.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    """Return when the client is gone, after its request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
