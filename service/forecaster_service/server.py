"""How one process serves: uvicorn with our protocol, and with no words of its own."""

from typing import Any

import uvicorn

HOW: dict[str, Any] = {
    "http": "forecaster_service.protocol:Protocol",
    "ws": "none",
    "proxy_headers": False,  # FORECASTER_TRUSTED_PROXIES says who may tell of clients
    "access_log": False,
    "server_header": False,
    "timeout_keep_alive": 75,  # longer than proxies and clients keep theirs
    "timeout_graceful_shutdown": 60,  # for clients whose request or answer stands still
}
"""What uvicorn is told, for one process and for each of several."""


def run(host: str, port: int) -> None:
    """Serve with the settings of the environment until a signal asks for the end."""
    uvicorn.run("forecaster_service.app:create_app", factory=True, host=host, port=port, **HOW)
