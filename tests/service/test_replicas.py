"""Replicas of Ray Serve: a replica that is killed during requests loses no answer."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import pandas as pd
import pytest

from forecaster.client import Client
from forecaster_service.replicas import check
from tests.service.processes import children, serving, until
from tests.service.toy import COLUMNS, HORIZON, PAST

CLIENTS = 6


@pytest.mark.long
@pytest.mark.slow
def test_a_replica_that_is_killed_under_load_costs_no_request(folder, tmp_path):
    history = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=PAST, freq="h")})
    history[list(COLUMNS)] = 1.5
    answers, errors, ended = [], [], threading.Event()

    def ask():
        while not ended.is_set():
            try:
                answers.append(Client(f"http://127.0.0.1:{server.port}").predict(history))
            except Exception as error:
                errors.append(error)

    with serving(folder, tmp_path, "--ray", "local") as server:
        with ThreadPoolExecutor(CLIENTS) as clients:
            for _ in range(CLIENTS):
                clients.submit(ask)
            try:
                for victim in children(server.process, "ray::ServeReplica"):
                    before = len(answers)
                    until(lambda before=before: len(answers) >= before + 20)
                    victim.kill()
                    victim.wait(30)  # or it is counted below
                    until(lambda: len(children(server.process, "ray::ServeReplica")) == 2)
            finally:
                ended.set()
        server.process.terminate()
        assert server.process.wait(30) == 143, server.log.read_text()[-3000:]
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
def test_the_reasons_to_replace_a_replica_whose_models_have_been_loaded(lost, reasons, words):
    slots = [SimpleNamespace(served=None if each else object(), reason=each) for each in reasons]
    store = SimpleNamespace(status="loading", lost=lost, slots=slots)

    async def load():
        task = asyncio.create_task(check(store))
        await asyncio.sleep(0.05)
        assert not task.done()
        store.status = "ready"
        await task

    with pytest.raises(RuntimeError, match=f"^{words}$") if words else nullcontext():
        asyncio.run(load())
