"""One of several processes, as its parent sees it."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client import generate_latest

from forecaster.errors import UsageError
from forecaster_service import worker as module
from forecaster_service.app import create_app
from forecaster_service.channel import Channel
from forecaster_service.gathering import Gathered
from forecaster_service.settings import Settings
from forecaster_service.shared_buckets import new_table
from forecaster_service.worker import Worker

SECONDS = 60.0


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What would have ended the process: statuses, and signals as negative numbers."""
    found: list[int] = []
    monkeypatch.setattr(module.os, "_exit", found.append)
    monkeypatch.setattr(module.os, "kill", lambda _, number: found.append(-number))
    return found


@pytest.fixture
def table() -> Iterator[int]:
    file = new_table()
    yield file
    os.close(file)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


class TestWorker:
    @pytest.fixture
    def both(
        self, ended: list[int], table: int, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[tuple[Worker, Channel]]:
        """A worker, and the parent's end."""
        ours, theirs, alone, orphaned = *socket.socketpair(), Event(), Worker._orphaned

        def noted(self: Worker) -> None:
            orphaned(self)
            alone.set()

        monkeypatch.setattr(Worker, "_orphaned", noted)
        with ours, theirs:
            answers: dict[str, Callable[..., Any]] = {
                "resolve": lambda names: [{"version": name} for name in names] + [{"error": "no"}],
                "fetch": lambda name, folder: {"name": name, "folder": folder},
                "figures": lambda: [["all", "Help.", "gauge", [["all", {}, 7.0]]]],
            }
            parent = Channel(ours, answers, lambda: None)
            yield Worker(theirs, table), parent
            parent.close()
            assert alone.wait(SECONDS)  # else it would end the tests

    def test_it_takes_connections_when_it_is_told_to(
        self, both: tuple[Worker, Channel], folder: Path
    ) -> None:
        worker, parent = both
        assert parent.ask("look", seconds=SECONDS) == {"status": "starting"}
        assert not parent.ask("poll", seconds=SECONDS)
        told = Event()

        def tell() -> Any:
            wait_until(lambda: look()["status"] == "ready")
            assert not look()["listening"]
            parent.ask("listen", seconds=SECONDS)
            told.set()

        def look() -> Any:
            return parent.ask("look", seconds=SECONDS)

        teller = Thread(target=tell)
        teller.start()
        app = create_app(Settings(model=str(folder), threads=1, rate=100), worker.registry, worker)
        with TestClient(app, base_url="http://localhost") as client:
            assert told.is_set()
            teller.join()
            assert client.get("/readyz").status_code == 503
            assert "other processes" in client.get("/readyz").text
            parent.ask("whole", seconds=SECONDS)
            assert client.get("/readyz").status_code == 200
            found = look()
            assert found["listening"]
            (digest,) = found["digests"]
            assert digest == client.get("/models").json()["models"][0]["digest"]
            own = generate_latest(Gathered(found["figures"])).decode()
            assert "forecaster_requests_total" in own
            assert client.get("/metrics").text.splitlines()[-1] == "all 7.0"
            assert parent.ask("poll", seconds=SECONDS)

    def test_it_heeds_signals_that_the_parent_gets(
        self, both: tuple[Worker, Channel], ended: list[int]
    ) -> None:
        _, parent = both
        parent.ask("signal", signal.SIGTERM, seconds=SECONDS)
        wait_until(lambda: 128 + signal.SIGTERM in ended)  # nobody was waiting for it
        ended.clear()
        parent.ask("listen", seconds=SECONDS)
        parent.ask("signal", signal.SIGTERM, seconds=SECONDS)
        assert ended == [-signal.SIGTERM]

    def test_it_asks_the_registry_of_its_parent(
        self, both: tuple[Worker, Channel], tmp_path: Path
    ) -> None:
        registry = both[0].registry
        found, error = registry.resolve(["a"])
        assert found == {"version": "a"}
        assert isinstance(error, UsageError)
        assert registry.fetch("a", tmp_path) == {"name": "a", "folder": str(tmp_path)}

    def test_without_its_parent_it_ends(
        self, both: tuple[Worker, Channel], ended: list[int]
    ) -> None:
        worker, parent = both
        parent.ask("listen", seconds=SECONDS)
        parent.close()
        wait_until(lambda: -signal.SIGINT in ended)
        own = Gathered([])
        assert worker.figures(own) is own
