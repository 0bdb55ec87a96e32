"""Errors as application/problem+json (RFC 9457): short, and without quoting the request."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any, get_args, get_type_hints

from asgi_correlation_id import correlation_id
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ConfigDict
from starlette.exceptions import HTTPException

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import did_you_mean
from forecaster.forecast.question import Refusal
from forecaster_service.request import FlatRequest, FullRequest
from forecaster_service.response import Reply

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20  # in one answer: each row of a body may have its own
MOST_CHARACTERS = 1000
"""The longest message about a table, which may contain long names."""
CLIENT_LEFT = 499
"""The status in log and metrics of a request whose client left before the answer."""
FORMS: Mapping[Any, Any] = {"<full>": FullRequest, "<flat>": FlatRequest}
"""The forms that a body of /predict may have, by their tags in pydantic's errors."""
WORDS = {
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "string_type": "expected a string",
    "missing": "this key is missing",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "expected a JSON object"),
}
"""The messages for some types of pydantic's errors."""
PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
"""The keys of a path that are told: neither other texts of the client nor the tags of unions."""

Location = tuple[str | int, ...]


class Flaw(Reply):
    """One thing that is wrong with a request."""

    loc: list[str | int]
    """Its path in the request's body; places count from 0."""
    msg: str
    """What was expected and what to do."""
    type: str
    """A word for programs."""


class ProblemDetails(Reply):
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


def too_long(most: int) -> HttpError:
    """The error 413, which closes the connection, because the rest of the body is not read."""
    return HttpError(
        413, f"the body is longer than {most:,} bytes", headers={"Connection": "close"}
    )


def response(error: HTTPException) -> JSONResponse:
    """The error as a response."""
    errors, left = list(getattr(error, "errors", ())), error.status_code == CLIENT_LEFT
    details = ProblemDetails(
        title="Client Closed Request" if left else HTTPStatus(error.status_code).phrase,
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
        if isinstance(error, RequestValidationError):
            errors = error.errors()
            form = get_type_hints(request.scope["endpoint"]).get("body")
            flaws = [_flaw(item, form) for item in errors[:MOST_ERRORS]]
            error = invalid(flaws, len(errors))
        if isinstance(error, Refusal):
            flaws = [
                Flaw(loc=[*refusal.path], msg=str(refusal), type=refusal.code)
                for refusal in (error, *error.others)
            ]
            error = invalid(flaws)
        if not isinstance(error, HTTPException):
            error = HttpError(422, str(error)[:MOST_CHARACTERS])
        return response(error)

    for kind in (HTTPException, RequestValidationError, DataError, UsageError):
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


def _flaw(error: Mapping[str, Any], form: Any) -> Flaw:
    """A pydantic error in the words of this service, without the input. `form` is the type of the
    body."""
    location: Location = error["loc"][1:]  # after "body"
    text = WORDS.get(error["type"], error["msg"])
    if error["type"] == "extra_forbidden":
        known = _keys(form, location[:-1])
        hint = did_you_mean(str(location[-1])[:64], known)
        text = f"unknown key.{hint} Known here: {', '.join(known)}."
    elif error["input"] is None:
        text += ", got null"
    plain = [part for part in location if isinstance(part, int) or PLAIN_KEY.fullmatch(part)]
    return Flaw(loc=plain, msg=text, type=error["type"])


def _keys(form: Any, location: Location) -> list[str]:
    """The keys of the object at a place in a body of the type `form`."""
    for part in location:
        if part in FORMS:
            form = FORMS[part]
        elif isinstance(part, str):
            kind = form.model_fields[part].annotation
            form = next(iter(get_args(kind)), kind)  # of a list, or where it may be null
    return list(getattr(form, "model_fields", ()))
