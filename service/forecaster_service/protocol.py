"""HTTP for slow, silent or many clients: a guard in front of uvicorn's protocol.

    uvicorn --factory forecaster_service.app:create_app --http forecaster_service.protocol:Protocol

uvicorn alone waits without limit for a request, and for a client to read its answer; behind nginx,
nginx sets these limits (service/nginx/nginx.conf). The guard parses each request by the parser that
uvicorn uses, and passes on only what is within the limits. Naming the class also rules out the
other parser of uvicorn, h11, which accepts requests that a proxy may interpret differently.
"""

import os
from asyncio import AbstractEventLoop, Transport, get_running_loop, sleep
from asyncio import Protocol as AsyncioProtocol
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from http import HTTPStatus
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from termios import FIONREAD
from time import monotonic
from typing import Any

from asgi_correlation_id import correlation_id
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from forecaster_service.http_errors import HttpError, response
from forecaster_service.logs import logger, request_id
from forecaster_service.metrics import Metrics
from forecaster_service.settings import Settings

RATE = 2**16
"""Bytes of a request or an answer for which the client gets one more second."""
MOST_HEAD = 2**15
"""The most bytes of a request that are not its body: its head, and the framing of chunks."""
NEW = 1.0
"""Seconds in which a connection is not closed to make room: its request may be on its way."""
TELLING = 10.0
"""Seconds between two lines about connections that cannot be accepted."""
ENDING = 0.5
"""Seconds after the service has stopped listening in which an idle connection may still ask."""


class Connections:
    """What the connections of one service share: all of them, and in `idle` those without a
    complete request, the longest idle first. `asked` requests are not answered yet. While `full`
    gives an error for so many, it is the answer to each further one that posts: here it costs a
    fifth of what it costs in the application."""

    def __init__(
        self, settings: Settings, metrics: Metrics, full: Callable[[int], HttpError | None]
    ) -> None:
        self.full, self.asked = full, 0
        self.seconds, self.closed, self.log = settings.receive_seconds, metrics.closed, logger()
        self.all: set[Protocol] = set()
        self.idle: OrderedDict[Protocol, None] = OrderedDict()
        self._told = -TELLING
        used, most = len(os.listdir("/proc/self/fd")), settings.max_connections
        self.most = max(min(most, (_open_files(used + most * 5 // 4 + 1) - used) * 4 // 5), 1)

    async def watch(self) -> None:
        """Close the connections of clients that are too slow, until cancelled."""
        pause, before = min(max(self.seconds / 10, 0.02), 1.0), monotonic()
        while True:
            await sleep(pause)
            now = monotonic()
            late, before = now - before - pause, now
            for each in list(self.all):
                if late > 1:  # the service, not the client, was slow
                    each.begun += late
                each.look(now)
            self.make_room()

    def make_room(self) -> None:
        """Close the connections that have been idle for longest, while there are too many."""
        for oldest in list(self.idle) if len(self.all) > self.most else ():
            if len(self.all) <= self.most or monotonic() - oldest.begun < NEW:
                return
            if not oldest.is_asking():
                self.closed.labels("too many").inc()
                oldest.lose()

    def out_of_files(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: that it cannot accept, which it tries again a second
        later, is said once in a while, not thousands of times."""
        if not str(context.get("message")).startswith("socket.accept() out of system resource"):
            loop.default_exception_handler(context)
        elif monotonic() > self._told + TELLING:
            self._told = monotonic()
            self.log.error("no file is left for connections, which wait: raise ulimit -n")


def _open_files(wanted: int) -> int:
    """How many files the process may have open, after requesting a limit of `wanted`."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != RLIM_INFINITY and soft < wanted:
        more = wanted if hard == RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError):  # a system may allow less than its hard limit
            setrlimit(RLIMIT_NOFILE, (more, hard))
            return more
    return wanted if soft == RLIM_INFINITY else soft


class _Wire:
    """The transport as uvicorn's protocol sees it: it sends the head of an answer together with the
    first part of its body, because two packets wake a waiting client twice. `begun` is set once an
    answer has begun, `paused` while the request is not read on."""

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._first = b""
        self.begun = self.paused = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.begun = self.begun or not data.startswith(b"HTTP/1.1 100 ")
        if self._first:
            self._send(data)
        else:
            self._first = data
            self._loop.call_soon(self._send)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def pause_reading(self) -> None:
        self.paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self.paused = False
        self._transport.resume_reading()

    def _send(self, more: bytes = b"") -> None:
        first, self._first = self._first, b""
        if first and not self._transport.is_closing():
            self._transport.write(first + more)


class Protocol(AsyncioProtocol):
    """A connection whose client has `seconds` to send a request and `seconds` to read an answer,
    and more for large ones (see RATE).

    The time for a request begins with its first byte, for the first request with the connection.
    `pending` requests have arrived, at least their heads, and are not answered; the last head
    `arrived` then. Requests with trailers are refused: uvicorn takes them for headers.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        config.ws_protocol_class = None  # no route uses WebSockets, and they would have no limits
        self.shared: Connections = app_state["connections"]
        self.siblings: set[Any] = server_state.connections
        self.loop = _loop or get_running_loop()
        self.inner = HttpToolsProtocol(
            config, server_state, {**app_state, "connection": self}, self.loop
        )
        self.parser = HttpRequestParser(self)
        self.keep_alive = config.timeout_keep_alive
        self.in_head = self.in_request = self.asked = self.ending = False
        self.refused = False
        self.given_id = ""
        self.received = self.head = self.framing = self.pending = self.unread = 0
        self.begun = self.arrived = self.unread_since = monotonic()
        self.flaw = 400, "this is not an HTTP request, or an ambiguous one"

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self.transport, self.wire = transport, _Wire(transport, self.loop)
        self.inner.connection_made(self.wire)  # type: ignore[arg-type]
        self.siblings.discard(self.inner)
        self.siblings.add(self)  # so that the server ends this one
        self.shared.all.add(self)
        self.shared.idle[self] = None
        self.shared.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)  # ends the request that runs; others never begin
        self.shared.asked -= max(self.pending - 1, 0)
        self.pending = min(self.pending, 1)
        self.siblings.discard(self)
        self.shared.all.discard(self)
        self.shared.idle.pop(self, None)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.unread = 0  # the client reads
        self.inner.resume_writing()

    def shutdown(self) -> None:
        """Answer what has been asked, and close."""
        self.ending = True
        if self.pending:
            self.inner.shutdown()
        else:
            self.loop.call_later(ENDING, self._end)

    def answered(self) -> None:
        """Note that a request has been answered."""
        self.pending -= 1
        self.shared.asked -= 1
        self.wire.begun = False
        if not self.pending and self in self.shared.all:
            self.begun = monotonic()
            self.shared.idle[self] = None
            if self.ending:
                self._end()

    def _end(self) -> None:
        if not self.pending:
            self.wire.close()

    def look(self, now: float) -> None:
        """Close the connection if its client has taken too long."""
        unread, seconds = self.transport.get_write_buffer_size(), self.shared.seconds
        if unread and not self.unread:
            self.unread, self.unread_since = unread, now
        self.unread = self.unread if unread else 0
        if unread and now > self.unread_since + seconds + self.unread / RATE:
            self.shared.closed.labels("unread").inc()
            self.transport.abort()
        elif self.transport.is_closing() or (self.pending and not self.in_request):
            pass  # it is the client's turn to read, or ours
        elif self.wire.paused:
            self.begun = now
        elif self.in_request or self.received:
            more = self.received / RATE if self.pending else 0.0
            if now > self.begun + seconds + more:
                self._refuse(408, "this request took too long to arrive")
        elif now > self.begun + (self.keep_alive if self.asked else seconds):
            self.wire.close()

    def is_asking(self) -> bool:
        """Whether the client has sent something that has not been read yet."""
        unread = bytearray(4)
        with suppress(OSError):
            ioctl(self.transport.get_extra_info("socket").fileno(), FIONREAD, unread)
        return any(unread)

    def lose(self) -> None:
        """End the connection at once."""
        self.shared.all.discard(self)
        self.shared.idle.pop(self, None)
        self.transport.abort()

    # What the client sends

    def data_received(self, data: bytes) -> None:
        if self.asked and not self.received and not self.in_request:
            self.begun = monotonic()
        forwarded = self.pending
        self.received += len(data)
        self.framing += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # it is answered as if it had not asked for one
        except HttpParserError:
            self.in_request = self.in_request and bool(forwarded)
            self.shared.asked -= self.pending - forwarded  # uvicorn gets nothing of this packet
            self.pending = forwarded
            self._refuse(*self.flaw)
            return
        if self.refused:
            return  # the rest of the body, until it is complete
        self.inner.data_received(data)
        if self.framing > MOST_HEAD:
            self._refuse(431, "the head of this request is too long")

    def on_message_begin(self) -> None:
        self.in_head = self.in_request = True
        self.head, self.url, self.given_id = 0, b"", ""

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            self.flaw = 400, "this request has headers after its body, which are not accepted"
            raise ValueError  # stops the parser
        if name.lower() == b"x-request-id":
            self.given_id = value.decode("latin-1")
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self.in_head, self.asked = False, True
        self.arrived = monotonic()
        asks = self.parser.get_method() == b"POST" and not self.url.startswith(b"/ping")
        if asks and not self.pending and (error := self.shared.full(self.shared.asked)):
            self.refused = True
            self._answer(error)
        else:
            self.pending += 1
            self.shared.asked += 1

    def on_body(self, body: bytes) -> None:
        self.framing = 0

    def on_message_complete(self) -> None:
        self.in_request = False
        self.received = self.framing = 0
        self.shared.idle.pop(self, None)
        if self.refused:
            self.wire.close()

    def _count(self, more: int) -> None:
        self.head += more
        if self.head > MOST_HEAD:
            self.flaw = 431, "the head of this request is too long"
            raise ValueError

    def _refuse(self, status: int, detail: str) -> None:
        """Close, and answer where the client expects an answer and none has begun."""
        if self.transport.is_closing():
            return
        in_body = self.in_request and not self.in_head
        if self.pending == in_body and not self.wire.begun:  # it is the only one, not answered yet
            self._answer(HttpError(status, detail))
        self.wire.close()

    def _answer(self, error: HttpError) -> None:
        """Answer in place of the application; the connection is closed afterwards."""
        token = correlation_id.set(request_id(self.given_id))
        try:
            client = (self.transport.get_extra_info("peername") or (None,))[0]
            self.shared.log.info("refused", status=error.status_code, client=client)
            self.shared.closed.labels(str(error.status_code)).inc()
            answer = response(error)
            answer.headers["Connection"] = "close"
            answer.headers["X-Request-ID"] = correlation_id.get() or ""
        finally:
            correlation_id.reset(token)
        line = f"HTTP/1.1 {error.status_code} {HTTPStatus(error.status_code).phrase}\r\n".encode()
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self.wire.write(b"".join((line, head, b"\r\n", bytes(answer.body))))
