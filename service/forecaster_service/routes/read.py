"""POST /read: a file in, a series as /predict takes it out; and what is known ahead.

POST /future writes the rows of covariates known ahead, and POST /read/future reads them filled in.
"""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from time import monotonic
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from fastapi import APIRouter, Query, Request, Response

from forecaster.base.errors import DataError, UnavailableError, UsageError
from forecaster.datasets.dataset import Items
from forecaster.datasets.reader.archive import ENCRYPTED, PACKED, rewritten
from forecaster.datasets.reader.formats import Workbook
from forecaster.datasets.reading import Reading
from forecaster.forecast import history as histories
from forecaster.forecast.future import future_rows
from forecaster.forecast.notices import ShortHistory
from forecaster_service.body import CSV, LARGE, PROBLEMS, TEXT, XLSX, check_type
from forecaster_service.http_errors import HttpError
from forecaster_service.loading import Served
from forecaster_service.request import ModelName, Name, SeriesInput
from forecaster_service.response import MOST_ITEMS, Reply
from forecaster_service.settings import Settings
from forecaster_service.store import left, store_of

MOST_CELLS = 2**23
"""The most values of a table, counting all steps between its first and its last time."""
LONGEST_LINE = 2**18
"""The most bytes of a line."""
WHERE = "the file"
PACKING = 10
"""About how many times its own bytes a workbook unpacks to, for the time that it takes."""
BINARY = {"schema": {"type": "string", "format": "binary"}}
BODY = {"content": {**TEXT["content"], XLSX: BINARY}, "required": True}
Source: TypeAlias = bytes | Workbook
"""A text, or a workbook that was measured."""
Found = TypeVar("Found")
Model = Annotated[ModelName | None, Query()]
Item = Annotated[Name | None, Query(description="The series; by default the first.")]
Ahead = Annotated[
    Literal["rows", "apart"],
    Query(description="Where covariates known ahead are: in rows after the history, or elsewhere."),
]

router = APIRouter(tags=["forecast"])


class ReadSeries(Reply):
    """One series of a file."""

    series: SeriesInput
    """The newest rows of the series, and what is known ahead, as /predict takes them."""
    items: list[str]
    """The names of the series in the file, the first 1000; empty for a model of one series."""
    rows: int
    """How many rows of the series were given."""
    notes: list[str]
    """What was done with gaps, repeated and unsorted rows, and what else is unusual in the file."""


class ReadFuture(Reply):
    """What is known ahead of one series."""

    start: str
    """The time of the first row, ISO 8601: the first step of the forecast."""
    future_covariates: dict[Name, list[float | None]]
    """As /predict takes them; null where a cell is empty."""


@router.post(
    "/read",
    operation_id="read_text",
    response_model_exclude_unset=True,
    responses=PROBLEMS,
    openapi_extra={"requestBody": BODY},
)
async def read(
    request: Request,
    model: Model = None,
    item: Item = None,
    short_history: Annotated[ShortHistory | None, Query()] = None,
    future: Ahead = "rows",
) -> ReadSeries:
    """Read a table as the model's own data were read: separators, decimal commas, stamps, columns
    by their names. The body is its text or an Excel workbook. The answer is a series for /predict;
    with `future=apart`, what is known ahead is null where no row after the history and no calendar
    gives it."""
    call = partial(_read, item=item, short=short_history, apart=future == "apart")
    return ReadSeries.model_validate(await _of_text(request, model, call))


@router.post(
    "/read/future",
    operation_id="read_future",
    responses=PROBLEMS,
    openapi_extra={"requestBody": BODY},
)
async def read_filled(request: Request, model: Model = None, item: Item = None) -> ReadFuture:
    """Read the rows that /future writes, filled in, as /read reads a history."""
    call = partial(_read_future, item=item)
    return ReadFuture.model_validate(await _of_text(request, model, call))


@router.post(
    "/future",
    operation_id="write_future",
    response_class=Response,
    responses={**PROBLEMS, 200: TEXT},
    openapi_extra={"requestBody": BODY},
)
async def write(request: Request, model: Model = None) -> Response:
    """Write the rows of the covariates known ahead of all series, to fill in: a table with a row
    for each step after the history, which is the body. Filled in is what the rows after the history
    hold, and what the calendar has always determined."""
    return Response(await _of_text(request, model, _future), media_type=CSV)


async def _of_text(
    request: Request, model: str | None, call: Callable[[Source, Served, Settings], Found]
) -> Found:
    """What `call` makes of the table in a body, within the limits of all bodies."""
    store = store_of(request)
    served = store.get(model)
    store.admit(left(store, request))
    check_type(request, CSV, XLSX)
    until = monotonic() + left(store, request)
    async with store.bodies.read(request, until) as data:

        def work() -> Found:
            source = _opened(data, served, store.settings)
            if monotonic() > until:
                raise HttpError(504, "the table was not read in time: send fewer rows")
            return call(source, served, store.settings)

        size = len(data) * (PACKING if data.startswith(PACKED) else 1)
        return await store.bodies.work(max(size, LARGE), until, work)


def _opened(data: bytes, served: Served, settings: Settings) -> Source:
    """The text of a body, or the workbook in it. Raises DataError for one beyond the limits, and
    HttpError 415 for a workbook where the service lacks the extra for it."""
    if not data.startswith((PACKED, ENCRYPTED)):
        _check_lines(data, settings)
        return data
    plain = rewritten(data, WHERE, settings.max_bodies_bytes // 8)
    book = Workbook(WHERE, partial(BytesIO, plain), served.forecaster.form.reading)
    try:
        _check_lines(book.text, settings)
    except UnavailableError as error:
        raise HttpError(415, f"{error}. Save it as CSV, or ask who runs this service.") from None
    return book


def _check_lines(text: bytes, settings: Settings) -> None:
    """Raise DataError for a text with more lines, or longer ones, than the limits allow."""
    lines = text.replace(b"\r", b"\n").count(b"\n")
    if lines > 2 * settings.max_rows:
        raise DataError(f"expected at most {settings.max_rows:,} rows")
    if max(map(len, text.replace(b"\r", b"\n").split(b"\n"))) > LONGEST_LINE:
        raise DataError(f"expected lines of at most {LONGEST_LINE:,} bytes")


def _place(items: Items, item: str | None) -> tuple[int, list[str]]:
    """The place of a series in a file, by default the first, and the names of all."""
    names = [name for name in items.names if name]
    if item is not None and item not in names:
        raise DataError(f"the file has no series '{item}'; the first is '{(names or [''])[0]}'")
    return names.index(item) if item is not None else 0, names


def _future(source: Source, served: Served, settings: Settings) -> str:
    return _rows(source, served, settings).to_csv(index=False)


def _rows(
    source: Source, served: Served, settings: Settings, only: int | None = None
) -> pd.DataFrame:
    return future_rows(
        served.forecaster.form, source,
        where=WHERE, most=MOST_CELLS, most_series=settings.max_series, only=only,
    )  # fmt: skip


def _covariates(rows: pd.DataFrame, reading: Reading) -> dict[str, list[float | None]]:
    """The covariates known ahead in the rows of one series, as /predict takes them."""
    covariates: dict[str, list[float | None]] = {}
    for name in reading.future_covariates:
        cells, parts = rows[name].tolist(), reading.read_as([name])
        words = reading.categories.get(name)
        for place, part in enumerate(parts):
            values = [cell if words is None else cell == words[place] for cell in cells]
            covariates[part] = [
                None if pd.isna(cell) else float(value)
                for cell, value in zip(cells, values, strict=True)
            ]
    return covariates


def _read_future(
    source: Source, served: Served, settings: Settings, item: str | None
) -> dict[str, Any]:
    form = served.forecaster.form
    if not form.reading.future_covariates:
        raise UsageError("this model takes no covariates known ahead")
    series = histories.rows_ahead(source, form, most=MOST_CELLS)
    items = series.layout
    place, _ = _place(items, item if series.items is not None else None)
    if (count := int(items.lengths[place])) != form.horizon:
        raise DataError(
            f"the future: expected {form.horizon} rows, one per step of the model's horizon, got "
            f"{count}"
        )
    cells = series.values[items.bounds[place] : items.bounds[place + 1]].astype(object)
    cells[cells != cells] = None  # nan
    return {
        "start": series.times[items.places[place]].isoformat(),
        "future_covariates": dict(zip(series.columns, cells.T.tolist(), strict=True)),
    }


def _read(
    source: Source,
    served: Served,
    settings: Settings,
    item: str | None,
    short: ShortHistory | None,
    apart: bool,
) -> dict[str, Any]:
    form, notes = served.forecaster.form, list[str]()
    history = histories.read(
        form, source, where=WHERE, say=notes.append, short_history=short, most=MOST_CELLS,
        apart=apart,
    )  # fmt: skip
    place, names = _place(history.items, item)
    if apart:
        history = history.observed(place)
    (series,) = history.question(np.array([place])).to_json(form)
    if apart and form.reading.future_covariates:
        rows = _rows(source, served, settings, place if form.reading.id else 0)
        series["future_covariates"] = _covariates(rows, form.reading)
    return {
        "series": series,
        "items": names[:MOST_ITEMS],
        "rows": int(history.items.lengths[place]) - history.drop,
        "notes": notes,
    }
