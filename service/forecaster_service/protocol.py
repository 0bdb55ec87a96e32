"""HTTP for slow, silent or many clients: a guard in front of uvicorn's protocol.

    uvicorn --factory forecaster_service.app:create_app --http forecaster_service.protocol:Protocol

uvicorn alone waits without limit for a request, and for a client to read its answer; behind nginx,
nginx sets these limits (service/nginx/nginx.conf). The guard parses each request by the parser that
uvicorn uses, and passes on only what is within the limits. Naming the class also rules out the
other parser of uvicorn, h11, which accepts requests that a proxy may interpret differently.
"""

import os
import sys
from asyncio import AbstractEventLoop, Transport, get_running_loop, sleep
from asyncio import Protocol as AsyncioProtocol
from contextlib import suppress
from http import HTTPStatus
from math import inf
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

if sys.platform != "win32":  # there, connections are no files, and a read is always under way
    from fcntl import ioctl
    from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
    from termios import FIONREAD

RATE = 2**16
"""Bytes of a request or an answer for which the client gets one more second."""
MOST_HEAD, PIECE = 2**15, 2**12
"""The most bytes of a request that are not its body: its head, and the framing of chunks. They are
counted from the first piece that begins with them."""
NEW = 1.0
"""Seconds in which a connection is not closed to make room: its request may be on its way."""
ENDING = 0.5
"""Seconds after the service has stopped listening in which an idle connection may still ask."""


class Connections:
    """What the connections of one service share: all of them, and in `idle` those without a
    complete request, the longest idle first."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.seconds, self.closed, self.log = settings.receive_seconds, metrics.closed, logger()
        self.all: set[Any] = set()
        self.idle: dict[Protocol, None] = {}
        self._told = False
        self.most = max(min(settings.max_connections, _files_left() * 4 // 5), 1)

    async def watch(self) -> None:
        """Close the connections of clients that are too slow, until cancelled."""
        pause, before = min(max(self.seconds / 10, 0.02), 1.0), monotonic()
        while True:
            await sleep(pause)
            now = monotonic()
            late, before = now - before - pause, now
            for connection in list(self.all):
                if late > 1:  # the service, not the client, was slow
                    connection.begun += late
                connection.look(now)
            self.make_room()

    def make_room(self) -> None:
        """Close the connections that have been idle for longest, while there are too many."""
        for oldest in list(self.idle) if len(self.all) > self.most else ():
            if len(self.all) <= self.most or monotonic() - oldest.begun < NEW:
                return
            socket = oldest.transport.get_extra_info("socket")
            if not _waits(socket):
                self.closed.labels("too many").inc()
                self.all.discard(oldest)
                del self.idle[oldest]
                oldest.transport.abort()

    def out_of_files(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: that it cannot accept, which it tries again a second
        later, is said once, not thousands of times."""
        if not str(context.get("message")).startswith("socket.accept() out of system resource"):
            loop.default_exception_handler(context)
        elif not self._told:
            self._told = True
            self.log.error("no file is left for connections, which wait: raise ulimit -n")


def _files_left() -> int:
    """How many files this process may still open, after raising its limit as far as it can."""
    if sys.platform == "win32":
        return sys.maxsize
    hard = getrlimit(RLIMIT_NOFILE)[1]
    with suppress(ValueError):  # a system may allow less than its hard limit
        setrlimit(RLIMIT_NOFILE, (hard, hard))
    files = getrlimit(RLIMIT_NOFILE)[0]
    return sys.maxsize if files == RLIM_INFINITY else files - len(os.listdir("/dev/fd"))


def _waits(socket: Any) -> bool:
    """Whether the client has sent something that nobody has read."""
    return sys.platform != "win32" and any(ioctl(socket, FIONREAD, bytes(4)))


class Protocol(AsyncioProtocol):
    """A connection whose client has `seconds` to send a request and `seconds` to read an answer,
    and more for large ones (see RATE).

    The time for a request begins with its first byte. `part` is the one that arrives, head or body;
    `pending` requests have arrived, at least their heads, and are not answered; the last head
    `arrived` then; `answers` says whether an answer has begun. Requests with trailers are refused:
    uvicorn takes them for headers.
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
        self.shared.all = server_state.connections  # the server ends those that are in it
        self.loop = _loop or get_running_loop()
        self.inner = HttpToolsProtocol(
            config, server_state, {**app_state, "connection": self}, self.loop
        )
        self.parser, self.keep_alive = HttpRequestParser(self), config.timeout_keep_alive
        self.part, self.given_id, self.answers = "", "", False
        self.received = self.framing = self.heads = self.pending = 0
        self.begun, self.arrived, self.unread_until = monotonic(), 0.0, inf

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.inner.connection_made(transport)
        self.shared.all.discard(self.inner)
        self.shared.all.add(self)
        self.shared.idle[self] = None
        self.shared.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)
        self.pending = 0
        self.shared.all.discard(self)
        self.shared.idle.pop(self, None)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.unread_until = inf  # the client reads
        self.inner.resume_writing()

    def shutdown(self) -> None:
        """Answer what has been asked or soon is, and close."""
        self.loop.call_later(ENDING, self.inner.shutdown)

    def answered(self) -> None:
        """Note that a request has been answered."""
        if self.pending:
            self.pending -= 1
            self.answers = False
            if not self.pending:
                self.begun = monotonic()
                self.shared.idle[self] = None

    @property
    def works(self) -> bool:
        """Whether the service has a complete request to answer."""
        return self.pending > (self.part == "body")

    def look(self, now: float) -> None:
        """Close the connection if its client has taken too long."""
        unread, seconds = self.transport.get_write_buffer_size(), self.shared.seconds
        if not unread:
            self.unread_until = inf
        elif self.unread_until == inf:
            self.unread_until = now + seconds + unread / RATE
        if now > self.unread_until:
            self.shared.closed.labels("unread").inc()
            self.transport.abort()
        elif self.works or self.transport.is_closing():
            pass  # it is our turn, or the client's to read
        elif not self.transport.is_reading():
            self.begun = now
        elif self.part or self.received:
            more = self.received / RATE if self.pending else 0.0
            if now > self.begun + seconds + more:
                self._refuse(408, "this request took too long to arrive")
        elif now > self.begun + (self.keep_alive if self.arrived else seconds):
            self.transport.close()

    # What the client sends

    def data_received(self, data: bytes) -> None:
        if not (self.received or self.part):
            self.begun = monotonic()
        self.received += len(data)
        self.heads = read = 0
        try:
            while read < len(data):
                piece = data[read : read + min(PIECE, MOST_HEAD - self.framing)]
                if not piece:
                    self._refuse(431, "the head of this request is too long")
                    return
                read += len(piece)
                self.framing += len(piece)
                self.parser.feed_data(piece)
        except HttpParserUpgrade:
            pass  # it is answered as if it had not asked for one
        except HttpParserError:  # uvicorn gets nothing of these data
            self._refuse(400, "this is no HTTP request, an ambiguous one, or one with trailers")
            return
        self.pending, self.heads = self.pending + self.heads, 0
        if self.works:
            self.shared.idle.pop(self, None)
        self.inner.data_received(data)

    def on_message_begin(self) -> None:
        self.part, self.given_id = "head", ""

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.part == "body":
            raise ValueError("a trailer")  # stops the parser
        if name.lower() == b"x-request-id":
            self.given_id = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.part, self.framing, self.arrived = "body", 0, monotonic()
        self.heads += 1

    def on_body(self, body: bytes) -> None:
        self.framing = 0

    def on_message_complete(self) -> None:
        self.part, self.received, self.framing = "", 0, 0

    def _refuse(self, status: int, detail: str) -> None:
        """Close, and answer where the client expects an answer and none has begun."""
        self.shared.closed.labels(str(status)).inc()
        done = self.part == "body" and not self.pending + self.heads  # answered early
        if not (done or self.works or self.answers):
            self._answer(HttpError(status, detail))
        self.transport.close()

    def _answer(self, error: HttpError) -> None:
        """Answer in place of the application; the connection is closed afterwards."""
        self.answers = True
        correlation_id.set(request_id(self.given_id))
        client = (self.transport.get_extra_info("peername") or (None,))[0]
        self.shared.log.info("refused", status=error.status_code, client=client)
        answer = response(error)
        answer.headers.update({"Connection": "close", "X-Request-ID": correlation_id.get() or ""})
        line = f"HTTP/1.1 {error.status_code} {HTTPStatus(error.status_code).phrase}\r\n".encode()
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self.transport.write(b"".join((line, head, b"\r\n", bytes(answer.body))))
