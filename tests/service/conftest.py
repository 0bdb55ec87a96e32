from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from forecaster_service.logs import LINES
from tests.service.processes import Server, serving
from tests.service.toy import NAME, Registry, make_bundle, start

LINES.at_once = True  # so that each line is in the output of its test


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of three columns, hourly, without a time zone."""
    path = tmp_path_factory.mktemp("bundles") / "toy"
    make_bundle(path)
    return path


@pytest.fixture(scope="session")
def client(folder: Path) -> Iterator[TestClient]:
    """A client of a service with that bundle."""
    with start(model=str(folder)) as client:
        yield client


@pytest.fixture
def full(client: TestClient) -> dict[str, Any]:
    """A request that the service accepts, in the full form."""
    body: dict[str, Any] = client.get(f"/models/{NAME}/example").json()
    return body


@pytest.fixture
def flat(full: dict[str, Any]) -> dict[str, Any]:
    """The same request in the flat form."""
    return {**full["inputs"][0], **full["parameters"]}


@pytest.fixture(scope="session")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same service as a process."""
    with serving(folder, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry that the service asks in place of a tracker."""
    registry = Registry()
    monkeypatch.setattr("forecaster_service.store.Child", lambda settings: registry)
    return registry
