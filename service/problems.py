"""Every error leaves as application/problem+json (RFC 9457), small, and without what came in.

`Problem` is raised where a request is refused; `install` makes an app answer with it, and
`ProblemResponses` rewrites the plain-text errors of middleware that answers by itself.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from asgi_correlation_id import correlation_id
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forecaster.errors import DataError
from forecaster.lookup import did_you_mean
from service.schemas import FlatRequest, FullRequest, Parameters, SeriesInput

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20

Location = tuple[str | int, ...]


class Flaw(BaseModel):
    """One thing that is wrong with a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    loc: list[str | int]
    """The way to it in the request's body, counted from 0."""
    msg: str
    """What was expected and what to do."""
    type: str
    """A word for programs."""


class ProblemDetails(BaseModel):
    """An error, by RFC 9457."""

    model_config = ConfigDict(title="Problem", use_attribute_docstrings=True)

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


class Problem(HTTPException):
    """A refused request: status, a sentence for a person, and where it is wrong."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[Flaw] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.errors = errors


def invalid(errors: Sequence[Flaw]) -> Problem:
    """The problem of a request that is JSON but not a forecast that can be made."""
    more = f" (and {len(errors) - 1} more, see errors)" if len(errors) > 1 else ""
    where = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in errors[0].loc
    ).removeprefix(".")
    return Problem(422, f"{where + ': ' if where else ''}{errors[0].msg}{more}", errors)


def response(problem: HTTPException) -> JSONResponse:
    """The problem as an answer."""
    errors = list(getattr(problem, "errors", ()))
    details = ProblemDetails(
        title=HTTPStatus(problem.status_code).phrase,
        status=problem.status_code,
        detail=problem.detail,
        instance=f"urn:x-request-id:{correlation_id.get()}",
        errors=errors[:MOST_ERRORS] or None,
        error_count=len(errors) or None,
    )
    return JSONResponse(
        details.model_dump(exclude_none=True),
        problem.status_code,
        dict(problem.headers or {}),
        MEDIA_TYPE,
    )


def install(app: FastAPI) -> None:
    """Make every error that a route of `app` raises a problem, in /openapi.json too."""

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return response(error)

    async def invalid_body(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        errors = error.errors()
        if errors[0]["loc"] == ("body",):
            return response(Problem(400, "the body is empty: expected JSON"))
        return response(invalid([_flaw(item) for item in errors]))

    async def unusable_data(request: Request, error: Exception) -> JSONResponse:
        return response(Problem(422, str(error)))

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid_body)
    app.add_exception_handler(DataError, unusable_data)

    def openapi() -> dict[str, Any]:
        schema = FastAPI.openapi(app)
        template = "#/components/schemas/{model}"
        problem = ProblemDetails.model_json_schema(ref_template=template)
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        schemas |= {**problem.pop("$defs"), "Problem": problem}
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route says in /openapi.json of the problems that it may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


class ProblemResponses:
    """ASGI middleware: an error of the app that is not a problem yet becomes one.

    `details` has our words for some statuses. After a 413 the connection is closed, for the rest
    of the body is not read.
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
                    detail = self.details.get(status, HTTPStatus(status).phrase)
                    close = {"Connection": "close"} if status == 413 else None
                    await response(Problem(status, detail, headers=close))(scope, receive, send)
            if not replaced:
                await send(message)

        await self.app(scope, receive, replace)


_OBJECTS = ("model_type", "model_attributes_type", "dict_type")
_SAFE_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


def _flaw(error: Mapping[str, Any]) -> Flaw:
    """A pydantic error in our words, without the input."""
    location: Location = error["loc"][2:]  # after "body" and the form
    if "target" in location:  # which is followed by its rank
        at = location.index("target") + 1
        location, place = location[:at] + location[at + 1 :], location[at + 1 :]
    else:
        place = ()
    kind, text = error["type"], error["msg"]
    if kind == "float_type":
        text = "expected a number"
        if error["input"] is None:
            text = "null is no value; fill or interpolate the gap"
    elif kind == "finite_number":
        text = "expected a finite number"
    elif kind == "missing":
        text = "this key is missing"
        if location == ("target",):
            text = "expected 'target' (one series) or 'inputs' (many)"
    elif kind in _OBJECTS:
        text = "expected a JSON object"
    elif kind == "extra_forbidden":
        location, text = _unknown_key(location, full=error["loc"][1] == "full")
    if place:
        numbered = zip(("row", "column"), place, strict=False)
        text = f"{', '.join(f'{name} {int(number) + 1}' for name, number in numbered)}: {text}"
    return Flaw(loc=list(location), msg=text, type=kind)


def _unknown_key(location: Location, full: bool) -> tuple[Location, str]:
    """Where it stands and which keys are known there; the key itself only if it is a plain word."""
    *parents, key = location
    if "parameters" in parents:
        model: type[BaseModel] = Parameters
    elif "inputs" in parents:
        model = SeriesInput
    else:
        model = FullRequest if full else FlatRequest
    known: Iterable[str] = model.model_fields
    if not _SAFE_KEY.fullmatch(str(key)):
        return tuple(parents), f"unknown key. Known here: {', '.join(known)}."
    hint = did_you_mean(str(key), known)
    return location, f"unknown key.{hint} Known here: {', '.join(known)}."
