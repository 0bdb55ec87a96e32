"""Access control: hosts, API keys, and no requests from pages of other sites.

How often a client may ask, nginx limits: service/nginx/nginx.conf.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from forecaster_service import http_errors
from forecaster_service.http_errors import HttpError
from forecaster_service.metrics import Metrics
from forecaster_service.settings import Settings

OPEN = frozenset(("/", "/livez", "/readyz", "/healthz", "/version", "/openapi.json", "/docs"))
OPEN_FOLDERS = ("/page/", "/static-offline-docs/")
"""Answered without a key: probes, the page and the docs."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
SAFE = ("GET", "HEAD", "OPTIONS")


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
            await http_errors.response(error)(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        host = _hostname(b"//" + headers.get(b"host", b"")) or ""
        several = sum(name == b"host" for name, _ in scope["headers"]) > 1
        if several or not any(fnmatchcase(host, each) for each in self.hosts):
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
            raise http_errors.too_long(self.most)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self.keys and path not in OPEN and not path.startswith(OPEN_FOLDERS):
            state = scope.setdefault("state", {})
            state["key"] = self._name(headers.get(b"authorization", b""))

    def _name(self, given: bytes) -> str:
        """The name of a key. Raises HttpError 401."""
        scheme, _, key = given.partition(b" ")
        digest = sha256(key.strip()).digest()
        # compare all keys, each in constant time, so that the duration reveals nothing
        found = [name for name, known in self.keys if compare_digest(known, digest)]
        if scheme.lower() != b"bearer":
            detail, error = "expected the header Authorization: Bearer KEY", ""
        elif found:
            return found[0]
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
