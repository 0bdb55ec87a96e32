"""Access control: API keys, rate limits, and no requests from pages of other sites."""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from forecaster_service import http_errors
from forecaster_service.buckets import Buckets
from forecaster_service.http_errors import HttpError
from forecaster_service.metrics import Metrics
from forecaster_service.settings import Settings
from forecaster_service.store import Store

OPEN = frozenset(
    ("/", "/livez", "/readyz", "/healthz", "/ping", "/version", "/openapi.json", "/docs",
     "/docs/oauth2-redirect")
)  # fmt: skip
OPEN_FOLDERS = ("/page/", "/static-offline-docs/")
"""Answered without a key and without a rate limit: probes, the page and the docs."""
SAFE = ("GET", "HEAD", "OPTIONS")
WRONG_KEYS = 10
"""Wrong keys allowed per minute from one address."""


class Access:
    """ASGI middleware: answers 400 to several Host headers, 401, 403 and 429, and 503 to more
    requests at a time than can wait for the device.

    Puts the key's name into `request.state.key`. A request pays one token of the client's rate
    here, and `pay` takes what it costs beyond that. `buckets` makes the buckets for a rate per
    minute.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        buckets: Callable[[float], Buckets] = Buckets,
    ) -> None:
        self.app, self.metrics = app, metrics
        named = (entry.split(":") for entry in settings.api_keys)
        self.keys = [(name, bytes.fromhex(digest)) for name, digest in named]
        self.rates = buckets(settings.rate) if settings.rate else None
        self.wrong = buckets(WRONG_KEYS)
        self.running, self.most = 0, settings.max_queue + (settings.max_batch or 64)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.running += 1
        try:
            if scope["type"] == "http":
                self._admit(scope)
            await self.app(scope, receive, send)
        except HttpError as error:  # of _admit: the app answers its own
            self.metrics.refused(error.reason)
            await http_errors.response(error)(scope, receive, send)
        finally:
            self.running -= 1

    def _admit(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise HttpError(
                400, "expected one header Host, got several", headers={"Connection": "close"}
            )
        if scope["method"] not in SAFE and _foreign(headers):
            raise HttpError(
                403, "pages of other hosts may not send requests to this service", reason="origin"
            )
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in OPEN or path.startswith(OPEN_FOLDERS):
            return
        if self.running > self.most and path != "/metrics":
            store: Store = scope["app"].state.store
            raise store.busy("too many requests are being handled", "requests")
        client = (scope.get("client") or ("",))[0]
        if self.keys:
            client = self._name(headers.get(b"authorization", b""), client)
            scope.setdefault("state", {})["key"] = client
        if self.rates is not None:
            if wait := self.rates.take(client):
                raise _too_often(f"more than {self.rates.full:g} requests or series a minute", wait)
            scope.setdefault("state", {})["owe"] = partial(self.rates.take, client, owe=True)

    def _name(self, given: bytes, address: str) -> str:
        """The name of a key. Raises HttpError 401, or 429 after many wrong keys from one address.

        A valid key is accepted even then: keys are too long to be guessed, and one client must not
        lock out another at the same address.
        """
        scheme, _, key = given.partition(b" ")
        if scheme.lower() != b"bearer" or not key:
            raise _unauthorized("expected the header Authorization: Bearer KEY", "")
        digest = sha256(key.strip()).digest()
        # compare all keys, each in constant time, so that the duration reveals nothing
        found = [name for name, known in self.keys if compare_digest(known, digest)]
        if found:
            return found[0]
        if wait := self.wrong.take(address):
            raise _too_often("too many wrong keys", wait)
        raise _unauthorized("this key is not known here", ', error="invalid_token"')


def pay(request: Request, series: int) -> None:
    """Take a token for each series of a request but its first, which the request has paid for."""
    if series > 1 and (owe := getattr(request.state, "owe", None)):
        owe(series - 1)


def _unauthorized(detail: str, error: str) -> HttpError:
    headers = {"WWW-Authenticate": f'Bearer realm="forecaster"{error}'}
    return HttpError(401, detail, headers=headers, reason="key")


def _too_often(detail: str, wait: float) -> HttpError:
    seconds = ceil(wait)
    return HttpError(429, f"{detail}; try again in {seconds} s", retry=seconds, reason="rate")


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


def describe(schema: dict[str, Any], settings: Settings) -> None:
    """Describe keys and rate limits in /openapi.json, where there are any."""
    statuses = [401] * bool(settings.api_keys)
    statuses += [429] * bool(settings.api_keys or settings.rate)
    for path, operations in schema["paths"].items():
        for operation in operations.values() if path not in OPEN else ():
            operation["responses"] |= {
                str(status): told for status, told in http_errors.responses(*statuses).items()
            }
            if settings.api_keys:
                operation["security"] = [{"key": []}]
    if settings.api_keys:
        scheme = {"type": "http", "scheme": "bearer"}
        schema["components"]["securitySchemes"] = {"key": scheme}
