"""What every request passes, whichever route there is: access control, metrics, log.

How often a client may ask, nginx limits: service/nginx/nginx.conf.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forecaster_service.http_errors import CLIENT_LEFT, HttpError, response, too_long
from forecaster_service.logs import logger
from forecaster_service.metrics import Metrics, labels
from forecaster_service.settings import Settings

PROBES = ("/livez", "/readyz", "/healthz", "/metrics")
LONGEST = 60.0
"""The most seconds before its head was read that a request may have arrived."""
SAID = re.compile(rb"(t=)?\d{1,16}(\.\d{1,9})?")
OPEN = frozenset(("/", "/livez", "/readyz", "/healthz", "/version", "/openapi.json", "/docs"))
OPEN_FOLDERS = ("/page/", "/static-offline-docs/")
"""Answered without a key: probes, the page and the docs."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
SAFE = ("GET", "HEAD", "OPTIONS")


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
        work = state.get("work")
        facts = {
            "client": (scope.get("client") or (None,))[0],
            "key": state.get("key"),
            "model": model and f"{model.name} {model.digest}",
            "queue_ms": work and round(work.queue * 1e3, 2),
            "batch": work and work.batch,
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
    stamp = next((value for name, value in scope["headers"] if name == b"x-request-start"), b"")
    return read - _age(stamp, monotonic() - read)


def _age(stamp: bytes, known: float) -> float:
    """The seconds between X-Request-Start and the reading of the head, `known` seconds ago."""
    if not SAID.fullmatch(stamp):
        return 0.0
    return min(max(time() - known - float(stamp.removeprefix(b"t=")), 0.0), LONGEST)


class Access:
    """ASGI middleware: answers 400 to requests for other hosts, 401, 403 and
    413. Puts the key's name into `request.state.key`."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        named = (entry.split(":") for entry in settings.api_keys)
        self.keys = [(name, bytes.fromhex(digest)) for name, digest in named]
        self.hosts = (*LOCAL_HOSTS, *map(str.lower, settings.allowed_hosts))
        self.most = settings.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                self._admit(scope)
            await self.app(scope, receive, send)
        except HttpError as error:  # of _admit: the app answers its own
            self.metrics.refused(error.reason)
            await response(error)(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        host = _hostname(b"//" + headers.get(b"host", b"")) or ""
        several = sum(name == b"host" for name, _ in scope["headers"]) > 1
        if several or not any(fnmatchcase(host, pattern) for pattern in self.hosts):
            raise HttpError(
                400, "expected one header Host, with a name that this service answers for; "
                "FORECASTER_ALLOWED_HOSTS can add more", headers={"Connection": "close"},
            )  # fmt: skip
        if scope["method"] not in SAFE and _foreign(headers):
            raise HttpError(
                403, "pages of other hosts may not send requests to this service", reason="origin"
            )
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self.most:
            raise too_long(self.most)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self.keys and path not in OPEN and not path.startswith(OPEN_FOLDERS):
            state = scope.setdefault("state", {})
            state["key"] = self._name(headers.get(b"authorization", b""))

    def _name(self, given: bytes) -> str:
        """The name of a key. Raises HttpError 401."""
        scheme, _, key = given.partition(b" ")
        digest = sha256(key.strip()).digest()
        # compare all keys, each in constant time, so that the duration reveals nothing
        names = [name for name, known in self.keys if compare_digest(known, digest)]
        if scheme.lower() != b"bearer":
            detail, error = "expected the header Authorization: Bearer KEY", ""
        elif names:
            return names[0]
        else:
            detail, error = "this key is not known here", ', error="invalid_token"'
        headers = {"WWW-Authenticate": f'Bearer realm="forecaster"{error}'}
        raise HttpError(401, detail, headers=headers, reason="key")


def _foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser sends this on behalf of a page that the service did not serve."""
    if (site := headers.get(b"sec-fetch-site")) is not None:
        return site not in (b"same-origin", b"none")
    if (origin := headers.get(b"origin")) is None:
        return False
    # without ports: a proxy may pass on the host without its port
    return _hostname(origin) != _hostname(b"//" + headers.get(b"host", b""))


def _hostname(url: bytes) -> str | None:
    try:
        return urlsplit(url.decode("latin-1")).hostname
    except ValueError:  # not a valid URL, e.g. http://[
        return ""
