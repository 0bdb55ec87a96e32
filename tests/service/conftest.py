from contextlib import ExitStack
from copy import deepcopy

import pytest

from forecaster.forecast.predictor import Predictor
from forecaster_service.logs import LINES
from tests.service.processes import serving
from tests.service.toy import KINDS, NAME, Registry, make_bundle, start

LINES.at_once = True  # so that each line is in the output of its test


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A bundle of three columns, hourly, without a time zone."""
    path = tmp_path_factory.mktemp("bundles") / "toy"
    make_bundle(path)
    return path


@pytest.fixture(scope="session")
def client(folder):
    """A client of a service with that bundle."""
    with start(model=str(folder)) as client:
        yield client


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """For a kind of model: a client of a service with it, the model itself, and a series that it
    accepts."""
    made = {}
    with ExitStack() as stack:

        def served(kind, model="informer"):
            if (kind, model) not in made:
                folder = tmp_path_factory.mktemp("kinds") / "bundle"
                bundle = make_bundle(folder, model=model, **KINDS[kind])
                client = stack.enter_context(start(model=str(folder)))
                example = client.get(f"/models/{NAME}/example").json()
                made[kind, model] = client, Predictor(bundle, "cpu"), example["inputs"][0]
            client, forecaster, series = made[kind, model]
            return client, forecaster, deepcopy(series)

        yield served


@pytest.fixture
def full(client):
    """A request that the service accepts, in the full form."""
    return client.get(f"/models/{NAME}/example").json()


@pytest.fixture
def flat(full):
    """The same request in the flat form."""
    return {**full["inputs"][0], **full["parameters"]}


@pytest.fixture(scope="session")
def server(folder, tmp_path_factory):
    """The same service as a process."""
    with serving(folder, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def registry(monkeypatch):
    """The registry that the service asks in place of a tracker."""
    registry = Registry()
    monkeypatch.setattr("forecaster_service.store.Child", lambda settings: registry)
    return registry
