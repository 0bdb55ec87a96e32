"""HTTP for slow, silent or many clients: uvicorn's httptools protocol with deadlines.

    uvicorn --factory forecaster_service.app:create_app --http forecaster_service.protocol:Protocol

uvicorn alone waits without limit for a request, and for a client to read its answer. Naming the
class also rules out the parser h11, which accepts requests that a proxy may interpret differently.
"""

from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections import OrderedDict
from contextlib import suppress
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from time import monotonic
from typing import Any

from asgi_correlation_id import correlation_id
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from forecaster_service.http_errors import HttpError, response
from forecaster_service.logs import logger, new_id
from forecaster_service.metrics import Metrics
from forecaster_service.settings import Settings

RATE = 2**16
"""Bytes of a request or an answer for which the client gets one more second."""
MOST_HEAD = 2**15
"""The most bytes of a request that are not its body: its head, and the framing of chunks."""


class Connections:
    """What the connections of one service share.

    `idle` holds those without a complete request, the longest idle first.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.seconds, self.closed, self.log = settings.receive_seconds, metrics.closed, logger()
        self.idle: OrderedDict[Protocol, None] = OrderedDict()
        self.open = 0
        self.most_requests = settings.max_queue + (settings.max_batch or 64)  # with one series each
        most = settings.max_connections
        self.most = min(most, _open_files(most * 5 // 4 + 1) * 4 // 5)

    def make_room(self) -> None:
        """Close the connection that has been idle for longest, to make room for a newer one."""
        oldest, _ = self.idle.popitem(last=False)
        oldest.transport.abort()
        self.closed.labels("too many").inc()


def _open_files(wanted: int) -> int:
    """How many files the process may have open, after requesting a limit of `wanted`."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != RLIM_INFINITY and soft < wanted:
        more = wanted if hard == RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError):  # a system may allow less than its hard limit
            setrlimit(RLIMIT_NOFILE, (more, hard))
            return more
    return wanted if soft == RLIM_INFINITY else soft


class _Whole:
    """The transport of one answer, which sends the head together with the first part of the body.

    Sent separately they are two packets, which wake a waiting client twice.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None  # None until there is one

    def write(self, data: bytes) -> None:
        if self._head is None and not data.startswith(STATUS_LINE[100]):
            self._head = data
        else:
            self._transport.write(self._taken() + data)

    def close(self) -> None:
        if head := self._taken():
            self._transport.write(head)
        self._transport.close()

    def _taken(self) -> bytes:
        """Take the head, empty if it has been sent already."""
        head = self._head or b""
        self._head = self._head and b""
        return head

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class Protocol(HttpToolsProtocol):
    """A connection whose client has `seconds` to send a request and `seconds` to read an answer,
    and more for large ones (see RATE).

    The time for a request begins with its first byte, for the first request with the connection.
    Between requests uvicorn's limit applies (--timeout-keep-alive).
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.ws_protocol_class = None  # no route uses WebSockets, and they would have no deadlines
        self.shared: Connections = app_state["connections"]
        self.in_head = self.in_request = False
        self.received = self.framing = 0
        self.begun = 0.0
        self.receiving: TimerHandle | None = None
        self.sending: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.shared.idle[self] = None
        self.shared.open += 1
        self._await_request()
        if len(self.connections) > self.shared.most:
            self.shared.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.shared.open -= 1
        self.shared.idle.pop(self, None)
        self._stop_receiving()
        self._stop_sending()

    # What the client sends

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.framing += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.in_request or (self.received and self._answered()):
            if self.receiving is None:
                self._await_request()
            if self.framing > MOST_HEAD:
                self._refuse(431, "the head of this request is too long")
            return
        self._stop_receiving()
        if self._answered():  # before the whole request arrived: uvicorn then sets no timeout
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_head = self.in_request = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # ignore trailers, which come after the body
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MOST_HEAD:
            self._refuse(431, "the head of this request is too long")
            raise ValueError  # stops the parser
        if [name for name, _ in self.headers].count(b"host") > 1:
            self._refuse(400, "expected one header Host, got several")
            raise ValueError
        # decided before the request runs, so that of 10,000 at once not all are started
        busy = len(self.tasks) >= self.shared.most_requests
        super().on_headers_complete()
        self.scope["state"] |= {"busy": busy, "arrived": monotonic()}
        if self.scope["method"] != "HEAD":
            self.cycle.transport = _Whole(self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self.framing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope["state"]["arrived"] = monotonic()  # the client has done its part
        self.in_request = False
        self.received = self.framing = 0
        if not self.cycle.response_complete:
            self.shared.idle.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not an HTTP request, or an ambiguous one")

    def _answered(self) -> bool:
        """Whether every request that arrived has been answered."""
        return self.cycle is None or self.cycle.response_complete

    def _await_request(self) -> None:
        self.begun = self.loop.time()
        self.receiving = self.loop.call_later(self.shared.seconds, self._receive_deadline)

    def _stop_receiving(self) -> None:
        if self.receiving is not None:
            self.receiving.cancel()
            self.receiving = None

    def _receive_deadline(self) -> None:
        more = 0.0 if self._answered() else self.received / RATE
        left = self.begun + self.shared.seconds + more - self.loop.time()
        if self.flow.read_paused or left < -1:  # the service, not the client, is slow
            self._await_request()
        elif left > 0:
            self.receiving = self.loop.call_later(left, self._receive_deadline)
        elif self.received or self.in_request:
            self._refuse(408, "this request took too long to arrive")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer, unless another answer has begun, and close."""
        if self.transport.is_closing():
            return
        waits = not self._answered()
        if not self.pipeline and not (waits and self.cycle.response_started):
            self.transport.write(self._error(status, detail))
        if waits:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._await_reader()

    def _error(self, status: int, detail: str) -> bytes:
        token = correlation_id.set(new_id())
        try:
            self.shared.log.info("refused", status=status, client=self.client and self.client[0])
            self.shared.closed.labels(str(status)).inc()
            headers = {"Connection": "close", "X-Request-ID": str(correlation_id.get())}
            answer = response(HttpError(status, detail, headers=headers))
        finally:
            correlation_id.reset(token)
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        return b"".join((STATUS_LINE[status], head, b"\r\n", answer.body))

    # What the client reads

    def on_response_complete(self) -> None:
        idle = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()
        elif idle:
            self.shared.idle[self] = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_reader()

    def shutdown(self) -> None:
        super().shutdown()
        self._await_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_sending()

    def _await_reader(self) -> None:
        size = self.transport.get_write_buffer_size()
        if size and self.sending is None:
            self.sending = self.loop.call_later(self.shared.seconds + size / RATE, self._unread)

    def _stop_sending(self) -> None:
        if self.sending is not None:
            self.sending.cancel()
            self.sending = None

    def _unread(self) -> None:
        self.shared.closed.labels("unread").inc()
        self.transport.abort()
