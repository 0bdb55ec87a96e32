"""When a request arrived: by the proxy in front if it is trusted, else when its head was read."""

import re
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from time import monotonic, time
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

LONGEST = 60.0
"""The most seconds before its head was read that a request may have arrived."""
SAID = re.compile(rb"(t=)?\d{1,16}(\.\d{1,9})?")


class Arrival:
    """ASGI middleware: `request.state.arrived` is when the request arrived, by time.monotonic().

    A proxy in `trusted` may say when in X-Request-Start: the seconds since 1970 as nginx writes
    them (t=1767225600.123), or milliseconds or microseconds. It tells the connection when the
    request has been answered.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self.app, self.trusted = app, frozenset(trusted)
        self.networks: list[IPv4Network | IPv6Network] = []
        for each in trusted:
            with suppress(ValueError):  # a name, as of a Unix socket
                self.networks.append(ip_network(each, strict=False))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        connection: Any = state.get("connection")  # a Protocol; none under another server
        arrived: float = connection.arrived if connection else monotonic()
        if self.trusted and self._trusts((scope.get("client") or ("",))[0]):
            said = next((v for name, v in scope["headers"] if name == b"x-request-start"), b"")
            arrived -= _age(said, monotonic() - arrived)
        state["arrived"] = arrived
        try:
            await self.app(scope, receive, send)
        finally:
            if connection:
                connection.answered()

    def _trusts(self, client: str) -> bool:
        if "*" in self.trusted or client in self.trusted:
            return True
        try:
            address = ip_address(client)
        except ValueError:
            return False
        return any(address in network for network in self.networks)


def _age(said: bytes, known: float) -> float:
    """The seconds between X-Request-Start and the reading of the head, `known` seconds ago."""
    if not SAID.fullmatch(said):
        return 0.0
    moment = float(said.removeprefix(b"t="))
    while moment > 1e11:  # a finer unit
        moment /= 1e3
    return min(max(time() - known - moment, 0.0), LONGEST)
