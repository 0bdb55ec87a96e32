import os

import pytest

from tests.bundles import unsaved
from tests.forecast.test_predictor import history


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """An empty folder, no cache, no data, no tracker, no network."""
    for name in [*os.environ]:
        if name.startswith(("FORECASTER_", "MLFLOW_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(
        "pooch.retrieve", lambda *arguments: pytest.fail("a test reached for the network")
    )


@pytest.fixture
def done(run):
    """Run the command, which succeeds; returns its stdout and stderr."""

    def call(*arguments):
        status, out, err = run(*arguments)
        assert status == 0, err
        return out, err

    return call


@pytest.fixture
def refused(run):
    """Run the command, which ends with a status and prints nothing; returns its message."""

    def call(status, *arguments):
        found, out, err = run(*arguments)
        assert (found, out) == (status, ""), err
        assert "Traceback" not in err
        assert "defect" not in err
        return err

    return call


@pytest.fixture
def folder(tmp_path):
    unsaved().save(tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def csv(tmp_path):
    history().to_csv(tmp_path / "history.csv", index=False)
    return tmp_path / "history.csv"
