"""Serve models over HTTP."""

import os
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster.base import extras
from forecaster.base.errors import ForecasterError, Stopped, UnavailableError, UsageError
from forecaster.base.names import NEWEST
from forecaster.cli.options import MODEL, Count, Device, Gpus, Ray, check_gpus, described
from forecaster.cli.output import row, say


@described(
    model=f"{MODEL} Give it again to serve several; the first is the default.",
    host="Address to listen on.",
    port="Port to listen on.",
    workers="Processes that share port and keys.",
    replicas="With --ray: processes.",
    new_key="Make an API key for this name, and serve nothing.",
)
def serve(
    model: list[str] | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    device: Device = None,
    workers: Annotated[int, typer.Option(min=1, max=64)] = 1,
    ray: Ray = None,
    replicas: Count = 2,
    gpus: Gpus = 0.0,
    new_key: str | None = None,
) -> None:
    """Serve a model over HTTP: a page at /, docs at /docs.

    Without --model (or FORECASTER_MODEL), the champion of what was trained last is served, and
    replaced by what is trained later. Variables FORECASTER_... set keys, hosts and limits
    (docs/operate.md#settings).

    Example: forecaster serve --model forecaster-ETTh1-M-all-336 --port 8080
    """
    if new_key is not None:
        _new_key(new_key)
        return
    extras.check("uvicorn", "forecaster serve")
    check_gpus(gpus, ray)
    if ray is not None and workers > 1:
        raise UsageError("--workers is for one machine without Ray: with --ray, use --replicas")
    if workers > 1 and sys.platform != "linux":
        raise UsageError(f"--workers needs Linux, got {sys.platform}: serve in one process")
    if device is not None:
        os.environ["FORECASTER_DEVICE"] = device
    if ray in (None, "local"):
        _check_free(host, port)
    set_before = os.environ.get("FORECASTER_MODEL", "")
    named = ",".join(model or ([] if set_before else [NEWEST]))
    os.environ["FORECASTER_MODEL"] = named or set_before
    # imported by name, as below: the library must not import packages above it
    settings = import_module("forecaster_service.settings").from_environment()
    registry = import_module("forecaster_service.registry").Child(settings)
    if named:
        _check_models(settings.models, registry)
    if host not in ("localhost", "127.0.0.1", "::1") and not os.environ.get("FORECASTER_API_KEYS"):
        _tell(
            f"warning: anyone who can reach {host} can use this service. To require a key, set "
            "FORECASTER_API_KEYS; forecaster serve --new-key NAME makes one."
        )
    how = f" with {workers} workers" if workers > 1 else ""
    what = os.environ["FORECASTER_MODEL"]
    _tell(f"starting the service of {what} on http://{host}:{port}{how} (docs at /docs)")
    try:
        if ray is not None:
            registry.close()  # each replica has its own
            import_module("forecaster_service.replicas").serve(ray, host, port, replicas, gpus)
        elif workers > 1:
            import_module("forecaster_service.workers").run(host, port, workers, registry)
        else:
            import_module("forecaster_service.server").run(host, port, registry)
    except Stopped as error:
        _tell("stopped")
        error.reported = True
        raise
    except ForecasterError as error:
        _tell(f"error: {error}")
        raise typer.Exit(error.exit_code) from None


def _tell(text: str) -> None:
    """Log a sentence in the form of the service's other messages."""
    import_module("forecaster_service.logs").say(text)


def _check_models(names: Sequence[str], registry: Any) -> None:
    """Raise UnavailableError for a model that does not exist. If the tracker is away, the check is
    left to the service, which tries again; so is a model named by the environment, as for a service
    that starts before its first model exists."""
    from forecaster.base.installation import is_bundle, no_bundle, tracking_uri

    for name in names:
        if Path(name).is_dir() and not is_bundle(Path(name)):
            raise UnavailableError(no_bundle(Path(name)))
    registered = [name for name in names if not Path(name).is_dir()]
    try:
        for name in registered:
            registry.state(name)
    except UsageError as error:
        raise UnavailableError(str(error)) from None
    except ForecasterError as error:
        if tracking_uri().startswith("sqlite:"):
            raise
        _tell(f"warning: {error}. The service keeps looking for {', '.join(registered)}.")


def _check_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}, port {port}: {error.strerror}. Choose another --port or "
            "--host."
        ) from None


def _new_key(name: str) -> None:
    import hashlib
    import re
    import secrets

    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise UsageError(
            f"--new-key: expected letters, digits and . _ - (64 at most), got '{name}'"
        )
    key = secrets.token_urlsafe(32)
    row("key", key)
    row("setting", f"FORECASTER_API_KEYS={name}:{hashlib.sha256(key.encode()).hexdigest()}")
    say("The key is for the client and is shown only now; the service's setting is not secret.")
