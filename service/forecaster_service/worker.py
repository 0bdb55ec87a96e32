"""One of several processes that serve on one socket, started by `supervisor`.

It accepts connections and looks for newer models when its parent asks for it. When the parent is
gone, it answers the requests that it has and ends.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Any

import torch
import uvicorn
from prometheus_client.registry import Collector

from forecaster.errors import ForecasterError, UsageError
from forecaster_service import logs
from forecaster_service.app import create_app
from forecaster_service.channel import Channel
from forecaster_service.gathering import Figures, Gathered, told
from forecaster_service.process import Process
from forecaster_service.registry import State
from forecaster_service.server import HOW
from forecaster_service.settings import from_environment
from forecaster_service.shared_buckets import SharedBuckets, Table
from forecaster_service.store import Store

ASKING = 20.0
"""Seconds that the parent has to gather the metrics."""
REGISTRY = 3600.0
"""Seconds that the parent has to ask the registry, whose limits are shorter, for all workers."""
ENDING = 70.0
"""Seconds after which a process without a parent is gone, whatever holds it."""


class Worker(Process):
    """A process that shares with others, through questions to their parent and a bucket table."""

    polls = False

    def __init__(self, connection: socket.socket, table: int) -> None:
        self.whole = False
        self.store: Store | None = None
        self._table, self._tables = Table(table), 0
        self._listening, self._polling = Event(), Lock()
        answers: dict[str, Callable[..., Any]] = {
            "look": self._look, "listen": self._listening.set, "whole": self._is_whole,
            "poll": self._poll, "signal": self._signal,
        }  # fmt: skip
        self._parent = Channel(connection, answers, self._orphaned)
        self.registry = Asked(self._parent)

    def buckets(self, per_minute: float) -> SharedBuckets:  # type: ignore[override]
        self._tables += 1  # every process asks for them in the same order
        return SharedBuckets(self._table, self._tables - 1, per_minute)

    async def begin(self, store: Store) -> None:
        self.store, self._loop = store, asyncio.get_running_loop()
        while not self._listening.is_set():
            await asyncio.sleep(0.02)

    def figures(self, own: Collector) -> Collector:
        with suppress(ForecasterError):  # the parent is gone, and this process soon ends
            return Gathered(self._parent.ask("figures", seconds=ASKING))
        return own

    # What the parent asks

    def _look(self) -> dict[str, Any]:
        """The state of this worker. Raises TimeoutError if its event loop does not respond."""
        store = self.store
        if store is None:
            return {"status": "starting"}
        asyncio.run_coroutine_threadsafe(_nothing(), self._loop).result(10)
        figures: Figures = told(store.metrics.registry.collect())
        digests = [slot.served.identity.digest for slot in store.slots if slot.served]
        return {
            "status": store.status, "digests": digests, "figures": figures,
            "listening": self._listening.is_set(), "whole": self.whole,
        }  # fmt: skip

    def _is_whole(self) -> None:
        self.whole = True

    def _poll(self) -> bool:
        """Look for newer models; return whether those that are served are the newest."""
        with self._polling:
            if self.store is None or self.store.status == "loading":
                return False
            return self.store.poll()

    def _signal(self, number: int) -> None:
        """Act like a single process that gets this signal."""
        if not self._listening.is_set():
            os._exit(128 + number)
        os.kill(os.getpid(), number)

    def _orphaned(self) -> None:
        timer = Timer(ENDING, os._exit, (1,))
        timer.daemon = True
        timer.start()
        self._signal(signal.SIGINT)


class Asked:
    """The registry, asked through the parent."""

    def __init__(self, parent: Channel) -> None:
        self._parent = parent

    def resolve(self, names: Sequence[str]) -> list[State | UsageError]:
        told = self._parent.ask("resolve", [*names], seconds=REGISTRY)
        return [UsageError(each["error"]) if "error" in each else each for each in told]

    def fetch(self, name: str, folder: Path) -> State:
        state: State = self._parent.ask("fetch", name, str(folder.absolute()), seconds=REGISTRY)
        return state

    def close(self) -> None:
        """Do nothing: other workers still use the registry."""


async def _nothing() -> None:
    pass


def main() -> None:
    """Run `python -m forecaster_service.worker NUMBER WORKERS SOCKET CONNECTION TABLE`; the last
    three are open files."""
    number, workers, listening, connection, table = map(int, sys.argv[1:])
    logs.ABOUT.update(worker=number, pid=os.getpid())
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    worker = Worker(socket.socket(fileno=connection), table)
    app = create_app(from_environment(), worker.registry, worker)
    config = uvicorn.Config(app, log_level="warning", **HOW)
    with suppress(KeyboardInterrupt), logs.owning_stderr():
        uvicorn.Server(config).run([socket.socket(fileno=listening)])


if __name__ == "__main__":
    main()
