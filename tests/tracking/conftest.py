import pytest

from forecaster.forecast.predictor import Predictor
from forecaster.tracking.run import start
from forecaster.tracking.store import client_of
from tests.service.toy import HORIZON, make_bundle
from tests.tracking.toy import NAME, TASK, tracked_at


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder whose name has a space, for a store and a bundle."""
    return tmp_path_factory.mktemp("a store")


@pytest.fixture(scope="module")
def uri(home):
    return f"sqlite:///{home}/mlflow.db"


@pytest.fixture(autouse=True)
def _store(uri, home, monkeypatch):
    """The store that the user named, with another working directory."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.delenv("MLFLOW_REGISTRY_URI", raising=False)
    (home / "work").mkdir(exist_ok=True)
    monkeypatch.chdir(home / "work")


@pytest.fixture
def client(uri):
    return client_of(uri)


@pytest.fixture(scope="module")
def forecaster(home):
    return Predictor(make_bundle(home / "some bundle"), "cpu")


@pytest.fixture(scope="module")
def logged(uri, home, forecaster):
    """The id of a run and of the model that it logged and registered."""
    tags = {"attn": "prob", "data": "toy", "horizon": str(HORIZON)}
    with start(tracked_at(uri), "toy run.1", tags) as run:
        run.params({"seed": "0"})
        run.log_model(home / "some bundle")
        run.metrics({"test_mse": 0.25, "column/Zürich °C/mae": 2.0})
        run.register(NAME, [0.5] * 4, TASK)
    (output,) = client_of(uri).get_run(run.id).outputs.model_outputs
    return run.id, output.model_id
