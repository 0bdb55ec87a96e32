"""What every request and its answer have, whichever route there is."""

from time import monotonic

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forecaster_service.arrival import arrived
from forecaster_service.http_errors import CLIENT_LEFT, HttpError, response
from forecaster_service.logs import logger
from forecaster_service.metrics import Metrics, labels

PROBES = ("/livez", "/readyz", "/healthz", "/metrics")


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
            if connection := state.get("connection"):  # a Protocol; none under another server
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
