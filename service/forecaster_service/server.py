"""Serve in one process: uvicorn with our protocol, and without its own log lines."""

from typing import Any

import uvicorn
from fastapi import FastAPI

from forecaster_service.logs import owning_stderr
from forecaster_service.registry import Found

HOW: dict[str, Any] = {
    "loop": "asyncio",  # uvloop accepts about one connection a turn, and the others wait unseen
    "http": "forecaster_service.protocol:Protocol",
    "ws": "none",
    "proxy_headers": False,  # FORECASTER_TRUSTED_PROXIES sets who may pass on client addresses
    "access_log": False,
    "log_config": None,  # its messages become lines of our log
    "server_header": False,
    "timeout_keep_alive": 75,  # longer than proxies and clients keep theirs
    "timeout_graceful_shutdown": 60,  # for clients whose request or answer is stuck
}
"""Options of uvicorn, for one process and for each of several."""


def run(host: str, port: int, registry: Found | None = None) -> None:
    """Serve with the settings of the environment until a signal asks for the end.

    `registry` is the one that is asked for models, as `create_app` takes it.
    """

    def create() -> FastAPI:
        from forecaster_service.app import create_app

        return create_app(registry=registry)

    with owning_stderr():
        uvicorn.run(create, factory=True, host=host, port=port, log_level="info", **HOW)
