"""POST /predict: from the bytes of a request to those of its answer."""

from asyncio import CancelledError, ensure_future, timeout, wrap_future
from collections import defaultdict
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Annotated, Any

from asgi_correlation_id import correlation_id
from fastapi import APIRouter, Body, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from forecaster.base.errors import UsageError
from forecaster.forecast import unusual
from forecaster.forecast.answer import Answer
from forecaster.forecast.paths import windows_of
from forecaster.forecast.predictor import joined
from forecaster.forecast.question import Question
from forecaster_service.batching import Submission
from forecaster_service.body import CSV, JSON, PROBLEMS, TEXT, check_type, parse
from forecaster_service.http_errors import CLIENT_LEFT, HttpError
from forecaster_service.loading import Served
from forecaster_service.metrics import Metrics, labels
from forecaster_service.request import ARRAYS, ForecastRequest, FullRequest
from forecaster_service.response import ForecastResponse
from forecaster_service.store import Store, left, store_of

ANSWERS: dict[int | str, dict[str, Any]] = {**PROBLEMS, 200: TEXT}
BODY: TypeAdapter[Any] = TypeAdapter(ForecastRequest)
MOST_SUMMED = 2**26
"""The most errors that the totals of one answer sum: half a second."""
MANY = 2**13
"""An answer with at least this many numbers is written in another thread."""
MOST_NUMBERS = 5_000_000
"""The most quantiles and values of paths in one answer: about 100 MB of JSON."""


async def _handle(request: Request) -> Response:
    """Read a request, queue its question, wait, and write its answer."""
    store = store_of(request)
    try:
        served, question, apart = await _read(request, store)
        within = left(store, request)
        work = store.submit(served, question, within)
        answer = await _result(work, request, within, store)
    except HttpError as error:
        store.metrics.refused(error.reason)
        raise
    model, forecaster = labels(served.identity), served.forecaster
    store.keeper.note(forecaster, question, answer, getattr(request.state, "key", None))
    store.metrics.queue.labels(*model).observe(work.queue)
    request.state.work = work
    kind = media(request)
    about = {"id": correlation_id.get() or "", "model": served.identity}
    timing = {
        "queue_ms": round(work.queue * 1e3, 3),
        "inference_ms": round(work.inference * 1e3, 3),
        "batch_size": work.batch,
    }

    def written() -> tuple[Answer, bytes]:
        notices = unusual.of_all(forecaster, question.levels)
        shown = joined(forecaster, question, answer)
        shown = shown.at(question.levels, question.steps, notices)
        if kind == CSV:
            return shown, shown.to_csv().encode()
        document = {**about, **shown.to_json(apart), "timing": timing}
        return shown, to_json(document, inf_nan_mode="null")

    size = answer.forecasts.size * (1 + len(question.levels) + question.samples)
    slow = size >= MANY or question.joint
    shown, content = await run_in_threadpool(written) if slow else written()
    _count(shown, store.metrics, model)
    store.answered()
    headers = {"X-Forecaster-Model": served.header, "Vary": "Accept"}
    return Response(content, headers=headers, media_type=kind)


def media(request: Request) -> str:
    """The kind of answer that a client accepts first."""
    accepted, _, _ = request.headers.get("accept", "").partition(",")
    return CSV if accepted.partition(";")[0].strip().lower() == CSV else JSON


async def _read(request: Request, store: Store) -> tuple[Served, Question, bool]:
    """The model that is asked, the question, and whether its series stand apart from the
    parameters. Nothing of the body is left, so that its memory is free."""
    store.admit(left(store, request))
    check_type(request, JSON)
    until = monotonic() + left(store, request)
    async with store.bodies.read(request, until) as data:
        if not data:
            raise HttpError(400, "the body is empty: expected JSON")

        def read() -> tuple[Served, Question, bool]:
            body = BODY.validate_python(parse(data, store.settings), context=ARRAYS)
            served = store.get(body.model)
            request.state.model = served.identity  # for log and metrics
            _check_size(body, served)
            apart, inputs = isinstance(body, FullRequest), [vars(series) for series in body.inputs]
            parameters, model = vars(body.parameters), served.forecaster
            question = Question.from_json(inputs, parameters, model, apart)
            if question.joint and media(request) == CSV:
                raise UsageError("paths and totals are in JSON: expected Accept: application/json")
            return served, question, apart

        try:
            return await store.bodies.work(len(data), until, read)
        except ValidationError as error:
            flaws = error.errors(include_url=False)
            raise RequestValidationError(
                [{**flaw, "loc": ("body", *flaw["loc"])} for flaw in flaws]
            ) from None


def _check_size(body: ForecastRequest, served: Served) -> None:
    """Raise UsageError for an answer that would be too large."""
    parameters, model = body.parameters, served.forecaster
    steps = parameters.prediction_length or model.form.horizon
    lines, targets = len({*parameters.quantile_levels}), len(model.schema.targets)
    lines += parameters.samples or 0
    if (numbers := len(body.inputs) * steps * targets * lines) > MOST_NUMBERS:
        raise UsageError(
            f"expected at most {MOST_NUMBERS:,} quantiles and values of paths in one answer, over "
            f"all series, steps and columns, got {numbers:,}: ask for fewer levels, samples, steps "
            "or series"
        )
    errors = len(body.inputs) * steps * targets * windows_of(model.facts.intervals)
    if (parameters.total or parameters.by) and errors > MOST_SUMMED:
        raise UsageError(
            f"expected totals of at most {MOST_SUMMED:,} errors in one answer, got {errors:,}: ask "
            "for fewer steps or series"
        )


def _count(answer: Answer, metrics: Metrics, model: tuple[str, ...]) -> None:
    """Count the series of an answer, and for each notice code the series that have it."""
    metrics.forecasts.labels(*model).inc(len(answer))
    noticed = defaultdict[str, set[int | None]](set)
    for notice in answer.notices:
        noticed[notice.code].add(notice.place)
    for code, places in noticed.items():
        count = len(answer) if None in places else len(places)
        metrics.notices.labels(code, *model).inc(count)


async def _result(work: Submission, request: Request, within: float, store: Store) -> Answer:
    """The answer of `work`, which is cancelled when its client leaves. Raises HttpError 504 when it
    takes longer than `within` seconds."""
    result, gone = wrap_future(work), ensure_future(_hung_up(request))
    gone.add_done_callback(lambda _: result.cancel())
    try:
        async with timeout(within):
            return await result
    except TimeoutError:
        seconds = store.settings.deadline_seconds
        detail = f"the forecast was not made within {seconds:g} s; try again later"
        raise HttpError(504, detail, reason="deadline") from None
    except CancelledError:
        if not gone.done():  # cancelled by the server, not because the client left
            raise
        raise HttpError(CLIENT_LEFT, "the client left") from None
    finally:
        result.cancel()
        gone.cancel()


async def _hung_up(request: Request) -> None:
    """Return when the client is gone, after its request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class ForecastRoute(APIRoute):
    """A route that answers with forecasts; its endpoint is there for /openapi.json.

    The route does not resolve dependencies, as FastAPI's own handler does, because that costs time
    and these routes have none.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return _handle


router = APIRouter(route_class=ForecastRoute, tags=["forecast"])


@router.post(
    "/v1/predict", operation_id="predict_v1", response_model=ForecastResponse, responses=ANSWERS
)
@router.post("/predict", operation_id="predict", response_model=ForecastResponse, responses=ANSWERS)
def predict(body: Annotated[ForecastRequest, Body()]) -> None:
    """Forecast what follows each series, in its units.

    The body has one of two forms: one series with everything at the top, or `inputs` with many.
    Requests that arrive at the same time run together, as `timing` shows. A history longer than the
    look-back of the model is cut to its newest part, with a sentence in `warnings`. A history
    shorter than the model needs is refused or forecast by those parts of the model that need less,
    as `short_history` says; a new series of a panel may have any number of rows. With `columns`,
    columns may come in any order. null is a missing value: it is masked, and `warnings` counts it.
    GET /models shows what else a model needs, and the model's example contains it. With Accept:
    text/csv the answer is a table.
    """
