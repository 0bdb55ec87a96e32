"""Reading a request's body: JSON in UTF-8 and nothing else, with bounded work."""

import json
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from pydantic_core import from_json

from service.problems import Flaw, Problem, invalid
from service.schemas import MOST_COLUMNS
from service.settings import Settings

LARGE = 2**16
"""From so many bytes on, a body is read in another thread."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?')


def parse(data: bytes, settings: Settings, *, rows_are_objects: bool = False) -> Any:
    """The JSON value of a body; where its rows may be objects, they do not count as series.

    Raises Problem: 400 for what is not JSON or has a key twice, 422 for more than the settings
    allow. NaN and Infinity are read, so that the answer can tell where they stand.
    """
    # Reading is what costs, so the largest bodies are judged by counting bytes. A series is an
    # object, with three more for its covariates, and a row is a list.
    if not rows_are_objects and data.count(b"{") > 4 * settings.max_series + 2:
        raise _too_many("series", settings.max_series)
    if data.count(b"{") > settings.max_rows + 4 * settings.max_series:
        raise _too_many("rows", settings.max_rows)
    if data.count(b"[") > settings.max_rows + 4 * settings.max_series:
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
    except ValueError as error:  # the message tells line and column, and quotes nothing
        raise Problem(400, f"the body is not JSON in UTF-8: {error}") from None
    inputs = value.get("inputs") if isinstance(value, dict) and not rows_are_objects else None
    if isinstance(inputs, list) and len(inputs) > settings.max_series:
        raise _too_many("series", settings.max_series)
    if keys != _keys(value):
        json.loads(data, object_pairs_hook=_distinct)
    return value


def _too_many(what: str, most: int) -> Problem:
    message = f"expected at most {most:,} {what} in a request"
    return invalid([Flaw(loc=[], msg=message, type=f"too_many_{what}")])


def _keys(body: Any) -> int:
    """The keys of a body where a request has objects; fewer than were written if one came twice."""
    if not isinstance(body, dict):
        return 0
    inputs = body.get("inputs")
    objects = [body, *inputs] if isinstance(inputs, list) else [body]
    return sum(
        len(item) + sum(len(inner) for inner in item.values() if isinstance(inner, dict))
        for item in objects
        if isinstance(item, dict)
    )


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise Problem(400, "the body has an object with the same key twice")


Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


class JSONRequest(Request):
    """A request whose JSON is read by `parse`."""

    rows_are_objects = False

    async def json(self) -> Any:
        data, settings = await self.body(), self.app.state.settings
        read = partial(parse, data, settings, rows_are_objects=self.rows_are_objects)
        return read() if len(data) < LARGE else await run_in_threadpool(read)


class JSONRoute(APIRoute):
    """A route that takes application/json, not compressed."""

    request_class: type[JSONRequest] = JSONRequest

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if request.headers.get("content-encoding", "identity").lower() != "identity":
                raise Problem(
                    415, "compressed bodies are not taken: send the JSON as it is",
                    headers={"Accept-Encoding": "identity"},
                )  # fmt: skip
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Problem(
                    415, "expected the header Content-Type: application/json",
                    headers={"Accept": "application/json"},
                )  # fmt: skip
            return await handler(self.request_class(request.scope, request.receive))

        return handle
