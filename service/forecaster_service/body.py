"""Read the body of a request: JSON in UTF-8 only, with bounded work and in bounded memory."""

from asyncio import Lock, get_running_loop, sleep, timeout
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ctypes import CDLL
from io import BytesIO
from time import monotonic
from typing import Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from jiter import from_json
from starlette.types import Message

from forecaster_service.http_errors import (
    CLIENT_LEFT,
    Flaw,
    HttpError,
    busy,
    invalid,
    responses,
    too_long,
)
from forecaster_service.request import MOST_COLUMNS
from forecaster_service.settings import Settings

PROBLEMS = responses(404, 408, 413, 415, 422, 503, 504)
JSON, CSV = "application/json", "text/csv"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
TEXT: dict[str, Any] = {"content": {CSV: {"schema": {"type": "string"}}}}
"""A body or an answer in CSV, as /openapi.json describes it."""
LARGE = 2**16
"""A body of at least this many bytes is read in another thread, and waits for memory."""
LOOKING = 0.1
"""Seconds between two looks of a request that waits for memory."""
STALLED = 2.0
"""Seconds in which a client must send LARGE bytes when others wait for the memory that it holds."""
WEIGHT = 0.5
"""The weight of the last large body in the estimate of what the next one costs."""
Result = TypeVar("Result")


def check_type(request: Request, *media: str) -> None:
    """Raise HttpError 415 unless the body is said to be uncompressed, and of one of the types."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        detail = "compressed bodies are not accepted: send it uncompressed"
        raise HttpError(415, detail, headers={"Accept-Encoding": "identity"})
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in media:
        detail = f"expected the header Content-Type: {' or '.join(media)}"
        raise HttpError(415, detail, headers={"Accept": ", ".join(media)})


def parse(data: bytes, settings: Settings) -> Any:
    """The JSON value of a body.

    Raises HttpError: 400 for a body that is not JSON or has a duplicate key, 422 for more than the
    settings allow. NaN and Infinity are read, so that the error can show where they are.

    All of it is linear in the length of the body: what costs much memory, objects, lists and
    strings, is limited first, by counting bytes; the rest is counted in the parsed value.
    """
    # A series is one object plus up to three for its covariates, and a row is a list.
    if data.count(b"{") > 4 * settings.max_series + 2:
        raise _too_many("series", settings.max_series)
    if max(map(data.count, (b"{", b"["))) > settings.max_rows + 4 * settings.max_series:
        raise _too_many("rows", settings.max_rows)
    if data.count(b'"') > 2 * settings.max_rows:
        raise _too_many("strings", settings.max_rows)
    try:
        value = from_json(data, catch_duplicate_keys=True)
    except ValueError as error:
        words = str(error)
        if words.startswith("Detected duplicate key"):  # quotes the key
            raise HttpError(400, "the body has an object with the same key twice") from None
        raise HttpError(400, f"the body is not JSON in UTF-8: {words}") from None
    most = 100 * settings.max_series + MOST_COLUMNS
    if data.count(b":") > most and _keys(value) > most:
        raise _too_many("keys", most)
    inputs = value.get("inputs") if isinstance(value, dict) else None
    series = inputs if isinstance(inputs, list) else []
    if len(series) > settings.max_series:
        raise _too_many("series", settings.max_series)
    if _entries(value) + sum(map(_entries, series)) > settings.max_rows:
        raise _too_many("rows", settings.max_rows)
    return value


def _too_many(what: str, most: int) -> HttpError:
    message = f"expected at most {most:,} {what} in a request"
    return invalid([Flaw(loc=[], msg=message, type=f"too_many_{what}")])


def _keys(value: Any, depth: int = 4) -> int:
    """The number of keys of a value and of what it contains, as deep as any request has objects."""
    if not isinstance(value, dict | list) or not depth:
        return 0
    here, inner = (len(value), value.values()) if isinstance(value, dict) else (0, value)
    return here + sum(_keys(part, depth - 1) for part in inner if type(part) in (dict, list))


def _entries(value: Any) -> int:
    """The entries of the lists in an object, such as the rows of a series and its covariates."""
    if isinstance(value, dict):
        others = ("inputs", "columns")
        return sum(_entries(part) for name, part in value.items() if name not in others)
    return len(value) if isinstance(value, list) else 0


class Bodies:
    """The memory and the time that the bodies of requests may take.

    Half of the memory of the settings is for bodies that arrive or wait, each with its whole length
    before its first byte is read; where that is taken, the next ones wait in the connection, until
    their deadline. The other half is for the one large body that is parsed at a time: its objects
    take several times its bytes. Bodies below LARGE need no place, because only as many requests as
    can wait for the device are read at a time; `waiting` of them have been received and wait to be
    parsed.
    """

    def __init__(self, settings: Settings) -> None:
        self.limit = max(settings.max_bodies_bytes // 2, settings.max_body_bytes)
        self.most = settings.max_body_bytes
        self.held = self.waiting = 0
        self._for_memory, self._for_turn, self._for_thread = Lock(), Lock(), Lock()
        self._to_parse, self._seconds_a_byte = 0, 0.0

    def ahead(self) -> float:
        """The estimated seconds until all large bodies that are here have been parsed."""
        return self._to_parse * self._seconds_a_byte

    @asynccontextmanager
    async def read(self, request: Request, until: float) -> AsyncIterator[bytes]:
        """The body, whose memory is held in this context.

        Raises HttpError 503 if there is no memory for it `until` then, 408 for a client that stops
        sending while others wait for memory, and CLIENT_LEFT.
        """
        declared = request.headers.get("content-length", "")
        size = min(int(declared), self.most) if declared.isdecimal() else 0
        held, more = 0, True
        body, marked = BytesIO(), 0  # it gives its bytes without a copy
        try:
            if size >= LARGE:
                held = await self._reserved(size, until)
            since = monotonic()
            while more:
                message = await _message(request, STALLED if held else None)
                if message["type"] == "http.disconnect":
                    raise HttpError(CLIENT_LEFT, "the client left")
                body.write(message.get("body", b""))
                if body.tell() > self.most:
                    raise too_long(self.most)
                more = message.get("more_body", False)
                if body.tell() >= LARGE and not held:  # its length was not declared
                    held = await self._reserved(self.most, until)
                    since = monotonic()
                if body.tell() >= marked + LARGE:
                    marked, since = body.tell(), monotonic()
                elif more and self._for_memory.locked() and monotonic() > since + STALLED:
                    detail = "this request stopped arriving while others waited for its memory"
                    raise HttpError(408, detail, headers={"Connection": "close"})
            yield body.getvalue()
        finally:
            self.held -= held
            if held and not self.held:
                get_running_loop().call_later(STALLED, self._give_back)

    async def _reserved(self, size: int, until: float) -> int:
        """Wait for the memory of `size` bytes, in turn."""
        try:
            async with timeout(until - monotonic()), self._for_memory:
                while self.held + size > self.limit:
                    await sleep(LOOKING)
                self.held += size
        except TimeoutError:
            detail = "the memory for large requests is taken"
            raise busy(detail, "memory", self.ahead()) from None
        return size

    def _give_back(self) -> None:
        """Give free memory back to the system, which glibc keeps after many large bodies."""
        if not self.held:
            with suppress(AttributeError):  # another C library
                CDLL(None).malloc_trim(0)

    async def work(self, size: int, until: float, call: Callable[[], Result]) -> Result:
        """Call what parses a body of `size` bytes: small ones here, one in each round of the event
        loop, so that others have their turns; large ones in another thread, one at a time.

        While the device's thread is busy, a switch of threads costs milliseconds, more than reading
        one series does. Raises HttpError 503 if the turn of this body does not come `until` then.
        """
        if size < LARGE:
            self.waiting += 1
            try:
                await self._for_turn.acquire()
            finally:
                self.waiting -= 1
            get_running_loop().call_soon(self._for_turn.release)
            return call()
        if monotonic() + self.ahead() > until:
            raise busy("large requests are being read already", "time", self.ahead())
        self._to_parse += size
        try:
            async with self._for_thread:
                if (began := monotonic()) > until:
                    raise busy("this request could not be read in time", "late", self.ahead())
                try:
                    return await run_in_threadpool(call)
                finally:
                    pace = (monotonic() - began) / size
                    known = self._seconds_a_byte or pace
                    self._seconds_a_byte = WEIGHT * pace + (1 - WEIGHT) * known
        finally:
            self._to_parse -= size


async def _message(request: Request, seconds: float | None) -> Message:
    """The next part of a request; an empty one after so many seconds."""
    try:
        async with timeout(seconds):
            return await request.receive()
    except TimeoutError:
        return {"type": "http.request", "more_body": True}
