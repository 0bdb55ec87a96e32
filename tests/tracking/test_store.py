"""MLflow's store, and how little of it a process notices."""

import json
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from forecaster.base.errors import UnavailableError
from forecaster.config.run_config import RunConfig, load_dict
from forecaster.tracking.registry import resolve
from forecaster.tracking.run import start
from forecaster.tracking.store import client_of, experiment, problem
from tests.tracking.toy import command


def test_a_run_is_silent_and_changes_nothing_of_mlflow_in_its_process(tmp_path, monkeypatch):
    """Also with a database that does not exist yet, whose migrations MLflow would log."""
    monkeypatch.chdir(tmp_path)
    script = """
import logging, os
from forecaster.config.run_config import RunConfig
from forecaster.base.errors import UsageError
from forecaster.tracking.registry import resolve
from forecaster.tracking.run import start
from mlflow.environment_variables import *
def check():
    assert not any(name.startswith(("MLFLOW_", "DO_NOT_TRACK")) for name in os.environ)
    assert MLFLOW_HTTP_REQUEST_TIMEOUT.get() == 120
    assert MLFLOW_ALLOW_PICKLE_DESERIALIZATION.get()
    assert logging.getLogger("mlflow").getEffectiveLevel() == logging.INFO
check()
with start(RunConfig(), "x", {}) as run:
    check()
    run.report({"loss": 1.0}, 1)
    run.text("a.txt", "a")
check()
assert run.uri == "sqlite:///mlflow.db"
assert run.ui_command.startswith("mlflow ui --backend-store-uri sqlite:///mlflow.db\\nhttp")
try:
    resolve("newest")
except UsageError:
    check()
"""
    done = command("-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    made = {path.name for path in tmp_path.iterdir()}
    assert {"mlflow.db", "mlartifacts"} <= made
    assert made <= {"mlflow.db", "mlflow.db.lock", "mlartifacts", "runs"}


def test_a_server_that_is_not_there_or_never_answers_is_named(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port, why in (("9", "[Errno 111] Connection refused"),
                          (str(silent.getsockname()[1]), "timed out")):  # fmt: skip
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{port}")
            before = time.monotonic()
            with pytest.raises(UnavailableError) as caught:
                resolve("newest")
            assert time.monotonic() - before < 4
            assert f"http://***@127.0.0.1:{port}: {why}" in str(caught.value)
            assert "MLFLOW_TRACKING_URI or track.uri may name another store" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("folder", "unable to open"),
        ("file/x.db", "(Not a directory|File exists)"),
        ("file", "file is not a database"),
    ],
)
def test_a_path_that_cannot_be_opened_fails_at_once(name, why, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("no database, certainly none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/{name}")
    before = time.monotonic()
    message = rf"{name}: .*{why}.*\. MLFLOW_TRACKING_URI or"
    with pytest.raises(UnavailableError, match=message), start(RunConfig(), "x", {}):
        pass
    assert time.monotonic() - before < 5
    assert not Path("runs").exists()


@pytest.mark.timeout(180)
def test_a_database_whose_making_was_killed_is_made_anew(tmp_path):
    """MLflow alone could never open it again, because a table exists already."""
    uri, beside = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / ".mlflow.db.new"
    script = f"from forecaster.tracking.store import client_of; client_of({uri!r})"
    making = subprocess.Popen([sys.executable, "-c", script])
    while not beside.exists() or beside.stat().st_size < 100_000:
        assert making.poll() is None, "it has ended before it could be killed"
        time.sleep(0.01)
    making.kill()
    making.wait()
    assert (tmp_path / "mlflow.db").stat().st_size == 0
    assert client_of(uri).get_experiment("0").name == "Default"
    assert not list(tmp_path.glob(".mlflow*"))


def test_a_database_of_a_newer_mlflow_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    assert problem() == ""
    assert not [*tmp_path.iterdir()], "looking creates nothing"
    client_of(f"sqlite:///{tmp_path}/other.db")
    (tmp_path / "other.db").rename(tmp_path / "mlflow.db")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    assert "a newer MLflow wrote it than the one installed" in problem()


def test_an_experiment_that_was_deleted_is_named(client):
    client.delete_experiment(client.create_experiment("gone"))
    config = load_dict({"track": {"experiment": "gone"}}, "the test")
    said = "must be in the 'active' state"
    with pytest.raises(UnavailableError, match=said), start(config, "x", {}):
        pass


def test_the_view_that_opens_is_kept_and_brought_back(client):
    key = "mlflow.sharedViewState.attention"
    with start(RunConfig(), "x", {}) as run:
        own = client.get_run(run.id).info.experiment_id
    columns = json.loads(json.loads(client.get_experiment(own).tags[key])["state"])["columnOrder"]
    assert columns[:2] == ["tags.`attn`", "metrics.`network_test_mse`"], "seen in a narrow window"
    client.set_experiment_tag(own, key, "changed by hand")
    experiment(client, "http://", RunConfig().track.experiment)
    assert client.get_experiment(own).tags[key] == "changed by hand"
    client.delete_experiment_tag(own, key)
    experiment(client, "http://", RunConfig().track.experiment)
    assert key in client.get_experiment(own).tags


@pytest.mark.slow
def test_processes_may_meet_a_missing_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = """
from forecaster.config.run_config import RunConfig
from forecaster.tracking.run import start
with start(RunConfig(), "x", {}) as run:
    run.metrics({"loss": 1.0})
print(run.id)
"""
    with ThreadPoolExecutor() as threads:
        done = threads.map(lambda _: command("-c", script), range(2))
        runs = {each.stdout.strip() for each in done}
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    assert [client.get_run(run).info.status for run in runs] == ["FINISHED"] * 2
