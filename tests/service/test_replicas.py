"""Replicas of Ray Serve: a replica that is killed during requests loses no answer."""

import asyncio
import threading
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest

from forecaster.client import Client
from forecaster_service.replicas import check
from tests.service.processes import serving, until
from tests.service.toy import COLUMNS, HORIZON, PAST

CLIENTS = 6


def replicas(process):
    """The processes of the replicas that `process` has started."""
    found = []
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if "ray::ServeReplica" in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.mark.long
@pytest.mark.slow
def test_a_replica_that_is_killed_under_load_costs_no_request(folder, tmp_path):
    history = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=PAST, freq="h")})
    history[list(COLUMNS)] = 1.5
    answers = []
    errors = []
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            try:
                answers.append(Client(f"http://127.0.0.1:{server.port}").predict(history))
            except Exception as error:
                errors.append(error)

    with serving(folder, tmp_path, "--ray", "local") as server:
        process = server.process
        listening = {
            connection.laddr.ip
            for each in psutil.Process(process.pid).children(recursive=True)
            for connection in each.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == server.port
        }
        assert listening == {"127.0.0.1"}
        clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            for victim in replicas(process):
                before = len(answers)
                until(lambda before=before: len(answers) >= before + 20)
                victim.kill()
                victim.wait(30)  # or it is counted below
                until(lambda: len(replicas(process)) == 2)
        finally:
            ended.set()
            for client in clients:
                client.join()
        process.terminate()
        assert process.wait(30) == 143, server.log.read_text()[-3000:]
    assert errors == []
    assert len(answers) > 40
    for answer in answers:
        assert len(answer) == HORIZON
        pd.testing.assert_frame_equal(answer, answers[0])


@pytest.mark.parametrize(
    ("lost", "reasons", "words"),
    [("", [""], ""), ("the GPU is gone", [""], "the GPU is gone"), ("", ["damaged"], "damaged"),
     ("", [], "no model was named")],
)  # fmt: skip
def test_the_reasons_to_replace_a_replica(lost, reasons, words):
    slots = [SimpleNamespace(served=None if each else object(), reason=each) for each in reasons]
    store = SimpleNamespace(status="ready", lost=lost, slots=slots)
    with pytest.raises(RuntimeError, match=f"^{words}$") if words else nullcontext():
        asyncio.run(check(store))


def test_a_replica_is_not_judged_while_its_models_are_loaded():
    store = SimpleNamespace(status="loading", lost="", slots=[SimpleNamespace(served=1)])

    async def load():
        task = asyncio.create_task(check(store))
        await asyncio.sleep(0.05)
        assert not task.done()
        store.status = "ready"
        await task

    asyncio.run(load())
