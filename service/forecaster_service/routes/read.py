"""POST /read: the text of a file in, a series as /predict takes it out."""

from functools import partial
from time import monotonic
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request

from forecaster.base.errors import DataError
from forecaster.client import input_of
from forecaster.forecast import questions
from forecaster.forecast.notices import ShortHistory
from forecaster_service.answering import PROBLEMS
from forecaster_service.body import LARGE
from forecaster_service.http_errors import HttpError
from forecaster_service.routes.invocations import MOST_CELLS
from forecaster_service.schemas import MOST_ITEMS, Answer, ModelName, Name, SeriesInput
from forecaster_service.settings import Settings
from forecaster_service.slots import Served
from forecaster_service.store import store_of

CSV = "text/csv"
LONGEST_LINE = 2**18
"""The most bytes of a line."""
BODY = {"content": {CSV: {"schema": {"type": "string"}}}, "required": True}

router = APIRouter(tags=["forecast"])


class ReadSeries(Answer):
    """One series of a file."""

    series: SeriesInput
    """The newest rows of the series, and what is known ahead, as /predict takes them."""
    items: list[str]
    """The names of the series in the file, the first 1000; empty for a model of one series."""
    rows: int
    """How many rows of the series were given."""
    notes: list[str]
    """What was done with gaps, repeated and unsorted rows, and what else is unusual in the file."""


@router.post(
    "/read",
    operation_id="read_text",
    response_model_exclude_unset=True,
    responses=PROBLEMS,
    openapi_extra={"requestBody": BODY},
)
async def read(
    request: Request,
    model: Annotated[ModelName | None, Query()] = None,
    item: Annotated[Name | None, Query(description="The series; by default the first.")] = None,
    short_history: Annotated[ShortHistory, Query()] = "refuse",
) -> ReadSeries:
    """Read a table as the model's own data were read: separators, decimal commas, stamps, columns
    by their names. The body is its text. The answer is a series for /predict."""
    store = store_of(request)
    served = store.get(model)
    until = request.state.arrived + store.settings.deadline_seconds
    store.admit(until - monotonic())
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != CSV:
        raise HttpError(415, f"expected the header Content-Type: {CSV}")
    async with store.bodies.read(request, until) as text:
        call = partial(_read, text, served, store.settings, item, short_history)
        found: dict[str, Any] = await store.bodies.work(max(len(text), LARGE), until, call)
    return ReadSeries.model_validate(found)


def _read(
    text: bytes, served: Served, settings: Settings, item: str | None, short: ShortHistory
) -> dict[str, Any]:
    """Raises DataError or UsageError for a text that does not fit the model or the limits."""
    lines = text.replace(b"\r", b"\n").count(b"\n")
    if lines > 2 * settings.max_rows:
        raise DataError(f"expected at most {settings.max_rows:,} rows")
    if max(map(len, text.replace(b"\r", b"\n").split(b"\n"))) > LONGEST_LINE:
        raise DataError(f"expected lines of at most {LONGEST_LINE:,} bytes")
    form, notes = served.forecaster.form, list[str]()
    history = questions.ask(
        form, text, None, (), None, None, "the file", notes.append, short, most=MOST_CELLS
    )
    names = [name for name in history.items.names if name]
    if item is not None and item not in names:
        raise DataError(f"the file has no series '{item}'; the first is '{(names or [''])[0]}'")
    place = names.index(item) if item is not None else 0
    card = served.card.model_dump()
    known = form.reading.read_as(card["future_covariates"])
    question = history.question(np.array([place]))
    return {
        "series": input_of(question, 0, card, known),
        "items": names[:MOST_ITEMS],
        "rows": int(history.items.lengths[place]) - history.drop,
        "notes": notes,
    }
