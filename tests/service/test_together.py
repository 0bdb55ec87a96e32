"""The steps that all forecasts share: admission, queue, batches, deadline; tested by /predict."""

import asyncio
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from time import sleep
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.base import machine
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question
from tests.service.processes import until
from tests.service.toy import HORIZON, PAST, mean, start


@contextmanager
def held(client):
    """The service's store while its device is busy."""
    store = client.app.state.store
    began, go = threading.Event(), threading.Event()

    def hold(question):
        began.set()
        assert go.wait(60)
        return question

    holding = store.batcher.submit(
        "held", hold, Question(np.zeros((1, 1, 1)), pd.DatetimeIndex(["2026"]))
    )
    assert began.wait(60)
    try:
        yield store
    finally:
        go.set()
        holding.result(60)


def different(full, count):
    """Requests that differ; every other one has missing values."""
    bodies = []
    for number in range(count):
        body = deepcopy(full)
        (series,) = body["inputs"]
        series["item_id"] = str(number)
        rows = np.array(series["target"]) * (1 + number / 10) + number
        series["target"] = rows.tolist()
        if number % 2:
            series["target"][number % PAST][number % 3] = None
        body["parameters"]["prediction_length"] = 1 + number % HORIZON
        bodies.append(body)
    return bodies


def test_requests_at_the_same_time_run_together_and_answer_as_alone(client, full):
    """Also those for different quantiles."""
    bodies = different(full, 32)
    for number, body in enumerate(bodies):
        body["parameters"]["quantile_levels"] = ([0.1], [0.9, 0.5], [0.3])[number % 3]

    def ask(body):
        return client.post("/predict", json=body).json()

    alone = [ask(body) for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        with held(client) as store:
            together = pool.map(ask, bodies)
            until(lambda: store.batcher.waiting == len(bodies))
            sleep(0.1)
        together = list(together)
    for one, other in zip(alone, together, strict=True):
        assert (one["timing"]["batch_size"], other["timing"]["batch_size"]) == (1, 32)
        assert other["timing"]["queue_ms"] >= 100, "so long were all held"
        (first,), (second,) = one["predictions"], other["predictions"]
        assert first["item_id"] == second["item_id"]
        assert list(first["quantiles"]) == list(second["quantiles"])
        found, expected = ([each["mean"], *each["quantiles"].values()] for each in (second, first))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_under_load_a_forecast_of_one_series_has_the_same_bits(full, folder):
    bodies = different(full, 8)
    with machine.threads(3), start(model=str(folder), max_batch=1) as client:
        alone = [mean(client, body) for body in bodies]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda body: mean(client, body), bodies * 4))
    for forecast, other in zip(together, alone * 4, strict=True):
        np.testing.assert_array_equal(forecast, other)


def test_a_request_that_cannot_be_forecast_fails_alone(client, full):
    good, bad = different(full, 2)
    bad["inputs"][0]["target"][3][1] = 1e300
    bad["inputs"] += good["inputs"]
    expected = mean(client, good)
    asked = [good, good, bad, good, good]
    with ThreadPoolExecutor(5) as pool:
        with held(client) as store:
            answers = pool.map(lambda body: client.post("/predict", json=body), asked)
            until(lambda: store.batcher.waiting == 6)
        found = list(answers)
    assert [answer.status_code for answer in found] == [200, 200, 422, 200, 200]
    assert "'wind'" in found[2].json()["detail"]
    for answer in found[:2] + found[3:]:
        (prediction,) = answer.json()["predictions"]
        np.testing.assert_allclose(prediction["mean"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("fits", "status"), [(2, 200), (0, 503)])
def test_out_of_memory_halves_the_batch(client, full, monkeypatch, fits, status):
    """And what failed holds none of its memory meanwhile."""
    forecast, held = Predictor._forecast, list[Any]()

    def small(self, question, *rest):
        assert not any(each() is not None for each in held)
        if len(question.values) > fits:
            activations = torch.zeros(8)
            held.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("of 0x7f00")
        return forecast(self, question, *rest)

    monkeypatch.setattr(Predictor, "_forecast", small)
    answer = client.post("/predict", json={**full, "inputs": full["inputs"] * 5})
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["timing"]["batch_size"] == 2
    else:
        assert answer.json()["detail"].startswith("the device is out of memory; try again in ")
        assert int(answer.headers["Retry-After"]) > 0


def test_a_full_queue_is_503_until_there_is_room(full, folder):
    two = {**full, "inputs": full["inputs"] * 2}
    with start(model=str(folder), max_queue=3) as client, ThreadPoolExecutor(2) as pool:
        with held(client) as store:
            answers = [pool.submit(client.post, "/predict", json=two)]
            until(lambda: store.batcher.waiting == 2)
            assert client.get("/readyz").status_code == 200
            refusals = [client.post("/predict", json=two)]
            answers += [pool.submit(client.post, "/predict", json=full)]
            until(lambda: store.batcher.waiting == 3)
            for path in ("/predict", "/v1/predict"):
                refusals += [client.post(path, content=b"not even read")]
            refusals += [client.get("/readyz")]
            assert client.get("/livez").status_code == 200
        assert [answer.result().status_code for answer in answers] == [200, 200]
        for refusal in refusals:
            assert refusal.status_code == 503
            assert int(refusal.headers["Retry-After"]) > 0
            assert "again" in refusal.json()["detail"]
        assert client.get("/readyz").status_code == 200
        large = {**full, "inputs": full["inputs"] * 5}  # more than the queue, but nothing waits
        assert client.post("/predict", json=large).status_code == 200


def test_a_request_that_waits_too_long_is_504(full, folder):
    with start(model=str(folder), deadline_seconds=0.2) as client:
        with held(client) as store:
            answer = client.post("/predict", json=full)
            assert store.batcher.waiting == 0
        assert (answer.status_code, answer.json()["title"]) == (504, "Gateway Timeout")
        assert "within 0.2 s" in answer.json()["detail"]
        assert client.post("/predict", json=full).status_code == 200


def test_clients_that_leave_are_dropped(client, full, capsys):
    sent, parts = [], [{"type": "http.request", "body": json.dumps(full).encode()}]
    scope = {
        "type": "http", "method": "POST", "path": "/predict", "raw_path": b"/predict",
        "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1",
        "server": ("localhost", 80), "client": ("localhost", 1),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }  # fmt: skip

    async def receive():
        if parts:
            return parts.pop()
        while store.batcher.waiting == 0:
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    with held(client) as store:
        client.portal.call(client.app, scope, receive, send)
        assert store.batcher.waiting == 0
    assert sent[0]["status"] == 499
    assert client.post("/predict", json=full).json()["timing"]["batch_size"] == 1
    assert "exception" not in capsys.readouterr().err.lower()
