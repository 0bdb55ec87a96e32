"""`forecaster serve --workers N`: uvicorn's processes on one socket, and what they share.

uvicorn starts them, and replaces those that die or hang. What they share lies in a folder that ends
with the service; tests/service/test_workers.py shows what would be lost without it:

- `models`: one poller asks the registry for all of them. A process that asks MLflow takes 200 MB,
  and the processes would serve different models for as long as their polls differ.
- `loaded`: a file for each process that has its models. The service is ready when all have, and a
  process that replaces another accepts no connection before: no request fails on it.
- `buckets`: a client's rate is that of the service, not of each process.
- `metrics`: the files of prometheus_client's multiprocess mode.
"""

import json
import os
import shutil
import signal
import socket
import sys
from asyncio import sleep
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from multiprocessing import parent_process
from pathlib import Path
from random import uniform
from tempfile import TemporaryDirectory
from threading import Event, Thread, Timer
from time import monotonic, time
from time import sleep as pause
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, multiprocess
from prometheus_client.registry import Collector
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from forecaster.errors import ForecasterError, UnavailableError, UsageError, of_status
from forecaster.files import write
from forecaster_service import logs
from forecaster_service.buckets import Buckets
from forecaster_service.process import Process
from forecaster_service.registry import Registry, State
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
LOOKING = 1.0
"""Seconds between two looks of a process at what the one poller has found."""
OLD = 600.0
"""Seconds after which the bundle of an older model is deleted; until then it may be loaded."""
FIRST = 600.0
"""Seconds that the one poller may take for its first answer."""


def run(host: str, port: int, workers: int, registry: Registry) -> None:
    """Serve in `workers` processes with the settings of the environment until a signal asks for the
    end, and close the `registry`, which is asked for models on behalf of all.

    Raises ConfigError for a wrong setting, UnavailableError if the address cannot be listened on,
    and ForecasterError if a process cannot start.
    """
    settings = from_environment()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UnavailableError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    with TemporaryDirectory(prefix="forecaster-") as name, logs.owning_stderr():
        place = Path(name)
        for folder in ("models", "loaded", "metrics"):
            (place / folder).mkdir()
        os.environ[PLACE] = f"{workers}:{place}"
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(place / "metrics")
        names = [each for each in settings.models if not Path(each).is_dir()]
        poller = Poller(registry, names, place / "models", settings.poll_seconds)
        try:
            ended = _supervise(listening, workers)
        finally:
            poller.close()
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
        if len(seen) > 1:
            for process in supervisor.processes:
                with suppress(ProcessLookupError):
                    os.kill(process.pid or 0, number)

    for number in before:
        signal.signal(number, note)
    try:
        supervisor.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return seen[0] if seen else None


class Poller:
    """Asks a registry what names resolve to and keeps it for other processes in a folder: what was
    found in `found.json`, and each bundle in a folder of its own."""

    def __init__(
        self, registry: Registry, names: Sequence[str], place: Path, seconds: float
    ) -> None:
        self.registry, self.names, self.place, self.seconds = registry, names, place, seconds
        self._ending, self._entries = Event(), dict[str, dict[str, Any]]()
        if names:
            Thread(target=self._watch, name="poll", daemon=True).start()

    def close(self) -> None:
        self._ending.set()
        self.registry.close()

    def poll(self) -> None:
        """Ask once. What was found earlier stays beside an error, for a process that starts."""
        found: Sequence[State | ForecasterError]
        try:
            found = self.registry.resolve(self.names)
        except ForecasterError as error:
            found = [error] * len(self.names)
        for name, state in zip(self.names, found, strict=True):
            self._entries[name] = self._kept(name, state)
        write(self.place / "found.json", json.dumps(self._entries).encode())
        used = {each.get("folder") for each in self._entries.values()}
        for folder in self.place.glob("*/"):
            if folder.name not in used and time() - folder.stat().st_mtime > OLD:
                shutil.rmtree(folder, ignore_errors=True)

    def _kept(self, name: str, state: State | ForecasterError) -> dict[str, Any]:
        if isinstance(state, ForecasterError):
            told = {"error": str(state), "status": state.exit_code}
            return {**self._entries.get(name, {}), **told}
        key = sha256(json.dumps([name, state], sort_keys=True).encode()).hexdigest()[:16]
        if not (self.place / key).is_dir():
            arriving = self.place / f"{key}.arriving"
            shutil.rmtree(arriving, ignore_errors=True)
            arriving.mkdir()
            try:
                state = self.registry.fetch(name, arriving)
            except ForecasterError as error:
                return self._kept(name, error)
            arriving.rename(self.place / key)
        return {"state": state, "folder": key}

    def _watch(self) -> None:
        while True:
            try:
                self.poll()
            except Exception:
                logs.logger().exception("poll failed")
            if not self.seconds or self._ending.wait(self.seconds * uniform(0.8, 1.2)):
                return


class Mirror:
    """The registry as the poller has found it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def resolve(self, names: Sequence[str]) -> list[State | UsageError]:
        found = self._found()
        answers: list[State | UsageError] = []
        for name in names:
            error = _error(found[name])
            if isinstance(error, UsageError):
                answers.append(error)
            elif error:
                raise error
            else:
                answers.append(found[name]["state"])
        return answers

    def fetch(self, name: str, folder: Path) -> State:
        found = self._found()[name]
        if "folder" not in found and (error := _error(found)):
            raise error
        try:
            shutil.copytree(self.place / found["folder"], folder, dirs_exist_ok=True)
        except OSError:
            raise UnavailableError(f"the bundle of {name} was replaced meanwhile") from None
        state: State = found["state"]
        return state

    def close(self) -> None:
        """Do nothing: the poller is in another process."""

    def _found(self) -> dict[str, dict[str, Any]]:
        file, end = self.place / "found.json", monotonic() + FIRST
        while not file.exists():
            if monotonic() > end:
                raise UnavailableError("the registry has not been asked yet")
            pause(0.05)
        found: dict[str, dict[str, Any]] = json.loads(file.read_bytes())
        return found


def _error(found: Mapping[str, Any]) -> ForecasterError | None:
    return of_status(found["status"])(found["error"]) if "error" in found else None


class Worker(Process):
    """One of several processes."""

    def __init__(self, number: int, place: Path) -> None:
        self.number, self.place, self._whole = number, place, False
        (place / "loaded" / f"{os.getpid()}.starting").touch()

    @property
    def whole(self) -> bool:  # type: ignore[override]
        self._whole = self._whole or (self.place / "whole").exists()
        return self._whole

    def buckets(self, per_minute: float) -> Buckets:
        return Buckets(per_minute, self.place / "buckets")

    def pause(self, seconds: float) -> float:
        return min(seconds, LOOKING)

    async def begin(self, loaded: Callable[[], bool]) -> None:
        if not self.whole:  # the service starts: /livez is to answer
            return
        before = {
            number: signal.signal(number, lambda number, frame: os._exit(128 + number))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        end = monotonic() + LONGEST
        while not loaded() and monotonic() < end:
            await sleep(0.02)
        for number, handler in before.items():
            signal.signal(number, handler)

    def loaded(self) -> None:
        (self.place / "loaded" / f"{os.getpid()}.loaded").touch()
        loaded = [each.stem for each in (self.place / "loaded").glob("*.loaded")]
        if sum(map(_lives, loaded)) >= self.number:
            (self.place / "whole").touch()

    def deaths(self) -> int:
        known = [each.stem for each in (self.place / "loaded").glob("*.starting")]
        dead = [each for each in known if not _lives(each)]
        for each in dead:
            multiprocess.mark_process_dead(int(each))  # type: ignore[no-untyped-call]
        return len(dead)

    def figures(self, own: CollectorRegistry) -> Collector | CollectorRegistry:
        return multiprocess.MultiProcessCollector(None)  # type: ignore[no-untyped-call]


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
        worker = Worker(int(workers), place)
        return create_app(from_environment(), Mirror(place / "models"), worker)
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
