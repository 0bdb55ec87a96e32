"""From a request to the forecasts that answer it: the steps that all routes share.

A route turns its body into an `Order`: the model, the job for it, and how its forecasts are
written. Admission, reading, queue, batches, deadline and metrics are the same for all routes and
live in this module.
"""

from asyncio import CancelledError, ensure_future, timeout, wrap_future
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from time import monotonic
from typing import Any, get_type_hints

from asgi_correlation_id import correlation_id
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from forecaster_service import forecasting
from forecaster_service.batching import Done
from forecaster_service.body import parse
from forecaster_service.forecasting import Forecast, Job
from forecaster_service.http_errors import CLIENT_LEFT, HttpError, responses
from forecaster_service.loading import Served
from forecaster_service.metrics import Metrics, labels
from forecaster_service.request import ARRAYS
from forecaster_service.store import Store, store_of

PROBLEMS = responses(404, 408, 413, 415, 422, 503, 504)
JSON, CSV = "application/json", "text/csv"
TEXT: dict[str, Any] = {"content": {CSV: {"schema": {"type": "string"}}}}
"""A body or an answer in CSV, as /openapi.json describes it."""
MANY = 2**13
"""An answer with at least this many numbers is written in another thread."""


Order = tuple[Served, Job, Callable[[Job, Done[Forecast], Served, str], bytes], str]
"""What a request asks for: a job for a model, and what writes its forecasts as content of a type.
It keeps nothing of the body, whose memory is free once there is an order."""


def model_for(request: Request, name: str | None) -> Served:
    """The model called `name`, which log and metrics then show as the one that was asked."""
    served = store_of(request).get(name)
    request.state.model = served.identity
    return served


class ForecastRoute(APIRoute):
    """A route whose endpoint gets the JSON body, validated as the type of its parameter `body`, and
    the request, and returns an `Order`.

    The route does not resolve dependencies, as FastAPI's own handler does, because that costs time
    and these routes have none.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[[Any, Request], Order] = self.endpoint
        kind: TypeAdapter[Any] = TypeAdapter(get_type_hints(endpoint, include_extras=True)["body"])

        async def handle(request: Request) -> Response:
            store = store_of(request)
            try:
                return await _answer(await ordered(request, store), request, store)
            except HttpError as error:
                store.metrics.refused(error.reason)
                raise

        async def ordered(request: Request, store: Store) -> Order:
            store.admit(left(store, request))
            check_type(request, JSON)
            until = monotonic() + left(store, request)
            async with store.bodies.read(request, until) as data:
                if not data:
                    raise HttpError(400, "the body is empty: expected JSON")

                def asked() -> Order:
                    value = parse(data, store.settings)
                    return endpoint(kind.validate_python(value, context=ARRAYS), request)

                try:
                    return await store.bodies.work(len(data), until, asked)
                except ValidationError as error:
                    flaws = error.errors(include_url=False)
                    raise RequestValidationError(
                        [{**flaw, "loc": ("body", *flaw["loc"])} for flaw in flaws]
                    ) from None

        return handle


def check_type(request: Request, media: str) -> None:
    """Raise HttpError 415 unless the body is said to be uncompressed, and of the type `media`."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        detail = "compressed bodies are not accepted: send it uncompressed"
        raise HttpError(415, detail, headers={"Accept-Encoding": "identity"})
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != media:
        detail = f"expected the header Content-Type: {media}"
        raise HttpError(415, detail, headers={"Accept": media})


async def _answer(order: Order, request: Request, store: Store) -> Response:
    """Forecast an order and write it. Raises HttpError where a step does, 504 past the deadline."""
    (served, job, write, media), within = order, left(store, request)
    model = labels(served.identity)
    work = store.submit(served, job, within)
    done = await _result(work, request, within, store)
    store.keeper.note(served.forecaster, job, done, getattr(request.state, "key", None))
    store.metrics.queue.labels(*model).observe(done.queue)
    request.state.done = done
    request_id = correlation_id.get() or ""

    def written() -> tuple[Job, bytes]:
        whole, fitting = forecasting.fitted(job, done, served.forecaster)
        return whole, write(whole, fitting, served, request_id)

    size = sum(each.values.size * (1 + len(job.levels)) for each in done.results)
    whole, content = await run_in_threadpool(written) if size >= MANY else written()
    _count(whole, store.metrics, model)
    store.answered()
    headers = {"X-Forecaster-Model": served.header, "Vary": "Accept"}
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


def left(store: Store, request: Request) -> float:
    """The seconds left until the deadline of a request, which counts from its arrival."""
    arrived: float = request.state.arrived
    return arrived + store.settings.deadline_seconds - monotonic()


async def _result(
    work: Future[Done[Forecast]], request: Request, within: float, store: Store
) -> Done[Forecast]:
    """The result of `work`, which is cancelled when its client leaves. Raises HttpError 504 when it
    takes longer than `within` seconds."""
    result, left = wrap_future(work), ensure_future(_hung_up(request))
    left.add_done_callback(lambda _: result.cancel())
    try:
        async with timeout(within):
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


async def _hung_up(request: Request) -> None:
    """Return when the client is gone, after its request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
