"""When a request arrived: by the proxy in front if it is trusted, else when its head was read."""

import re
from time import monotonic, time
from typing import Any

from starlette.types import Scope

LONGEST = 60.0
"""The most seconds before its head was read that a request may have arrived."""
SAID = re.compile(rb"(t=)?\d{1,16}(\.\d{1,9})?")


def arrived(scope: Scope) -> float:
    """When a request arrived, by time.monotonic().

    A trusted proxy that passes on the client's address may say when in X-Request-Start: the seconds
    since 1970 as nginx writes them (t=1767225600.123), or milliseconds or microseconds. uvicorn's
    ProxyHeadersMiddleware, which comes before, gives the client of such a request port 0, which no
    connection has.
    """
    connection: Any = scope["state"].get("connection")  # a Protocol; none under another server
    read: float = connection.arrived if connection else monotonic()
    if (scope.get("client") or ("", None))[1] != 0:
        return read
    said = next((value for name, value in scope["headers"] if name == b"x-request-start"), b"")
    return read - _age(said, monotonic() - read)


def _age(said: bytes, known: float) -> float:
    """The seconds between X-Request-Start and the reading of the head, `known` seconds ago."""
    if not SAID.fullmatch(said):
        return 0.0
    moment = float(said.removeprefix(b"t="))
    while moment > 1e11:  # a finer unit
        moment /= 1e3
    return min(max(time() - known - moment, 0.0), LONGEST)
