import pytest

from forecaster.base.version import __version__
from forecaster.forecast.predictor import Predictor
from tests.service.toy import NAME, make_bundle, rename, start


def test_ready_and_alive(client, folder):
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/healthz").json() == {"status": "alive"}
    for path in ("/readyz", "/ping"):
        assert client.get(path).json() == {"status": "ready"}
    digest = Predictor.load(folder).bundle.digest
    assert client.get("/readyz?verbose").json()["model"] == f"{NAME} {digest} on cpu"


def test_version(client):
    assert client.get("/version").json() == {"version": __version__, "api": "v1"}


@pytest.mark.parametrize(
    ("model", "word"),
    [(None, "FORECASTER_MODEL"), ("empty", "not be found"), ("broken", "damaged")],
)
def test_without_a_model_it_lives_and_says_why(model, word, tmp_path, folder):
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
        asked = [client.get("/readyz"), client.get("/ping"), client.post("/predict", json={})]
        for answer in asked:
            assert answer.status_code == 503
            assert word in answer.json()["detail"]
            assert str(tmp_path) not in answer.text
            assert int(answer.headers["Retry-After"]) > 0


def test_it_is_ready_when_all_models_are_there(folder, tmp_path):
    with start(model=f"{folder},{tmp_path / 'none'}") as client:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("model 2 of 2: the model could not be found")
        example = client.get(f"/models/{NAME}/example").json()
        assert client.post("/predict", json=example).status_code == 200
        rename(make_bundle(tmp_path / "one", columns=("x",)), tmp_path / "none", "other")
        client.app.state.store.poll()
        assert client.get("/readyz").json() == {"status": "ready"}


def test_before_the_end_it_is_not_ready_but_answers(client, full, monkeypatch):
    monkeypatch.setattr(client.app.state.store, "draining", True)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the service is ending")
    assert client.get("/livez").status_code == 200
    assert client.post("/predict", json=full).status_code == 200


def test_without_its_device_it_lives_and_says_why(folder):
    with start(model=str(folder)) as client:
        body = client.get(f"/models/{NAME}/example").json()
        client.app.state.store.lose("the GPU is gone")
        for answer in (client.get("/readyz"), client.post("/predict", json=body)):
            assert (answer.status_code, answer.json()["detail"]) == (503, "the GPU is gone")
            assert int(answer.headers["Retry-After"]) > 0
        assert client.get("/livez").status_code == 200
