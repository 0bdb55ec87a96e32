"""`forecaster serve --workers N`: the process that starts and replaces the others.

All workers accept connections from one socket, so that connections that a dying worker has not
accepted yet go to another. A worker that replaces another accepts none before it has the same
models as the others.
"""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import uniform
from threading import Event, Lock, Thread
from types import FrameType
from typing import Any

from forecaster.errors import ForecasterError, UnavailableError, UsageError
from forecaster_service.channel import Channel
from forecaster_service.gathering import Figures, counted, gathered
from forecaster_service.logs import logger, owning_stderr
from forecaster_service.registry import Registry
from forecaster_service.server import HOW
from forecaster_service.settings import Settings, from_environment
from forecaster_service.shared_buckets import new_table

TICK = 0.1
"""Seconds between two looks at the processes."""
LOOKING, STARTING = 2.0, 0.2
"""Seconds between two questions to a worker about its state, usually and while it starts."""
SILENT = 120.0
"""Seconds without an answer after which a worker counts as hung."""
SWAPPING = 1800.0
"""Seconds that a worker may take to look for newer models and load them."""
PATIENCE = 5.0
"""Seconds that a worker has to send its metrics; after that its last ones count."""
BACKOFF, LONGEST, WELL = 0.5, 30.0, 60.0
"""Seconds before a worker that died is restarted, doubled each time up to the longest; a worker
that lived for longer than WELL is restarted at once."""
ATTEMPTS = 3
"""How many times workers may end before any has served; then the service ends, too."""
BACKLOG = 2048


def run(host: str, port: int, workers: int, registry: Registry) -> None:
    """Serve in `workers` processes with the settings of the environment until a signal asks for the
    end, and close the `registry`, which all of them ask for models.

    Raises ConfigError for a wrong setting, UnavailableError if the address cannot be listened on,
    and ForecasterError if the processes end as they start.
    """
    settings = from_environment()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UnavailableError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    try:
        with owning_stderr():
            Supervisor(settings, listening, workers, registry).run()
    finally:
        registry.close()


class _Worker:
    """A process, its last reported state, and the channel to it."""

    def __init__(
        self, number: int, workers: int, listening: socket.socket, table: int,
        answers: dict[str, Callable[..., Any]],
    ) -> None:  # fmt: skip
        ours, theirs = socket.socketpair()
        files = listening.fileno(), theirs.fileno(), table
        command = [sys.executable, "-m", "forecaster_service.worker", *map(str, (number, workers))]
        self.number, self.begun = number, time.monotonic()
        # Ctrl-C goes to the parent, which forwards it
        self.process = subprocess.Popen(
            [*command, *map(str, files)], pass_fds=files, process_group=0
        )
        theirs.close()
        self.status = "starting"
        self.listening = self.whole = self.differs = False
        self.digests: list[str] = []
        self.figures: Figures = []
        self.heard = time.monotonic()
        self._looking, self._gone = Lock(), Event()
        self.channel = Channel(ours, answers, self._gone.set)
        Thread(target=self._watch, name=f"worker-{number}", daemon=True).start()

    def look(self) -> None:
        """Ask the worker for its state; without an answer the last one stays."""
        with self._looking:  # so that older figures never replace newer ones
            try:
                found = self.channel.ask("look", seconds=PATIENCE)
            except ForecasterError:
                return
            self.heard = time.monotonic()
            self.status = found["status"]
            self.listening = found.get("listening", False)
            self.whole = found.get("whole", False)
            self.digests, self.figures = found.get("digests", []), found.get("figures", [])

    def tell(self, what: str, *arguments: Any) -> None:
        """Ask the worker to do something; ignore a worker that is gone."""
        try:
            self.channel.ask(what, *arguments, seconds=PATIENCE)
        except ForecasterError:
            return

    def _watch(self) -> None:
        while not self._gone.wait(LOOKING if self.listening else STARTING):
            self.look()

    @property
    def ready(self) -> bool:
        return self.listening and self.status == "ready"


class Supervisor:
    """Keeps `count` workers on a socket."""

    def __init__(
        self, settings: Settings, listening: socket.socket, count: int, registry: Registry
    ) -> None:
        self.settings, self.listening, self.count = settings, listening, count
        self.registry = registry
        self._resolving = Lock()
        self._resolved: dict[tuple[str, ...], list[dict[str, str]]] = {}
        self.table, self.log = new_table(), logger()
        self.workers: dict[int, _Worker] = {}
        self.whole = self.served = False
        self._changing = Lock()  # guards the living workers and the figures of the dead
        self._dead: Figures = []
        self._deaths = self._failures = 0
        self._due: dict[int, float] = dict.fromkeys(range(1, count + 1), 0.0)
        self._signals: list[int] = []
        self._ending, self._poll_now = Event(), Event()

    def run(self) -> None:
        """Run until a signal asks for the end and all workers are gone, or none can be started."""
        handled = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._note) for number in handled}
        Thread(target=self._poll, name="poll", daemon=True).start()
        told = 0
        try:
            while not self._signals:
                self.tend()
                time.sleep(TICK)
            self._ending.set()
            self.listening.close()
            last = self.settings.drain_seconds + HOW["timeout_graceful_shutdown"] + 10
            end = time.monotonic() + last
            while self.workers and time.monotonic() < end:
                for number in self._signals[told:]:
                    for worker in list(self.workers.values()):
                        Thread(target=worker.tell, args=("signal", number), daemon=True).start()
                    told += 1
                self._bury()
                time.sleep(TICK)
        finally:
            self._ending.set()
            for worker in self.workers.values():
                worker.process.kill()
                worker.process.wait()
            for number, handler in before.items():
                signal.signal(number, handler)
        signal.raise_signal(self._signals[0])

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def tend(self) -> None:
        """Replace workers that are gone, and let those accept connections that may."""
        self._bury()
        for number, due in list(self._due.items()):
            if time.monotonic() >= due:
                del self._due[number]
                self._start(number)
        alive = list(self.workers.values())
        ready = [worker for worker in alive if worker.ready]
        for worker in alive:
            if worker.status == "starting":
                continue
            if time.monotonic() - worker.heard > SILENT:
                self.log.error("worker hangs", worker=worker.number, silent_seconds=SILENT)
                worker.process.kill()
            if worker.listening:
                if self.whole and not worker.whole:
                    worker.tell("whole")
                    worker.look()
                continue
            alike = [each for each in ready if each.digests == worker.digests]
            if not any(each.listening for each in alive) or (
                worker.status == "ready" and (alike or not ready)
            ):
                worker.tell("listen")
                worker.look()
            elif worker.status == "ready" and not worker.differs:
                worker.differs = True
                self._poll_now.set()  # this worker or the others have newer models
        self.served = self.served or bool(ready)
        self.whole = self.whole or len(ready) == self.count

    def figures(self) -> Figures:
        """The current metrics of the whole service."""
        workers = list(self.workers.values())
        with ThreadPoolExecutor(max(len(workers), 1)) as pool:
            list(pool.map(_Worker.look, workers))
        with self._changing:
            alive = [
                worker.figures if worker.listening else counted(worker.figures)
                for worker in self.workers.values()
            ]
            ready = sum(worker.ready for worker in self.workers.values())
            own: Figures = [
                _figure("forecaster_workers", "Processes that answer.", "gauge", ready),
                _figure("forecaster_workers_wanted", "How many should.", "gauge", self.count),
                _figure("forecaster_worker_deaths", "Those that ended.", "counter", self._deaths),
            ]
            return [*gathered([self._dead, *alive]), *own]

    def _start(self, number: int) -> None:
        answers: dict[str, Callable[..., Any]]
        answers = {"figures": self.figures, "resolve": self._resolve, "fetch": self._fetch}
        worker = _Worker(number, self.count, self.listening, self.table, answers)
        with self._changing:
            self.workers[number] = worker
        self.log.info("worker started", worker=number, pid=worker.process.pid)

    def _bury(self) -> None:
        """Record which workers are gone, keep their counters, and schedule replacements."""
        for number, worker in list(self.workers.items()):
            if worker.process.poll() is None:
                continue
            with self._changing:
                self._dead = gathered([self._dead, counted(worker.figures)])
                self._deaths += 1
                del self.workers[number]
            worker.channel.close()
            if self._signals:
                continue
            lived = time.monotonic() - worker.begun
            self._failures = 0 if lived > WELL else self._failures + 1
            pause = min(BACKOFF * 2.0 ** (self._failures - 1), LONGEST) if self._failures else 0.0
            self._due[number] = time.monotonic() + pause
            self.log.error(
                "worker ended", worker=number, pid=worker.process.pid,
                status=worker.process.returncode, again_seconds=pause,
            )  # fmt: skip
            if not self.served and worker.status == "starting" and self._failures >= ATTEMPTS:
                raise ForecasterError(
                    "the processes of the service end as they start, the last with status "
                    f"{worker.process.returncode}; the lines above show why"
                )

    def _resolve(self, names: Sequence[str]) -> list[dict[str, str]]:
        """The answer of the registry, the same for all workers that ask in one round."""
        with self._resolving:
            if (key := tuple(names)) not in self._resolved:
                found = self.registry.resolve(names)
                self._resolved[key] = [
                    {"error": str(each)} if isinstance(each, UsageError) else each for each in found
                ]
            return self._resolved[key]

    def _fetch(self, name: str, folder: str) -> dict[str, str]:
        return self.registry.fetch(name, Path(folder))

    def _poll(self) -> None:
        """Have one worker after the other look for newer models, as long as that succeeds."""
        while seconds := self.settings.poll_seconds:
            self._poll_now.wait(seconds * uniform(0.8, 1.2))
            self._poll_now.clear()
            if self._ending.is_set():
                return
            with self._resolving:
                self._resolved.clear()
            workers = sorted(self.workers.values(), key=lambda worker: not worker.listening)
            for worker in workers:
                if self._ending.is_set():
                    return
                try:
                    newest = worker.channel.ask("poll", seconds=SWAPPING)
                except ForecasterError:
                    continue
                if worker.listening and not newest:
                    break


def _figure(name: str, words: str, kind: str, value: float) -> list[Any]:
    total = "_total" if kind == "counter" else ""
    return [name, words, kind, [[name + total, {}, float(value)]]]
