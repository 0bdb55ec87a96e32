"""Replicas of Ray Serve: a replica that is killed during requests loses no answer."""

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import psutil
import pytest

from forecaster.client import Client
from forecaster_service.replicas import check
from tests.service.processes import free_port, running, wait_for
from tests.service.toy import COLUMNS, HORIZON, PAST

CLIENTS = 6


def replicas(process: Any) -> list[psutil.Process]:
    """The processes of the replicas that `process` has started."""
    found = []
    for each in psutil.Process(process.pid).children(recursive=True):
        try:
            if "ray::ServeReplica" in " ".join(each.cmdline()):
                found.append(each)
        except psutil.Error:
            continue  # it has ended meanwhile
    return found


@pytest.mark.slow
def test_a_replica_that_is_killed_under_load_costs_no_request(folder: Path, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port), "--ray", "local"]
    history = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=PAST, freq="h")})
    history[list(COLUMNS)] = 1.5
    answers: list[pd.DataFrame] = []
    errors: list[Exception] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            try:
                answers.append(Client(f"http://127.0.0.1:{port}").predict(history))
            except Exception as error:
                errors.append(error)

    with running(command, {}, tmp_path, log) as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
        listening = {
            connection.laddr.ip
            for each in psutil.Process(process.pid).children(recursive=True)
            for connection in each.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        }
        assert listening == {"127.0.0.1"}
        clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            for victim in replicas(process):
                before = len(answers)
                while len(answers) < before + 20:
                    time.sleep(0.01)
                victim.kill()
                victim.wait(30)  # or it is counted below
                end = time.monotonic() + 60
                while len(replicas(process)) < 2 and time.monotonic() < end:
                    time.sleep(0.1)
                assert len(replicas(process)) == 2, log.read_text()[-3000:]
        finally:
            ended.set()
            for client in clients:
                client.join()
        process.terminate()
        assert process.wait(30) == 143, log.read_text()[-3000:]
    assert errors == []
    assert len(answers) > 40
    for answer in answers:
        assert len(answer) == HORIZON
        pd.testing.assert_frame_equal(answer, answers[0])


class TestHealth:
    """The reasons for Ray to replace a replica."""

    def store(self, **facts: Any) -> Any:
        served = SimpleNamespace(served=object(), reason="")
        return SimpleNamespace(**{"status": "ready", "lost": "", "slots": [served], **facts})

    def test_one_that_has_its_models_is_well(self) -> None:
        asyncio.run(check(self.store()))

    def test_one_that_lost_its_device_is_not(self) -> None:
        with pytest.raises(RuntimeError, match=r"^the GPU is gone$"):
            asyncio.run(check(self.store(lost="the GPU is gone")))

    def test_nor_one_without_a_model(self) -> None:
        missing = SimpleNamespace(served=None, reason="damaged")
        with pytest.raises(RuntimeError, match=r"^damaged$"):
            asyncio.run(check(self.store(status="failed", slots=[missing])))
        with pytest.raises(RuntimeError, match=r"^no model was named$"):
            asyncio.run(check(self.store(status="failed", slots=[])))

    def test_it_waits_while_models_are_loaded(self) -> None:
        store = self.store(status="loading")

        async def load() -> None:
            task = asyncio.create_task(check(store))
            await asyncio.sleep(0.05)
            assert not task.done()
            store.status = "ready"
            await task

        asyncio.run(load())
