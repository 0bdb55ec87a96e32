"""Errors as application/problem+json (RFC 9457): short, and without quoting the request."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any, get_args, get_type_hints

from asgi_correlation_id import correlation_id
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forecaster.errors import DataError
from forecaster.lookup import did_you_mean
from forecaster_service.foreign import SCORING, Scoring
from forecaster_service.schemas import Answer, FlatRequest, FullRequest

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20
CLIENT_LEFT = 499
"""The status in log and metrics of a request whose client left before the answer."""
COVARIATES = {"past_covariates", "future_covariates", "static_covariates"}
RANKED = {"target", "series"}
FORMS: Mapping[Any, type[BaseModel]] = {"full": FullRequest, "flat": FlatRequest, **SCORING}
"""The forms that a body may have, by the tag that validation errors give them."""

Location = tuple[str | int, ...]


def _phrase(status: int) -> str:
    return "Client Closed Request" if status == CLIENT_LEFT else HTTPStatus(status).phrase


class Flaw(Answer):
    """One thing that is wrong with a request."""

    loc: list[str | int]
    """Its path in the request's body; places count from 0."""
    msg: str
    """What was expected and what to do."""
    type: str
    """A word for programs."""


class ProblemDetails(Answer):
    """An error, by RFC 9457."""

    model_config = ConfigDict(title="Problem")

    type: str = "about:blank"
    title: str
    """The status in words."""
    status: int
    detail: str
    """What happened and what to do."""
    instance: str
    """The request's id, as in the header X-Request-ID and in the log."""
    errors: list[Flaw] | None = None
    """What is wrong with the request, the first 20."""
    error_count: int | None = None
    """How many there are in all."""


class HttpError(HTTPException):
    """A refused request: status, a sentence for a person, and what is wrong where. `retry` is in
    how many seconds the client may try again, where that helps; `reason` is a word for the metrics,
    where room or time was lacking."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[Flaw] = (),
        headers: Mapping[str, str] | None = None,
        count: int = 0,
        retry: int | None = None,
        reason: str = "",
    ) -> None:
        again = {} if retry is None else {"Retry-After": str(retry)}
        super().__init__(status, detail, {**(headers or {}), **again})
        self.errors, self.count, self.reason = errors, count, reason


def invalid(errors: Sequence[Flaw], count: int | None = None) -> HttpError:
    """The error 422 for a request with the given flaws; `count` is their total number."""
    count = len(errors) if count is None else count
    more = f" (and {count - 1} more, see errors)" if count > 1 else ""
    where = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in errors[0].loc
    ).removeprefix(".")
    detail = f"{where + ': ' if where else ''}{errors[0].msg}{more}"
    return HttpError(422, detail, errors, count=count)


def busy(detail: str, reason: str, seconds: float) -> HttpError:
    """The error 503 for too much work; `reason` is a word for the metrics."""
    retry = max(ceil(seconds), 1)
    return HttpError(503, f"{detail}; try again in {retry} s", retry=retry, reason=reason)


def response(error: HTTPException) -> JSONResponse:
    """The error as a response."""
    errors = list(getattr(error, "errors", ()))
    details = ProblemDetails(
        title=_phrase(error.status_code),
        status=error.status_code,
        detail=error.detail,
        instance=f"urn:x-request-id:{correlation_id.get()}",
        errors=errors[:MOST_ERRORS] or None,
        error_count=getattr(error, "count", 0) or None,
    )
    return JSONResponse(
        details.model_dump(exclude_none=True),
        error.status_code,
        dict(error.headers or {}),
        MEDIA_TYPE,
    )


def install(app: FastAPI) -> None:
    """Turn every error that a route of `app` raises into such a response."""

    async def refused(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, HTTPException) and error.status_code == 405:
            # where each method has a route of its own, the router names only the first
            path = getattr(request.scope.get("route"), "path", "")
            methods = ", ".join(app.openapi()["paths"].get(path, ())).upper()
            if methods:
                error = HttpError(405, error.detail, headers={"Allow": methods})
        if isinstance(error, RequestValidationError):
            errors = error.errors()
            body = get_type_hints(request.scope["endpoint"]).get("body")
            form = body if isinstance(body, type) else None
            flaws = [_flaw(item, form) for item in errors[:MOST_ERRORS]]
            error = invalid(flaws, len(errors))
        return response(error if isinstance(error, HTTPException) else HttpError(422, str(error)))

    for kind in (HTTPException, RequestValidationError, DataError):
        app.add_exception_handler(kind, refused)


def describe(schema: dict[str, Any]) -> None:
    """Describe in /openapi.json what an error looks like."""
    problem = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas |= {**problem.pop("$defs"), "Problem": problem}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The entries of /openapi.json for the errors that a route may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


class ErrorResponses:
    """ASGI middleware: turns errors that are not problem+json yet into it, e.g. those that other
    middleware answers in plain text.

    `details` has the sentences for some statuses. After a 413 the connection is closed, because the
    rest of the body is not read.
    """

    def __init__(self, app: ASGIApp, details: Mapping[int, str]) -> None:
        self.app = app
        self.details = details

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        replaced = False

        async def replace(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start":
                headers = {key.lower(): value for key, value in message["headers"]}
                kind = headers.get(b"content-type", b"").decode("latin-1")
                status = message["status"]
                replaced = status == 413 or (status >= 400 and kind != MEDIA_TYPE)
                if replaced:
                    detail = self.details.get(status, _phrase(status))
                    close = {"Connection": "close"} if status == 413 else None
                    await response(HttpError(status, detail, headers=close))(scope, receive, send)
            if not replaced:
                await send(message)

        await self.app(scope, receive, replace)


_OBJECTS = ("model_type", "model_attributes_type", "dict_type")
_SAFE_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


def _flaw(error: Mapping[str, Any], form: type[BaseModel] | None) -> Flaw:
    """A pydantic error in the words of this service, without the input.

    `form` is the type of the body; None where the error shows which of several forms was meant.
    """
    location: Location = error["loc"][1:]  # after "body"
    if form is None:
        form, location = FORMS.get(location[0]), location[1:]
    words: Sequence[str] = ("row", "column")
    place: Location = ()
    kind, text = error["type"], error["msg"]
    if form is not None and issubclass(form, Scoring) and kind != "extra_forbidden":
        location, words, place = _in_table(location)
    at = 2 if location[:1] == ("inputs",) else 0  # the place of a series' field in the path
    field, inside = location[at : at + 1], location[at + 1 :]
    if set(field) & RANKED:  # followed by its rank
        place = inside[1:]
        location = location[: at + 1] + place
    elif set(field) & COVARIATES:  # followed by a name from the client, and the place in a list
        numbers = [part for part in inside[1:3] if isinstance(part, int)]  # after their kind
        words, place = ("value",), tuple(numbers[:1])
        plain = inside and _SAFE_KEY.fullmatch(str(inside[0]))
        location = location[: at + 1] + (inside[:1] + place if plain else ())
    if kind == "float_type":
        text = "expected a number"
        if field == ("static_covariates",):
            text = "expected a number or a word"
        elif field == ("future_covariates",) and error["input"] is None:
            text = "null is not allowed: future covariates must be complete"
    elif kind == "string_type" and set(field) & COVARIATES:
        text = "expected a word, like the other values"
    elif kind == "finite_number":
        text = "expected a finite number"
    elif kind == "missing":
        text = "this key is missing"
        if location == ("target",):
            text = "expected 'target' (one series) or 'inputs' (many)"
        elif location == ("dataframe_split",):
            text = f"expected one of the keys {', '.join(SCORING)}"
    elif kind in _OBJECTS:
        text = "expected a JSON object"
    elif kind == "extra_forbidden":
        location, text = _unknown_key(location, form)
    if place:
        numbered = zip(words, place, strict=False)
        text = f"{', '.join(f'{name} {int(number) + 1}' for name, number in numbered)}: {text}"
    return Flaw(loc=list(location), msg=text, type=kind)


def _in_table(location: Location) -> tuple[Location, Sequence[str], Location]:
    """The path to a cell of a scoring request, with the client's names only where they are plain
    words; what the numbers in the path count; and the numbers."""
    if location[:1] == ("inputs",):
        location = location[:1] + location[2:]  # without its rank
    if location[:2] == ("dataframe_split", "data"):
        return location, ("row", "column"), location[2:]
    plain = [isinstance(part, int) or _SAFE_KEY.fullmatch(part) for part in (*location, "")]
    location = location[: plain.index(None)]
    numbers = tuple(part for part in location if isinstance(part, int))
    rows = len(location) > 1 and location[1:2] == numbers
    return location, ("row",) if rows else ("value",), numbers


def _unknown_key(location: Location, form: type[BaseModel] | None) -> tuple[Location, str]:
    """The path of an unknown key and the keys known there; the key itself only if it is a plain
    word."""
    *parents, key = location
    for part in parents:
        if form is not None and part in form.model_fields:
            form = _model(form.model_fields[str(part)].annotation)
    known: Iterable[str] = form.model_fields if form else ()
    if not _SAFE_KEY.fullmatch(str(key)):
        return tuple(parents), f"unknown key. Known here: {', '.join(known)}."
    hint = did_you_mean(str(key), known)
    return location, f"unknown key.{hint} Known here: {', '.join(known)}."


def _model(annotation: Any) -> type[BaseModel] | None:
    """The type of the objects that a field holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model, get_args(annotation))), None)
