"""What every request and its answer have, whichever route there is."""

import re
from time import monotonic, time
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forecaster_service.http_errors import CLIENT_LEFT, HttpError, response
from forecaster_service.logs import logger
from forecaster_service.metrics import Metrics, labels

PROBES = ("/livez", "/readyz", "/healthz", "/metrics")
LONGEST = 60.0
"""The most seconds before its head was read that a request may have arrived."""
SAID = re.compile(rb"(t=)?\d{1,16}(\.\d{1,9})?")


class Watch:
    """ASGI middleware: counts and times every request, and logs all but successful probes.

    HEAD is answered as GET, where the server leaves out the body. No answer may be taken for
    another type than it has, and while the service shuts down, each closes its connection. An
    unexpected exception becomes a plain 500; the traceback goes only to the log. Of a request's
    headers, body and query only its id is logged.

    `request.state.arrived` is when the request arrived, by time.monotonic(). A route that knows
    which model was asked puts its identity into `request.state.model`.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        self.log = logger().bind()  # binding once is cheaper than for each line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state, status, left = scope.setdefault("state", {}), 0, False
        state["arrived"] = arrived(scope)
        connection: Any = state.get("connection")  # a Protocol; none under another server
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope

        async def hear() -> Message:
            nonlocal left
            message = await receive()
            left = left or (message["type"] == "http.disconnect" and not status)
            return message

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if connection:
                    connection.answers = True
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                if scope["app"].state.store.draining:
                    headers["Connection"] = "close"
            await send(message)

        self.metrics.in_flight.inc()
        try:
            await self.app(inner, hear, watch)
        except Exception:
            self.log.exception("request failed")
            if not status:
                error = HttpError(500, "an error of the service; see its log")
                await response(error)(scope, receive, watch)
        finally:
            if connection:
                connection.answered()
            self.metrics.in_flight.dec()
            self._note(inner, scope["method"], CLIENT_LEFT if left else status)

    def _note(self, scope: Scope, method: str, status: int) -> None:
        state = scope["state"]
        seconds = monotonic() - state["arrived"]
        route, model = getattr(scope.get("route"), "path", "other"), state.get("model")
        self.metrics.requests.labels(route, status, *labels(model)).inc()
        self.metrics.seconds.labels(route, *labels(model)).observe(seconds)
        if status == 200 and scope["path"] in PROBES:
            return
        done = state.get("done")
        facts = {
            "client": (scope.get("client") or (None,))[0],
            "key": state.get("key"),
            "model": model and f"{model.name} {model.digest}",
            "queue_ms": done and round(done.queue * 1e3, 2),
            "batch": done and done.batch,
        }
        self.log.info(
            "request",
            method=method,
            path=scope["path"][:200],
            route=route,
            status=status,
            ms=round(seconds * 1e3, 2),
            **{name: fact for name, fact in facts.items() if fact},
        )


def arrived(scope: Scope) -> float:
    """When a request arrived, by time.monotonic().

    A trusted proxy that passes on the client's address may say when in X-Request-Start: the seconds
    since 1970 as nginx writes them (t=1767225600.123). uvicorn's ProxyHeadersMiddleware, which
    comes before, gives the client of such a request port 0, which no connection has.
    """
    connection = scope["state"].get("connection")
    read: float = connection.arrived if connection else monotonic()
    if (scope.get("client") or ("", None))[1] != 0:
        return read
    said = next((value for name, value in scope["headers"] if name == b"x-request-start"), b"")
    return read - _age(said, monotonic() - read)


def _age(said: bytes, known: float) -> float:
    """The seconds between X-Request-Start and the reading of the head, `known` seconds ago."""
    if not SAID.fullmatch(said):
        return 0.0
    return min(max(time() - known - float(said.removeprefix(b"t=")), 0.0), LONGEST)
