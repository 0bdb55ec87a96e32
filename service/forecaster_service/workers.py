"""`forecaster serve --workers N`: uvicorn's processes on one socket, and what they share.

uvicorn starts them, and replaces those that die or hang. What they share lies in a folder that ends
with the service; tests/service/test_workers.py shows what would be lost without it:

- `models`: what the one child that asks MLflow has found. It takes 200 MB, and with one for each
  the processes would serve different models for as long as their polls differ.
- `processes`: a file for each that was started, by which those that died are counted.
- `metrics`: the files of prometheus_client's multiprocess mode.
"""

import os
import signal
import socket
import sys
from asyncio import sleep
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from multiprocessing import parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, Timer
from time import monotonic
from types import FrameType

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Metric, multiprocess
from prometheus_client.registry import Collector
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from forecaster.base.errors import ForecasterError, UnavailableError
from forecaster_service import logs
from forecaster_service.process import Process
from forecaster_service.registry import Child, Found
from forecaster_service.server import HOW
from forecaster_service.settings import from_environment

PLACE = "FORECASTER_WORKERS_PLACE"
"""The variable with the folder and the number of the processes."""
HUNG = 20
"""Seconds without an answer after which uvicorn replaces a process, which may import for long. It
also waits so long for one that dies between its question and the answer."""
ENDING = 70.0
"""Seconds after which a process without a parent is gone, whatever holds it."""
LONGEST = 300.0
"""Seconds that a process waits for its models before it accepts connections without them."""


def run(host: str, port: int, workers: int, registry: Child) -> None:
    """Serve in `workers` processes with the settings of the environment until a signal asks for the
    end, and close the `registry`, which is asked for models on behalf of all.

    Raises ConfigError for a wrong setting, UnavailableError if the address cannot be listened on,
    and ForecasterError if a process cannot start.
    """
    from_environment()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UnavailableError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    with TemporaryDirectory(prefix="forecaster-") as name, logs.owning_stderr():
        place = Path(name)
        for folder in ("processes", "metrics"):
            (place / folder).mkdir()
        (place / "models").symlink_to(registry.place)
        os.environ[PLACE] = f"{workers}:{place}"
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(place / "metrics")
        try:
            ended = _supervise(listening, workers)
        finally:
            registry.close()
            listening.close()
    if ended is None:
        raise ForecasterError("the processes of the service cannot start; see the lines above")
    signal.raise_signal(ended)


def _supervise(listening: socket.socket, workers: int) -> int | None:
    """Run the processes until a signal; returns it, or None if they cannot start. A second signal
    ends them at once."""
    config = uvicorn.Config(
        "forecaster_service.workers:create_worker", factory=True, workers=workers,
        timeout_worker_healthcheck=HUNG, log_level="info", **HOW,
    )  # fmt: skip
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    supervisor, seen = Multiprocess(config, [listening]), list[int]()

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        supervisor.signal_queue.append(number)
        for process in supervisor.processes if len(seen) > 1 else ():
            process.kill()

    for number in before:
        signal.signal(number, note)
    try:
        supervisor.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return seen[0] if seen else None


class ServiceWorker(Process):
    """One of several processes. It accepts no connection before it has its models, so that no
    request fails on one that replaces another."""

    def __init__(self, number: int, place: Path) -> None:
        self.number, self.place = number, place
        (place / "processes" / str(os.getpid())).touch()

    async def begin(self, loading: Callable[[], bool]) -> None:
        before = {
            number: signal.signal(number, lambda number, frame: os._exit(128 + number))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        end = monotonic() + LONGEST
        while loading() and monotonic() < end:
            await sleep(0.02)
        for number, handler in before.items():
            signal.signal(number, handler)

    def deaths(self) -> int:
        dead = [pid for pid in os.listdir(self.place / "processes") if not _lives(pid)]
        for pid in dead:
            with suppress(FileNotFoundError):  # another process has removed its files meanwhile
                multiprocess.mark_process_dead(int(pid))  # type: ignore[no-untyped-call]
        return len(dead)

    def figures(self, registry: CollectorRegistry) -> Collector:
        return Figures(self.place / "metrics")


class Figures(Collector):
    """The metrics of all processes. A file is empty until the process that made it gives it a size,
    and stays so if that is killed before; prometheus_client cannot read one (its issue 1199)."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def collect(self) -> Iterable[Metric]:
        files = [str(file) for file in self.place.glob("*.db") if _begun(file)]
        return multiprocess.MultiProcessCollector.merge(files)  # type: ignore[no-any-return, no-untyped-call]


def _begun(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # of a process that has died
        return False


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def create_worker() -> FastAPI:
    """The application of one of several processes; ends the process if it cannot be made."""
    import torch

    from forecaster_service.app import create_app

    os.setpgid(0, 0)  # Ctrl-C goes to the parent, which passes it on
    workers, _, name = os.environ[PLACE].partition(":")
    place = Path(name)
    logs.ABOUT.update(pid=os.getpid())
    Thread(target=_follow, name="parent", daemon=True).start()
    torch.set_num_threads(max(1, torch.get_num_threads() // int(workers)))
    ExitStack().enter_context(logs.owning_stderr())  # until the process ends
    try:
        worker = ServiceWorker(int(workers), place)
        return create_app(from_environment(), Found(place / "models"), worker)
    except Exception:
        logs.logger().exception("the service cannot start")
        logs.LINES.drain()
        sys.exit(STARTUP_FAILURE)


def _follow() -> None:
    """End with the parent, which may have been killed."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    timer = Timer(ENDING, os._exit, (1,))
    timer.daemon = True
    timer.start()
    os.kill(os.getpid(), signal.SIGTERM)
