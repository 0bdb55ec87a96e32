import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
import pytest

from forecaster import track
from forecaster.config import load_dict
from forecaster.predict import Forecaster
from tests.service.toy import HORIZON, make_bundle


@pytest.fixture(scope="module", params=["naive", "UTC"])
def forecaster(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "bundle"
    return Forecaster(make_bundle(folder, timezone=request.param), "cpu"), folder


@pytest.fixture(scope="module")
def logged(forecaster, tmp_path_factory):
    """A forecaster and the folder of the model that it was logged as."""
    ready, folder = forecaster
    home = tmp_path_factory.mktemp("store")
    config = load_dict({"track": {"uri": f"sqlite:///{home}/mlflow.db"}}, "the test")
    with track.start(config, "toy", {}) as run:
        forecast = ready.predict(ready.example)
        run.log_model(folder, "toy", ready.example, forecast, HORIZON, {})
    (description,) = home.rglob("MLmodel")
    return ready, description.parent


@pytest.fixture(scope="module")
def model(logged):
    """The logged model as MLflow loads it, in this process."""
    path = list(sys.path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own
        import mlflow.pyfunc

        yield mlflow.pyfunc.load_model(str(logged[1]))
    sys.path[:] = path


def test_it_forecasts_like_the_bundle(logged, model):
    ready = logged[0]
    pd.testing.assert_frame_equal(model.predict(ready.example), ready.predict(ready.example))


def test_stamps_may_be_text_with_or_without_a_zone(logged, model):
    ready = logged[0]
    expected = ready.predict(ready.example)
    for zone in ("", "Z"):
        stamps = ready.example["time"].dt.strftime(f"%Y-%m-%dT%H:%M:%S{zone}").astype(object)
        answer = model.predict(ready.example.assign(time=stamps))
        pd.testing.assert_frame_equal(answer, expected)


def test_its_horizon_can_be_shortened(logged, model):
    ready = logged[0]
    answer = model.predict(ready.example, params={"horizon": 2})
    pd.testing.assert_frame_equal(answer, ready.predict(ready.example, 2))


def test_quantiles_can_be_asked_for(logged, model):
    ready = logged[0]
    answer = model.predict(ready.example, params={"quantile_levels": [0.1, 0.9]})
    pd.testing.assert_frame_equal(answer, ready.predict(ready.example, levels=(0.1, 0.9)))
    assert "load 0.1" in answer


def test_mistakes_are_explained(logged, model):
    from mlflow.exceptions import MlflowException

    example = logged[0].example
    with pytest.raises(MlflowException, match="the history has 3 rows, the model looks back 24"):
        model.predict(example.tail(3))
    with pytest.raises(MlflowException, match="column 'time' not found"):
        model.predict(example.drop(columns="time"))
    with pytest.raises(MlflowException, match=f"1 to {HORIZON} steps, got horizon=7"):
        model.predict(example, params={"horizon": 7})


def ask(address, body):
    request = Request(
        f"{address}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["predictions"]


@pytest.mark.slow
def test_mlflow_serves_it(logged, tmp_path):
    """The answers of `mlflow models serve` are those of the bundle, to 1e-5."""
    ready, folder = logged
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local"),
                *("--host", "127.0.0.1", "--port", str(port), "--model-uri", str(folder)),
            ],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urlopen(f"{address}/ping", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.3)
        body = json.loads((folder / "serving_input_example.json").read_text())
        answers = ask(address, body)
        shorter = ask(address, {**body, "params": {"horizon": 2}})
        split = body["dataframe_split"]
        short_history = {"dataframe_split": {**split, "data": split["data"][:3]}}
        with pytest.raises(HTTPError) as caught:
            ask(address, short_history)
        reason = json.loads(caught.value.read())["message"]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    expected = ready.predict(ready.example)
    got = pd.DataFrame(answers)
    assert list(got.columns) == list(expected.columns)
    assert pd.DatetimeIndex(pd.to_datetime(got["time"])).equals(pd.DatetimeIndex(expected["time"]))
    targets = list(expected.columns[1:])
    np.testing.assert_allclose(got[targets], expected[targets], rtol=0, atol=1e-5)
    assert shorter == answers[:2]
    assert caught.value.code == 400
    assert reason.endswith("the history has 3 rows, the model looks back 24: give at least 24 rows")
