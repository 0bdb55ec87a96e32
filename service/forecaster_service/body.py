"""Read the body of a request: JSON in UTF-8 only, with bounded work."""

import json
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from forecaster_service.http_errors import CLIENT_LEFT, Flaw, HttpError, invalid
from forecaster_service.schemas import ARRAYS, MOST_COLUMNS
from forecaster_service.settings import Settings

LARGE = 2**16
"""A body of at least this many bytes is read in another thread."""
ROWS = ("target", "series", "past_covariates", "future_covariates")
"""The fields of a series that are lists with an entry per step, or have them by name."""
P = ParamSpec("P")
T = TypeVar("T")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?')


def parse(data: bytes, settings: Settings, *, rows_are_objects: bool = False) -> Any:
    """The JSON value of a body. With `rows_are_objects`, objects do not count as series.

    Raises HttpError: 400 for a body that is not JSON or has a duplicate key, 422 for more than the
    settings allow. NaN and Infinity are read, so that the error can show where they are.
    """
    # Parsing is expensive, so the limits are first checked by counting bytes. A series is one
    # object plus up to three for its covariates, and a row is a list.
    if not rows_are_objects and data.count(b"{") > 4 * settings.max_series + 2:
        raise _too_many("series", settings.max_series)
    if max(map(data.count, (b"{", b"["))) > settings.max_rows + 4 * settings.max_series:
        raise _too_many("rows", settings.max_rows)
    if data.count(b'"') > 2 * settings.max_rows:
        raise _too_many("strings", settings.max_rows)
    keys, most = 0, 100 * settings.max_series + MOST_COLUMNS
    for string in _STRING.finditer(data):
        keys += string[1] is not None
        if keys > most:
            raise _too_many("keys", most)
    try:
        value = from_json(data)
    except ValueError as error:  # the message has line and column, and quotes nothing of the body
        raise HttpError(400, f"the body is not JSON in UTF-8: {error}") from None
    inputs = value.get("inputs") if isinstance(value, dict) and not rows_are_objects else None
    if isinstance(inputs, list) and len(inputs) > settings.max_series:
        raise _too_many("series", settings.max_series)
    if not rows_are_objects and _rows(value) > settings.max_rows:
        raise _too_many("rows", settings.max_rows)
    if keys != _keys(value):
        json.loads(data, object_pairs_hook=_distinct)
    return value


def _too_many(what: str, most: int) -> HttpError:
    message = f"expected at most {most:,} {what} in a request"
    return invalid([Flaw(loc=[], msg=message, type=f"too_many_{what}")])


def _keys(body: Any) -> int:
    """The number of keys that were kept; smaller than the number written if a key is duplicate."""
    return sum(
        len(item) + sum(len(inner) for inner in item.values() if isinstance(inner, dict))
        for item in _objects(body)
    )


def _rows(body: Any) -> int:
    """The rows of all series, and of each of their covariates."""
    given = [item[field] for item in _objects(body) for field in ROWS if field in item]
    lists = [each for one in given for each in (one.values() if isinstance(one, dict) else [one])]
    return sum(len(each) for each in lists if isinstance(each, list))


def _objects(body: Any) -> list[dict[str, Any]]:
    """A body and its inputs."""
    if not isinstance(body, dict):
        return []
    inputs = body.get("inputs")
    each = inputs if isinstance(inputs, list) else []
    return [item for item in [body, *each] if isinstance(item, dict)]


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise HttpError(400, "the body has an object with the same key twice")


async def read(
    request: Request, kind: TypeAdapter[T], settings: Settings, *, rows_are_objects: bool
) -> T:
    """The body, which must be uncompressed application/json, validated as `kind`.

    Raises HttpError where `parse` does, and 415 for another type or encoding;
    RequestValidationError for a body that is not a `kind`.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(
            415, "compressed bodies are not accepted: send the JSON uncompressed",
            headers={"Accept-Encoding": "identity"},
        )  # fmt: skip
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise HttpError(
            415, "expected the header Content-Type: application/json",
            headers={"Accept": "application/json"},
        )  # fmt: skip
    try:
        data = await request.body()
    except ClientDisconnect:
        raise HttpError(CLIENT_LEFT, "the client left") from None
    if not data:
        raise HttpError(400, "the body is empty: expected JSON")

    def checked() -> T:
        value = parse(data, settings, rows_are_objects=rows_are_objects)
        return kind.validate_python(value, context=ARRAYS)

    try:
        return await in_thread_if(len(data) >= LARGE, checked)
    except ValidationError as error:
        flaws = error.errors(include_url=False)
        raise RequestValidationError(
            [{**flaw, "loc": ("body", *flaw["loc"])} for flaw in flaws]
        ) from None


async def in_thread_if(large: bool, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call directly, or in another thread if the work is large: while the device's thread is busy,
    a switch of threads costs milliseconds, more than reading or writing one series."""
    return await run_in_threadpool(call, *args, **options) if large else call(*args, **options)
