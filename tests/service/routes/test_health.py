import shutil

import pytest

from forecaster.base.version import __version__
from forecaster.forecast.predictor import Predictor
from tests.service.toy import NAME, make_bundle, rename, start


def test_ready_alive_and_of_which_version(client, folder):
    states = {"livez": "alive", "healthz": "alive", "readyz": "ready"}
    for path, state in states.items():
        assert client.get(f"/{path}").json() == {"status": state}
    digest = Predictor.load(folder).bundle.digest
    assert client.get("/readyz?verbose").json()["model"] == f"{NAME} {digest} on cpu"
    assert client.get("/version").json() == {"version": __version__, "api": "v1"}


@pytest.mark.parametrize(
    ("model", "word"),
    [(None, "FORECASTER_MODEL"), ("empty", "not be found"), ("broken", "damaged")],
)
def test_without_a_model_it_lives_and_says_why(model, word, tmp_path, folder):
    (tmp_path / "empty").mkdir()
    weights = shutil.copytree(folder, tmp_path / "broken") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with start(model=model and str(tmp_path / model)) as client:
        assert client.get("/livez").status_code == 200
        assert client.get("/models").json() == {"models": []}
        asked = [client.get("/readyz"), client.post("/predict", json={})]
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
