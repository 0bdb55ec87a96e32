"""Failures of a GPU that a service meets: out of memory, or lost. Simulated; real where marked."""

import os
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from forecaster.base.errors import DeviceLostError
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question
from forecaster_service import store
from forecaster_service.http_errors import HttpError
from tests.service.toy import NAME, start

GONE = "the GPU is lost: CUDA error: unspecified launch failure"


def test_of_a_lost_device_clients_get_503_and_the_process_ends(folder, monkeypatch):
    leave, lost = Mock(), Mock(side_effect=DeviceLostError(GONE))
    monkeypatch.setattr(store, "Timer", leave)
    with start(model=str(folder)) as client:
        served = client.app.state.store.ready()
        example = client.get(f"/models/{NAME}/example").json()
        question = Question.from_json(example["inputs"], {}, served.forecaster)
        monkeypatch.setattr(Predictor, "_forecast", lost)
        answer = client.post("/predict", json={**example, "inputs": example["inputs"] * 3})
        assert (answer.status_code, answer.json()["detail"]) == (503, GONE)
        assert int(answer.headers["Retry-After"]) > 0
        assert client.get("/readyz").status_code == 503
        assert client.get("/livez").status_code == 200
        queued = client.app.state.store.submit(served, question)
        with pytest.raises(HttpError, match=GONE):
            queued.result(60)
    leave.assert_called_once_with(store.LEAVING_SECONDS, os._exit, (70,))
    leave.return_value.start.assert_called_once()
    assert lost.call_count == 1


@pytest.mark.gpu
def test_out_of_memory_halves_the_batch(folder, full):
    with start(model=str(folder), device="cuda", max_batch=1000) as there:
        assert there.get("/models").json()["models"][0]["device"] == "cuda"
        body = {**full, "inputs": full["inputs"] * 1000}
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        whole = there.post("/predict", json=body).json()
        assert whole["timing"]["batch_size"] == 1000
        peak = torch.cuda.max_memory_reserved()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((before + peak) // 2 / total)
        try:
            answer = there.post("/predict", json=body)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert answer.status_code == 200
        assert answer.json()["timing"]["batch_size"] < 1000
        found, wanted = ([p["mean"] for p in a["predictions"]] for a in (answer.json(), whole))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
