"""One JSON line on stderr for each request and each event, with the request's id."""

import sys
from time import perf_counter
from typing import Any

import structlog
from asgi_correlation_id import correlation_id
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from service.problems import Problem, response

PROBES = ("/livez", "/readyz", "/healthz")


def _request_id(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if request_id := correlation_id.get():
        event["request_id"] = request_id
    return event


def logger() -> FilteringBoundLogger:
    """The service's logger; structlog's global configuration stays as it is."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _request_id,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )
    return log


class RequestLog:
    """ASGI middleware: a line for each request but probes that went well.

    What was not foreseen becomes a plain 500; the traceback goes to the log, nothing of it to the
    client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.log = logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = perf_counter()
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception:
            self.log.exception("request failed")
            if not status:
                problem = Problem(500, "an error of the service; its log tells more")
                await response(problem)(scope, receive, watch)
        finally:
            if not (status == 200 and scope["path"] in PROBES):
                facts: dict[str, Any] = {"method": scope["method"], "path": scope["path"][:200]}
                milliseconds = round((perf_counter() - began) * 1e3, 2)
                self.log.info("request", **facts, status=status, ms=milliseconds)
