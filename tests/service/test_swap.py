"""Models that are replaced under load, and by a registry in a separate process."""

import gc
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import requests
import uvicorn
from fastapi import FastAPI

from forecaster.config.run_config import RunConfig
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import Predictor
from forecaster.tracking.run import start
from forecaster_service.app import create_app
from forecaster_service.settings import Settings
from tests.service.processes import Server, free_port, running, wait_for
from tests.service.toy import HORIZON, NAME, make_bundle

pytestmark = pytest.mark.slow

SWAPS, CLIENTS = 100, 2
SOON = 90.0
"""Seconds until an alias that moved under load is served, on a machine that is busy otherwise, too;
30 on one that is not."""
LEAK = 60 * 2**20
"""The most bytes that the last 80 swaps may add; 40 models of 3 MiB are twice that."""


def wait_until(true: Callable[[], bool], pause: float = 0.002) -> None:
    end = time.monotonic() + 240
    while not true():
        assert time.monotonic() < end
        time.sleep(pause)


@contextmanager
def served(settings: Settings) -> Iterator[tuple[FastAPI, str]]:
    """The URL of a service on a real socket, in a thread of this process."""
    port, app = free_port(), create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started and app.state.store.status == "ready")
        yield app, f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def forecast(bundle: Bundle) -> np.ndarray:
    """The forecast of a model for its example, (T, targets)."""
    forecaster = Predictor(bundle, "cpu")
    return forecaster.predict(forecaster.example).drop(columns="time").to_numpy()


@pytest.mark.timeout(900)
def test_a_hundred_swaps_under_load(tmp_path: Path) -> None:
    """No request fails, each answer is from one model, and old models are freed."""
    bundles = [make_bundle(tmp_path / kind, model=kind) for kind in ("large", "tokens")]
    expected = {bundle.digest: forecast(bundle) for bundle in bundles}
    link, spare = tmp_path / "link", tmp_path / "spare"
    link.symlink_to("large")
    seen: list[str] = []
    errors: list[object] = []
    stop = threading.Event()

    def ask(url: str, body: Any) -> None:
        with requests.Session() as session:
            while not stop.is_set():
                try:
                    answer = session.post(f"{url}/predict", json=body, timeout=60)
                    digest = answer.json()["model"]["digest"]
                    mean = answer.json()["predictions"][0]["mean"]
                    np.testing.assert_allclose(mean, expected[digest], rtol=1e-5)
                    assert answer.headers["X-Forecaster-Model"] == f"{NAME}; digest={digest}"
                    seen.append(digest)
                except Exception as error:
                    errors.append(error)
                    return

    def answer_of(digest: str, asked: int) -> bool:
        return digest in seen[asked:] or bool(errors)

    with served(Settings(model=str(link), poll_seconds=0, device="cpu")) as (app, url):
        store, process = app.state.store, psutil.Process()
        body = requests.get(f"{url}/models/{NAME}/example", timeout=60).json()
        clients = [threading.Thread(target=ask, args=(url, body)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            old: list[weakref.ref[Predictor]] = []
            for number in range(1, SWAPS + 1):
                old.append(weakref.ref(store.get(None).forecaster))
                spare.symlink_to(("large", "tokens")[number % 2])
                spare.replace(link)
                store.poll()
                answered = partial(answer_of, bundles[number % 2].digest, len(seen))
                wait_until(answered)
                if number == 20:
                    early = process.memory_info().rss
            grown = process.memory_info().rss - early
        finally:
            stop.set()
            for client in clients:
                client.join()
        assert errors == []
        assert requests.get(f"{url}/readyz", timeout=60).status_code == 200
        gc.collect()
        assert [each for each in old if each() is not None] == []
        figures = requests.get(f"{url}/metrics", timeout=60).text
    assert set(seen) == set(expected)
    assert re.search(rf"^forecaster_model_loads_total\{{.*\}} {SWAPS + 1}.0$", figures, re.M)
    assert re.search(r"^forecaster_model_reload_failures_total\{.*\} 0.0$", figures, re.M)
    assert grown < LEAK


@contextmanager
def asking(server: Server, example: Any) -> Iterator[None]:
    """Enough clients to keep the service busy all the time; none of their requests may fail."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            server.post("/predict", example)

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(ask) for _ in range(CLIENTS)]
        try:
            yield
        finally:
            stop.set()
        for client in clients:
            client.result()


def register(folder: Path, score: float) -> None:
    """Register a bundle as the next version of "swapped", whose champion has the lowest score."""
    forecaster = Predictor.load(folder, "cpu")
    example = forecaster.example
    with start(RunConfig(), "toy", {}) as run:
        ahead = forecaster.predict(example)
        run.log_model(folder, example, ahead, HORIZON)
        run.register("swapped", [score] * 4, {})


@pytest.mark.timeout(900)
def test_the_champion_of_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service follows it, and keeps its model when it cannot."""
    database = tmp_path / "mlflow.db"
    uri = f"sqlite:///{database}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    for number, columns in enumerate((("x", "y"), ("x", "y"), ("y",))):
        model = ("informer", "tokens")[number % 2]
        make_bundle(tmp_path / str(number), columns=columns, model=model)
    register(tmp_path / "0", 0.5)
    port, log = free_port(), tmp_path / "log"
    command = ["forecaster", "serve", "--model", "models:/swapped@champion", "--port", str(port)]
    environment = {
        "MLFLOW_TRACKING_URI": uri, "FORECASTER_POLL_SECONDS": "3", "FORECASTER_DEVICE": "cpu",
    }  # fmt: skip
    with running(command, environment, tmp_path, log) as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
        server = Server(port, process)

        def card() -> Any:
            return server.get("/models")["models"][0]

        def failures() -> float:
            url = f"http://127.0.0.1:{port}/metrics"
            text = requests.get(url, timeout=60).text
            found = re.search(r"^forecaster_model_reload_failures_total\{.*\} (\S+)$", text, re.M)
            assert found is not None
            return float(found[1])

        assert (card()["name"], card()["version"], card()["alias"]) == ("swapped", "1", "champion")
        example = server.get("/models/swapped/example")
        before = server.post("/predict", example)
        children = psutil.Process(process.pid).children()
        with asking(server, example):
            register(tmp_path / "1", 0.4)
            began = time.monotonic()
            wait_until(lambda: card()["version"] == "2", pause=0.2)
            assert time.monotonic() - began < SOON
        after = server.post("/predict", example)
        assert before["predictions"] != after["predictions"]
        assert failures() == 0

        register(tmp_path / "2", 0.3)
        wait_until(lambda: failures() > 0, pause=0.2)
        had = failures()
        database.rename(tmp_path / "gone.db")
        wait_until(lambda: failures() > had, pause=0.2)
        assert requests.get(f"http://127.0.0.1:{port}/readyz", timeout=60).status_code == 200
        assert server.post("/predict", example)["predictions"] == after["predictions"]
        assert card()["version"] == "2"
        (tmp_path / "gone.db").rename(database)
        register(tmp_path / "0", 0.2)
        wait_until(lambda: card()["version"] == "4", pause=0.2)
        assert psutil.Process(process.pid).children() == children, "one asks all the time"
    told = log.read_text()
    assert "the new model would not suit the clients of the old: columns" in told
    assert "there is no MLflow database" in told
