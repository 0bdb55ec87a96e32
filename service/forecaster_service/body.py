"""Read the body of a request: JSON in UTF-8 only, with bounded work and in bounded memory."""

from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Future,
    Lock,
    Task,
    current_task,
    get_running_loop,
    sleep,
)
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ctypes import CDLL
from dataclasses import dataclass
from io import BytesIO
from time import monotonic
from typing import Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from jiter import from_json
from starlette.requests import ClientDisconnect

from forecaster_service.http_errors import CLIENT_LEFT, Flaw, HttpError, busy, invalid
from forecaster_service.schemas import MOST_COLUMNS
from forecaster_service.settings import Settings

LARGE = 2**16
"""A body of at least this many bytes is read in another thread, and waits for memory."""
LOOKING = 0.1
"""Seconds between two looks of a request that waits for memory."""
STALLED = 2.0
"""Seconds in which a client must send LARGE bytes when others wait for the memory that it holds."""
WEIGHT = 0.5
"""The weight of the last large body in the estimate of what the next one costs."""
SLICE = 0.01
"""Seconds of each turn of the event loop for small bodies; the rest is for others, e.g. probes."""
ROWS = ("target", "series", "past_covariates", "future_covariates")
"""The fields of a series that are lists with an entry per step, or have them by name."""
Result = TypeVar("Result")


def parse(data: bytes, settings: Settings, *, rows_are_objects: bool = False) -> Any:
    """The JSON value of a body. With `rows_are_objects`, objects do not count as series.

    Raises HttpError: 400 for a body that is not JSON or has a duplicate key, 422 for more than the
    settings allow. NaN and Infinity are read, so that the error can show where they are.

    All of it is linear in the length of the body: what costs much memory, objects, lists and
    strings, is limited first, by counting bytes; the rest is counted in the parsed value.
    """
    # A series is one object plus up to three for its covariates, and a row is a list.
    if not rows_are_objects and data.count(b"{") > 4 * settings.max_series + 2:
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
    if rows_are_objects:
        return value
    inputs = value.get("inputs") if isinstance(value, dict) else None
    if isinstance(inputs, list) and len(inputs) > settings.max_series:
        raise _too_many("series", settings.max_series)
    if _rows(value) > settings.max_rows:
        raise _too_many("rows", settings.max_rows)
    return value


def _too_many(what: str, most: int) -> HttpError:
    message = f"expected at most {most:,} {what} in a request"
    return invalid([Flaw(loc=[], msg=message, type=f"too_many_{what}")])


def _keys(value: Any, depth: int = 4) -> int:
    """The number of keys of a value and of what it contains, as deep as any request has objects."""
    if not isinstance(value, dict | list) or not depth:
        return 0
    own, inner = (len(value), value.values()) if isinstance(value, dict) else (0, value)
    return own + sum(_keys(each, depth - 1) for each in inner if type(each) in (dict, list))


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


@dataclass(eq=False)
class _Place:
    """The memory of a body that is arriving: the bytes reserved, when LARGE bytes came last, and
    the task that reads them, which ends when the place is taken back."""

    size: int = 0
    marked: float = 0.0
    task: Task[Any] | None = None
    taken: bool = False


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
        self.held = 0
        self._line: list[object] = []
        self._arriving: set[_Place] = set()
        self._turn = Lock()
        self._to_parse, self._seconds_a_byte = 0, 0.0
        self._small: deque[Future[None]] = deque()
        self._spent, self._small_seconds, self._next_turn = 0.0, 0.0, False

    @property
    def waiting(self) -> int:
        """How many small bodies wait to be parsed."""
        return len(self._small)

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
        place = _Place()
        try:
            yield await self._received(request, place, size, until)
        finally:
            self.held -= place.size
            if place.size and not self.held:
                get_running_loop().call_later(STALLED, self._give_back)

    def _give_back(self) -> None:
        """Give free memory back to the system, which glibc keeps after many large bodies."""
        if not self.held:
            with suppress(AttributeError):  # another C library
                CDLL(None).malloc_trim(0)

    async def work(self, size: int, until: float, call: Callable[[], Result]) -> Result:
        """Call what parses a body of `size` bytes, one large body at a time in another thread.

        While the device's thread is busy, a switch of threads costs milliseconds, more than reading
        one series does. Raises HttpError 503 if the turn of this body does not come `until` then.
        """
        if size < LARGE:
            return await self._work_here(call)
        if monotonic() + self.ahead() > until:
            raise busy("large requests are being read already", "time", self.ahead())
        self._to_parse += size
        try:
            async with self._turn:
                if (began := monotonic()) > until:
                    raise busy("this request could not be read in time", "late", self.ahead())
                try:
                    return await run_in_threadpool(call)
                finally:
                    found = (monotonic() - began) / size
                    known = self._seconds_a_byte or found
                    self._seconds_a_byte = WEIGHT * found + (1 - WEIGHT) * known
        finally:
            self._to_parse -= size

    async def _work_here(self, call: Callable[[], Result]) -> Result:
        """Call in the event loop, in turn with others."""
        loop = get_running_loop()
        if self._small or self._spent > SLICE:
            turn = loop.create_future()
            self._small.append(turn)
            await turn
        if not self._next_turn:
            self._next_turn = True
            loop.call_soon(self._turn_of_the_loop, loop)
        began = monotonic()
        try:
            return call()
        finally:
            took = monotonic() - began
            self._spent += took
            self._small_seconds += 0.1 * (took - self._small_seconds)

    def _turn_of_the_loop(self, loop: AbstractEventLoop) -> None:
        self._spent, count = 0.0, int(SLICE / max(self._small_seconds, 1e-6)) + 1
        while self._small and count:
            turn = self._small.popleft()
            if not turn.done():  # its client may have left
                turn.set_result(None)
                count -= 1
        self._next_turn = bool(self._small)
        if self._next_turn:
            loop.call_soon(self._turn_of_the_loop, loop)

    async def _received(
        self, request: Request, place: _Place, declared: int, until: float
    ) -> bytes:
        received, marked = BytesIO(), 0  # it gives its bytes without a copy
        try:
            if declared >= LARGE:
                await self._reserve(place, declared, until)
            async for chunk in request.stream():
                received.write(chunk)
                if received.tell() >= LARGE and not place.size:  # its length was not declared
                    await self._reserve(place, self.most, until)
                if received.tell() - marked >= LARGE:
                    place.marked, marked = monotonic(), received.tell()
        except ClientDisconnect:
            raise HttpError(CLIENT_LEFT, "the client left") from None
        except CancelledError:
            if not (place.taken and place.task):  # cancelled by the server
                raise
            place.task.uncancel()
            detail = "this request stopped arriving while others waited for the memory it held"
            raise HttpError(408, detail, headers={"Connection": "close"}) from None
        finally:
            self._arriving.discard(place)
        return received.getvalue()

    async def _reserve(self, place: _Place, size: int, until: float) -> None:
        self._line.append(place)
        try:
            while self._line[0] is not place or self.held + size > self.limit:
                if (now := monotonic()) > until:
                    detail = "the memory for large requests is taken"
                    raise busy(detail, "memory", self.ahead())
                for other in self._arriving:
                    if other.task and now - other.marked > STALLED and not other.taken:
                        other.taken = True
                        other.task.cancel()
                await sleep(LOOKING)
        finally:
            self._line.remove(place)
        self.held += size
        place.size, place.marked, place.task = size, monotonic(), current_task()
        self._arriving.add(place)
