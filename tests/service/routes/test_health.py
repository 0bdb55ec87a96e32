from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from forecaster.predict import Forecaster
from tests.service.toy import NAME, start


def test_ready_and_alive(client: TestClient, folder: Path) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    digest = Forecaster.load(folder).bundle.digest
    assert client.get("/readyz?verbose").json()["model"] == f"{NAME} {digest} on cpu"


def test_version(client: TestClient) -> None:
    assert client.get("/version").json() == {"version": "0.1.0", "api": "v1"}


@pytest.mark.parametrize(
    ("model", "word"),
    [(None, "FORECASTER_MODEL"), ("empty", "not be found"), ("broken", "damaged")],
)
def test_without_a_model_it_lives_and_says_why(
    model: str | None, word: str, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = bytearray((broken / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (broken / "model.safetensors").write_bytes(weights)
    with start(model=model and str(tmp_path / model)) as client:
        assert client.get("/livez").status_code == 200
        assert client.get("/models").json() == {"models": []}
        asked = [client.get("/readyz"), client.post("/predict", json={})]
        for answer in asked:
            assert answer.status_code == 503
            assert word in answer.json()["detail"]
            assert str(tmp_path) not in answer.text
            assert int(answer.headers["Retry-After"]) > 0
