import errno
import json
import math
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from textwrap import dedent
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure

from forecaster import signals, spools, track
from forecaster.config import RunConfig, load_dict
from forecaster.errors import Stopped, StorageError, UnavailableError, UsageError
from forecaster.predict import Predictor
from forecaster.track import MlflowClient, environment_variables
from tests.lacking import SKINNY_LACKS, lacking
from tests.service.toy import HORIZON, make_bundle

NAME = "forecaster-toy-M-all-6"
TASK = {"data.digest": "sha256:1", "borders": "[1, 2, 3]"}
WATCHED = load_dict({"track": {"system_metrics": True}}, "the test")
ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")


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
    return track._client(uri)


@pytest.fixture(scope="module")
def forecaster(home):
    return Predictor(make_bundle(home / "some bundle"), "cpu")


@pytest.fixture(scope="module")
def logged(uri, home, forecaster):
    """The id of a run and of the model that it logged and registered."""
    with track.start(tracked_at(uri), "toy run.1", {}) as run:
        run.params({"seed": "0"})
        example = forecaster.example
        forecast = forecaster.predict(example)
        tags = {"attn": "prob", "data": "toy", "horizon": str(HORIZON)}
        model = run.log_model(home / "some bundle", "toy run.1", example, forecast, HORIZON, tags)
        run.metrics({"test_mse": 0.25, "column/Zürich °C/mae": 2.0}, model)
        run.register(model, NAME, [0.5] * 4, TASK)
        id = run.model_id(model)
    return run.id, id


def tracked_at(uri):
    return load_dict({"track": {"uri": uri}}, "the test")


def points(client, run, key):
    """Every value of a metric in the store, in its order."""
    return sorted((each.step, each.value) for each in client.get_metric_history(run, key))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def command(*arguments, **environment):
    """Run Python without the settings of the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "DO_NOT_TRACK"))}
    return subprocess.run(
        [sys.executable, *arguments],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )


# What a run records


def test_run_holds_what_it_is_given(client, forecaster):
    config = RunConfig()
    figure = Figure()
    figure.add_subplot().plot([1, 2])
    with track.start(config, "ETTh1-336-prob", {"attn": "prob", "attn.effective": "sparse"}) as run:
        run.params(config.flat())
        run.report({"train_loss": 2.0, "validation_loss": 3.0}, 1)
        run.report({"train_loss": 1.0, "validation_loss": 2.5}, 2)
        run.metrics({"test_mse": 0.5})
        run.describe("It **wins**.")
        run.text("config.yaml", yaml.safe_dump(config.to_dict()))
        run.figure("error by step", figure)
        run.dataset("ETTh1", f"sha256:{'ab' * 32}", "https://example.org/ETTh1.csv")
    found = client.get_run(run.id)
    assert (found.info.status, found.info.run_name) == ("FINISHED", "ETTh1-336-prob")
    assert found.data.params == config.flat()
    assert found.data.tags["attn"] == "prob"
    assert found.data.tags["mlflow.note.content"] == "It **wins**."
    assert found.data.tags["attn.effective"] == "sparse"
    assert found.data.metrics["test_mse"] == 0.5
    history = client.get_metric_history(run.id, "train_loss")
    assert [(metric.step, metric.value) for metric in history] == [(1, 2.0), (2, 1.0)]
    assert {file.path for file in client.list_artifacts(run.id)} == {"config.yaml", "plots"}
    assert [file.path for file in client.list_artifacts(run.id, "plots")] == [
        "plots/error by step.png"
    ]
    local = client.download_artifacts(run.id, "config.yaml")
    assert load_dict(yaml.safe_load(Path(local).read_text()), "the test") == config
    (used,) = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("ETTh1", ("ab" * 32)[:36])
    assert json.loads(used.dataset.source) == {"url": "https://example.org/ETTh1.csv"}
    assert [(tag.key, tag.value) for tag in used.tags] == [("mlflow.data.context", "training")]


def test_final_figures_are_rounded_to_what_a_column_shows(client):
    with track.start(RunConfig(), "x", {}) as run:
        run.report({"train_loss": 0.36719671677728562}, 1)
        run.metrics({"test_mse": 0.36719671677728562, "skill": -1e-7 / 3, "parameters": 12345678})
        run.metrics({"test_mae": math.nan, "mase": math.inf})
    found = client.get_run(run.id).data.metrics
    assert (found["test_mse"], found["skill"], found["parameters"]) == (
        0.367197,
        -3.33333e-8,
        12345678,
    )
    assert found["train_loss"] == 0.36719671677728562, "curves keep all digits"
    assert math.isnan(found["test_mae"])


def test_names_and_values_are_made_to_fit(client):
    values = {f"option.{number}": "x" for number in range(230)}
    with track.start(RunConfig(), "x", {"long": "b" * 9000}) as run:
        run.params({**values, "long": "a" * 7000, "lr_of.T (degC)": "1"})
        run.metrics({"column/T (degC)/mse": 1.0, "column/ü %/mse": 2.0})
    data = client.get_run(run.id).data
    assert values.items() <= data.params.items()
    assert data.params["long"] == "a" * 5999 + "…"
    assert data.params["lr_of.T _degC_"] == "1"
    assert data.tags["long"] == "b" * 7999 + "…"
    assert data.metrics == {"column/T _degC_/mse": 1.0, "column/ü _/mse": 2.0}


def test_local_data_is_noted_by_its_path(client):
    with track.start(RunConfig(), "x", {}) as run:
        run.dataset("own", "12", "/data/own.csv", context="evaluation")
    (used,) = client.get_run(run.id).inputs.dataset_inputs
    assert used.dataset.source_type == "local"
    assert json.loads(used.dataset.source) == {"uri": "/data/own.csv"}
    assert used.tags[0].value == "evaluation"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("no"), "FAILED"),
        (KeyboardInterrupt(), "KILLED"),
        (Stopped(signal.SIGTERM), "KILLED"),
    ],
)
def test_the_end_of_a_run_is_told(client, error, status):
    runs = []

    def train():
        with track.start(RunConfig(), "x", {}) as run:
            runs.append(run.id)
            run.report({"loss": 1.0}, 1)
            raise error

    with pytest.raises(type(error)) as caught:
        train()
    assert caught.value is error
    found = client.get_run(runs[0])
    assert (found.info.status, found.data.metrics) == (status, {"loss": 1.0})


def test_a_signal_while_a_run_is_made_ends_it_as_killed(home, client, monkeypatch):
    settled = spools.Sender.settle

    def stopped(self, *limits, **how):
        found = settled(self, *limits, **how)
        monkeypatch.setattr(spools.Sender, "settle", settled)  # a second signal would end the tests
        signal.raise_signal(signal.SIGTERM)
        return found

    def statuses() -> dict[str, str]:
        places = [each.experiment_id for each in client.search_experiments()]
        return {run.info.run_id: run.info.status for run in client.search_runs(places)}

    before = statuses()
    monkeypatch.setattr(spools.Sender, "settle", stopped)
    with pytest.raises(Stopped), signals.heeding(), track.start(RunConfig(), "x", {}):
        pytest.fail("the signal was not heeded")
    assert [status for id, status in statuses().items() if id not in before] == ["KILLED"]


@pytest.mark.parametrize("error", [None, ValueError("of the training")])
def test_a_store_that_refuses_fails_no_run(client, error, monkeypatch, tmp_path):
    """The run was deleted; once restored, it gets the rest."""
    monkeypatch.chdir(tmp_path)
    said = []

    def train():
        with track.start(RunConfig(), "x", {}, say=said.append) as run:
            client.delete_run(run.id)
            run.report({"loss": 1.0}, 1)
            run.report({"loss": 2.0}, 2)
            if error:
                raise error

    with pytest.raises(ValueError, match="of the training") if error else nullcontext():
        train()
    assert "does not have all of this run yet" in said[0]
    assert "must be in the 'active' state" in said[0]
    (folder,) = Path("runs").glob("x-*.spool")
    assert str(folder) in said[0]
    id = json.loads((folder / "run.json").read_text())["id"]
    client.restore_run(id)
    damaged = Path("runs/a.spool/run.json")
    damaged.parent.mkdir()
    damaged.touch()
    other, synced = track.sync([])
    assert other.left.startswith(f"{damaged} cannot be read")
    shutil.rmtree(damaged.parent)
    assert (synced.left, synced.told) == ("", "2 reports of metrics")
    assert points(client, id, "loss") == [(1, 1.0), (2, 2.0)]
    assert client.get_run(id).info.status == ("FAILED" if error else "FINISHED")
    assert not any(Path("runs").iterdir())


def test_a_run_that_goes_on_is_told_nothing_twice(client, monkeypatch):
    monkeypatch.setattr(track, "SAMPLING_SECONDS", 0.05)
    runs = []
    for last in (3, 5):
        again = runs[0] if runs else None
        with track.start(WATCHED, "goes on", {}, again=again) as run:
            runs.append(run.id)
            run.params({"device": f"of {last}"})
            for epoch in range(1, last + 1):
                run.report({"loss": float(last)}, epoch)
            time.sleep(0.3)
        count = len(client.get_metric_history(run.id, "system/system_memory_usage_percentage"))
        assert count > 0
    assert runs[0] == runs[1]
    assert points(client, run.id, "loss") == [(1, 3.0), (2, 3.0), (3, 3.0), (4, 5.0), (5, 5.0)]
    found = client.get_run(run.id)
    assert (found.info.status, found.data.params) == ("FINISHED", {"device": "of 3"})
    history = client.get_metric_history(run.id, "system/system_memory_usage_percentage")
    assert len({point.step for point in history}) == len(history) == count


def test_what_an_earlier_process_left_outlives_a_store_that_refuses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left = spools.begin({"id": "1" * 32, "key": "1" * 32, "name": "x", "again": False})
    left.append("metrics", at=1, step=1, values={"loss": 1.0}, model=None)
    left.release()
    with (
        pytest.raises(UnavailableError, match="unable to open"),
        track.start(tracked_at(f"sqlite:///{tmp_path}"), "x", {}, again="1" * 32),
    ):
        pass
    (again,) = (each for _, each in spools.find([]))
    assert [line["values"] for line, _ in again.left()] == [{"loss": 1.0}]
    again.release()


def test_a_run_that_the_store_does_not_know_is_a_new_one(client):
    with track.start(RunConfig(), "x", {}, again="2" * 32) as run:
        assert run.id != "2" * 32
        assert client.get_run(run.id).data.tags["forecaster.run"] == "2" * 32


def test_runs_of_processes_that_are_gone_are_closed(client):
    with track.start(RunConfig(), "x", {}) as run:
        experiment = client.get_run(run.id).info.experiment_id
        own = client.get_run(run.id).data.tags["forecaster.process"]
    where, number, _ = own.split()
    tags = {"gone": f"{where} {number} 7.00", "own": own, "elsewhere": "host/1 1 7.00", "none": ""}
    made = {
        name: client.create_run(experiment, tags={"forecaster.process": tag} if tag else {})
        for name, tag in tags.items()
    }
    with track.start(RunConfig(), "x", {}):
        found = {name: client.get_run(each.info.run_id) for name, each in made.items()}
    assert {name: run.info.status for name, run in found.items()} == {
        **{"gone": "KILLED", "own": "RUNNING"},
        **{"elsewhere": "RUNNING", "none": "RUNNING"},
    }


@pytest.mark.parametrize("asked", [True, False])
def test_system_metrics_are_logged_on_request(asked, client, monkeypatch):
    monkeypatch.setattr(track, "SAMPLING_SECONDS", 0.05)
    with track.start(WATCHED if asked else RunConfig(), "x", {}) as run:
        time.sleep(0.5)
    found = client.get_run(run.id).data.metrics.get("system/system_memory_usage_percentage")
    assert found > 0 if asked else found is None


def test_tables_are_files_that_the_page_shows_as_tables(client):
    with track.start(RunConfig(), "x", {}) as run:
        run.tables({"steps": [{"step": 1, "mse": 0.5}, {"step": 2, "mae": None}], "none": []})
    found = pd.read_json(client.download_artifacts(run.id, "tables/steps.json"), orient="split")
    assert found.columns.to_list() == ["step", "mse", "mae"]
    assert found["step"].to_list() == [1, 2]
    assert json.loads(client.get_run(run.id).data.tags["mlflow.loggedArtifacts"]) == [
        {"path": f"tables/{name}.json", "type": "table"} for name in ("steps", "none")
    ]


def test_a_report_does_not_wait_for_the_store(client, home):
    with track.start(RunConfig(), "x", {}) as run:
        busy = sqlite3.connect(home / "mlflow.db", isolation_level=None)
        busy.execute("BEGIN EXCLUSIVE")
        before = time.monotonic()
        run.report({"loss": 1.0}, 1)
        waited = time.monotonic() - before
        time.sleep(0.3)
        busy.execute("ROLLBACK")
        busy.close()
        assert run.settle()
    assert waited < 0.2
    assert client.get_run(run.id).data.metrics == {"loss": 1.0}


def test_global_state_of_mlflow_is_left_alone(logged, home):
    import mlflow

    assert mlflow.active_run() is None
    assert mlflow.last_active_run() is None
    assert [path.name for path in (home / "work").rglob("*")] == ["runs"]


# Where runs go


def test_configured_address_comes_before_the_environment(uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with track.start(tracked_at(uri), "x", {}) as run:
        assert run.uri == uri


def test_a_run_is_silent_and_needs_no_setting(tmp_path, monkeypatch):
    """Also with a database that does not exist yet, whose migrations MLflow would log."""
    monkeypatch.chdir(tmp_path)
    script = """
from forecaster import track
from forecaster.config import RunConfig
with track.start(RunConfig(), "x", {}) as run:
    run.report({"loss": 1.0}, 1)
    run.text("a.txt", "a")
assert run.uri == "sqlite:///mlflow.db"
assert run.ui_command.startswith("mlflow ui --backend-store-uri sqlite:///mlflow.db\\nhttp")
"""
    done = command("-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name for path in tmp_path.iterdir()} >= {"mlflow.db", "mlartifacts"}
    assert {path.name for path in tmp_path.iterdir()} <= {
        *("mlflow.db", "mlflow.db.lock", "mlartifacts", "runs")
    }


def test_settings_of_the_user_stay():
    script = """
from forecaster import track
from mlflow.environment_variables import *
print(track.FIRST_CONTACT)
with track._settings(track.FIRST_CONTACT):
    print(MLFLOW_HTTP_REQUEST_TIMEOUT.get(), MLFLOW_HTTP_REQUEST_MAX_RETRIES.get())
"""
    done = command("-c", script, MLFLOW_HTTP_REQUEST_TIMEOUT="7")
    assert done.stdout == "{'MLFLOW_HTTP_REQUEST_MAX_RETRIES': 0}\n7 0\n"


def test_what_the_process_does_with_mlflow_itself_is_as_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = """
import logging, os
from forecaster import track
from forecaster.config import RunConfig
from mlflow.environment_variables import *
def check():
    assert not any(name.startswith(("MLFLOW_", "DO_NOT_TRACK")) for name in os.environ)
    assert MLFLOW_HTTP_REQUEST_TIMEOUT.get() == 120
    assert MLFLOW_ALLOW_PICKLE_DESERIALIZATION.get()
    assert logging.getLogger("mlflow").getEffectiveLevel() == logging.INFO
    assert logging.getLogger("urllib3.connectionpool").isEnabledFor(logging.WARNING)
check()
with track.start(RunConfig(), "x", {}) as run:
    check()
check()
assert track.champions() == []
check()
"""
    done = command("-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_another_run_does_not_change_how_long_this_one_waits(client, monkeypatch):
    begun, on, seen = threading.Event(), threading.Event(), []
    log = MlflowClient.log_batch

    def slow(*arguments, **options):
        begun.set()
        on.wait(60)
        names = ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT")
        seen.append([getattr(environment_variables, name).get() for name in names])
        return log(*arguments, **options)

    monkeypatch.setattr(MlflowClient, "log_batch", slow)
    with track.start(RunConfig(), "x", {}) as run:
        run.report({"loss": 1.0}, 1)
        assert begun.wait(60)
        track.champions()
        on.set()
        assert run.settle()
    assert seen == [[0, 30]]


def test_a_server_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    before = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        track.champions()
    assert time.monotonic() - before < 5
    message = str(caught.value)
    assert "http://***@127.0.0.1:9: [Errno 111] Connection refused" in message
    assert "unset MLFLOW_TRACKING_URI" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("error", "absent"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (socket.gaierror(-2, "Name or service not known"), True),
        (ConnectionResetError(104, "Connection reset by peer"), False),
        (TimeoutError("timed out"), False),
    ],
)
def test_nobody_listens_yet_where_the_cause_says_so(error, absent):
    outer = UnavailableError("MLflow cannot use it")
    outer.__cause__ = error
    assert track._absent(outer) is track._absent(error) is absent


def test_a_server_that_never_answers_is_named(monkeypatch):
    monkeypatch.setitem(track.FIRST_CONTACT, "MLFLOW_HTTP_REQUEST_TIMEOUT", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        before = time.monotonic()
        with pytest.raises(UnavailableError, match=f"{address}: timed out"):
            track.champions()
    assert time.monotonic() - before < 4


def test_a_database_that_is_none_is_named(tmp_path, monkeypatch):
    (tmp_path / "x.db").write_text("no database, certainly none")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/x.db")
    with (
        pytest.raises(UnavailableError, match=r"x\.db: file is not a database\. Name another"),
        track.start(RunConfig(), "x", {}),
    ):
        pass


@pytest.mark.parametrize("name", ["folder", "file/x.db"])
def test_a_path_that_cannot_be_opened_fails_at_once(name, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/{name}")
    before = time.monotonic()
    message = rf"{name}: .*(unable to open|Not a directory|File exists).*\. Name another"
    with pytest.raises(UnavailableError, match=message), track.start(RunConfig(), "x", {}):
        pass
    assert time.monotonic() - before < 5
    assert not any(Path("runs").iterdir())


@pytest.mark.timeout(180)
def test_a_database_whose_making_was_killed_is_made_anew(tmp_path):
    """MLflow alone could never open it again, because a table exists already."""
    uri, beside = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / ".mlflow.db.new"
    script = f"from forecaster import track; track._client({uri!r})"
    making = subprocess.Popen([sys.executable, "-c", script])
    while not beside.exists() or beside.stat().st_size < 100_000:
        assert making.poll() is None, "it has ended before it could be killed"
        time.sleep(0.01)
    making.kill()
    making.wait()
    assert (tmp_path / "mlflow.db").stat().st_size == 0
    assert track._client(uri).get_experiment("0").name == "Default"
    assert not list(tmp_path.glob(".mlflow*"))


def test_a_full_disk_under_a_new_database(tmp_path, monkeypatch):
    full = sqlite3.OperationalError("database or disk is full")
    monkeypatch.setattr(track, "_answering", lambda *uris: (_ for _ in ()).throw(full))
    with pytest.raises(StorageError, match=r"cannot use .*/mlflow\.db: database or disk is full"):
        track._client(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_database_belongs_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with track.start(RunConfig(), name, {}):
            pass
        assert Path("mlflow.db").is_file(), f"{name} went to another place"


def test_reading_makes_no_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(UnavailableError, match=rf"no MLflow database {tmp_path}/mlflow\.db: train"):
        track.download("forecaster-x", tmp_path / "bundle")
    assert not any(tmp_path.iterdir())


def test_unusable_experiments_are_explained(client):
    def start(name):
        with track.start(load_dict({"track": {"experiment": name}}, "the test"), "x", {}):
            pass

    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(UsageError, match="'gone' has been deleted: restore it"):
        start("gone")
    client.create_experiment("served", "mlflow-artifacts:/7")
    with pytest.raises(UsageError, match="'served' was made by a server"):
        start("served")


def test_a_full_disk_is_a_storage_error(monkeypatch):
    with track.start(RunConfig(), "x", {}) as run, monkeypatch.context() as full:
        error = OSError(28, "No space left on device")
        full.setattr(Path, "write_text", lambda *_, **__: (_ for _ in ()).throw(error))
        with pytest.raises(StorageError, match="No space left on device"):
            run.text("a.txt", "a")


RUNS = "/#/experiments/3/runs?workflowType=machine_learning&viewStateShareKey=attention"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (
            "sqlite:///mlflow.db",
            f"mlflow ui --backend-store-uri sqlite:///mlflow.db\nhttp://127.0.0.1:5000{RUNS}",
        ),
        (
            "sqlite:////a b/m.db",
            f"mlflow ui --backend-store-uri 'sqlite:////a b/m.db'\nhttp://127.0.0.1:5000{RUNS}",
        ),
        ("http://u:p@host:5000/", f"http://***@host:5000{RUNS}"),
    ],
)
def test_where_to_look(address, shown):
    assert track.ui_command(address, {"run": "r", "experiment": "3"}) == shown


def test_the_view_that_opens_is_kept_and_brought_back(client):
    key = "mlflow.sharedViewState.attention"
    with track.start(RunConfig(), "x", {}) as run:
        own = client.get_run(run.id).info.experiment_id
    view = json.loads(client.get_experiment(own).tags[key])
    assert (view["name"], view["createdAt"] > 0) == ("attention", True)
    columns = json.loads(view["state"])["columnOrder"]
    assert columns[:2] == ["tags.`attn`", "metrics.`network_test_mse`"], "seen in a narrow window"
    client.set_experiment_tag(own, key, "changed by hand")
    with track.start(RunConfig(), "x", {}):
        pass
    assert client.get_experiment(own).tags[key] == "changed by hand"
    client.delete_experiment_tag(own, key)
    with track.start(RunConfig(), "x", {}):
        pass
    assert json.loads(client.get_experiment(own).tags[key])["name"] == "attention"


def test_a_description_that_is_too_long_ends_with_a_whole_line(client):
    figure = Figure()
    with track.start(RunConfig(), "x", {}) as run:
        run.describe("It wins.", "\n".join(f"| {i:04} |" for i in range(2000)), figure)
    text = client.get_run(run.id).data.tags["mlflow.note.content"]
    assert text.startswith(
        "It wins.\n\n![forecast](get-artifact?path=plots%2Fpicture.png&run_uuid="
    )
    assert f"run_uuid={run.id})" in text
    *_, last, empty, end = text.splitlines()
    assert (len(last), empty, end) == (8, "", "…")
    assert [file.path for file in client.list_artifacts(run.id, "plots")] == ["plots/picture.png"]


def test_where_to_look_later():
    shown = track.ui_command("http://host:5000", {})
    assert shown == "http://host:5000 after forecaster sync"


# The model


def test_a_full_disk_while_a_model_is_built_is_an_error_of_the_disk(home, client, monkeypatch):
    """MLflow reports that the code could not be copied."""

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (home / "kept").mkdir()
    monkeypatch.setattr("mlflow.utils.model_utils._copy_file_or_tree", full)
    frame = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=2), "y": [1.0, 2.0]})
    with (
        pytest.raises(StorageError, match=r"could not be written: .*No space left on device"),
        track.start(RunConfig(), "x", {}) as run,
    ):
        run.log_model(home / "kept", "x", frame, frame, 1, {})


def test_model_is_logged_without_pickle(logged, client, home):
    model = client.get_logged_model(logged[1])
    folder = home / "mlartifacts" / "forecaster" / "models" / model.model_id / "artifacts"
    assert folder.as_uri() == model.artifact_location
    endings = {path.suffix for path in folder.rglob("*") if path.is_file()}
    code = {".py", ".css", ".j2", ".typed"}
    assert endings == {"", ".json", ".yaml", ".txt", ".safetensors", ".sha256"} | code
    assert contents(folder / "artifacts" / "bundle") == contents(home / "some bundle")
    description = yaml.safe_load((folder / "MLmodel").read_text())
    assert description["model_id"] == model.model_id
    assert set(description["flavors"]) == {"python_function"}
    assert "python_model" not in description["flavors"]["python_function"]
    assert json.loads(description["signature"]["params"])[0] == {
        **{"name": "horizon", "type": "long"},
        **{"default": HORIZON, "shape": None},
    }
    inputs = json.loads(description["signature"]["inputs"])
    assert {field["name"]: field["type"] for field in inputs} == {
        **{"time": "any", "load": "double"},
        **{"wind": "double", "Zürich °C": "double"},
    }


def test_requirements_are_exact_and_not_of_ours(logged, home):
    (file,) = (home / "mlartifacts").rglob(f"{logged[1]}/artifacts/requirements.txt")
    lines = file.read_text().split()
    assert all(line.count("==") == 1 and "+" not in line for line in lines)
    assert {line.partition("==")[0] for line in lines} == set(track.REQUIREMENTS)


def test_model_belongs_to_its_run(logged, client):
    run, model = logged
    found = client.get_logged_model(model)
    assert (str(found.status), found.name, found.source_run_id) == ("READY", "toy-run-1", run)
    assert found.params == {"seed": "0"}
    assert {"attn": "prob", "data": "toy", "horizon": "6"}.items() <= found.tags.items()
    expected = {"test_mse": 0.25, "column/Zürich _C/mae": 2.0}
    assert {metric.key: metric.value for metric in found.metrics} == expected
    assert client.get_run(run).data.metrics.items() >= expected.items()
    assert [output.model_id for output in client.get_run(run).outputs.model_outputs] == [model]


LOCAL_AND_SHARED = pytest.mark.parametrize("shared", [False, True])


@pytest.fixture
def contest(logged, client, monkeypatch):
    """Registers versions under a new name, in a store that may look like a server."""
    with track.start(RunConfig(), "x", {}) as run:

        def register(name, error, task=TASK, shared=False):
            if shared:
                monkeypatch.setattr(track, "_locked", lambda uri: nullcontext())
            return run.register(logged[1], name, errors(error), task)

        yield register


def errors(mean):
    """The errors of six stretches, some of them harder than others for every model."""
    return [mean * factor for factor in (1, 2, 0.5, 1, 3, 0.25)]


def aliases(client, name):
    return {key: str(each) for key, each in client.get_registered_model(name).aliases.items()}


@LOCAL_AND_SHARED
def test_champion_moves_to_the_better_model_of_one_task(contest, client, shared):
    name, other = f"forecaster-contest-{shared}", {**TASK, "borders": "[1, 2, 4]"}
    contests = [
        (0.5, TASK, "champion", "version 1 is the champion: there was none"),
        (0.6, TASK, "nothing", "version 2 is registered, but not the champion: MSE on the "
         "calibrating half 0.775, version 1 has 0.6458"),
        (0.5, TASK, "nothing", "calibrating half 0.6458, version 1 has 0.6458"),
        (math.nan, TASK, "nothing", "its MSE on the calibrating half is nan"),
        (0.3, TASK, "champion", "version 5 is the champion: MSE on the calibrating half 0.3875, "
         "version 1 has 0.6458 (-0.26 ± 0.17 over 6 stretches)"),
        (0.1, other, "challenger", "version 6 is a challenger, not the champion: version 5 was "
         "judged on other data (borders), so errors do not compare. To serve it all the same: "
         "forecaster promote NAME/6"),
        (0.4, TASK, "nothing", "calibrating half 0.5167, version 5 has 0.3875"),
        (0.2, TASK, "champion", "version 8 is the champion"),
    ]  # fmt: skip
    expected = {}
    for number, (error, task, becomes, reason) in enumerate(contests, 1):
        made = contest(name, error, task, shared)
        assert (made.name, made.version) == (name, str(number))
        assert made.champion is (becomes == "champion")
        assert reason.replace("NAME", name) in made.sentence
        if becomes != "nothing":
            expected[becomes] = str(number)
        assert aliases(client, name) == expected
        tags = client.get_model_version(name, str(number)).tags
        assert tags["decision"] == made.sentence
        assert tags["calibrating_mse"] == f"{np.mean(errors(error)):.6g}"
        assert task.items() <= tags.items()


def test_a_difference_that_is_not_measurable_needs_a_hand(contest, client, logged):
    contest("forecaster-close", 0.5)
    with track.start(RunConfig(), "x", {}) as run:
        close = [*errors(0.5)[:5], 0.05]
        made = run.register(logged[1], "forecaster-close", close, TASK)
        assert not made.champion
        assert "which is not measurable (-0.012 ± 0.025 over 6 stretches)" in made.sentence
        few = run.register(logged[1], "forecaster-few", [0.5, 0.5, 0.5], TASK)
        made = run.register(logged[1], "forecaster-few", [0.1, 0.1, 0.1], TASK)
    assert (few.champion, made.champion) == (True, False)
    assert "3 windows are too few to measure it" in made.sentence
    for name in ("forecaster-close", "forecaster-few"):
        assert aliases(client, name) == {"champion": "1", "challenger": "2"}


def test_a_champion_without_errors_is_not_replaced(contest, client):
    contest("forecaster-old", 0.1, {})
    client.delete_model_version_tag("forecaster-old", "1", "calibrating_errors")
    made = contest("forecaster-old", 0.01, {})
    assert not made.champion
    assert "judged on other data (calibrating_errors)" in made.sentence
    client.delete_model_version("forecaster-old", "1")
    assert contest("forecaster-old", 0.2, {}).champion, "there is none"


@pytest.mark.parametrize("second", [0.4, 0.2])
@pytest.mark.parametrize("moment", ["before it is set", "after it was read"])
def test_runs_of_a_server_that_end_together(moment, second, contest, client, monkeypatch):
    """Another run registers and challenges while the first is between two of its calls."""
    name = f"forecaster-race-{second}-{moment}".replace(" ", "-")
    contest(name, 0.5, shared=True)
    call = {
        "before it is set": "set_registered_model_alias",
        "after it was read": "search_model_versions",
    }[moment]
    real, made = getattr(track.MlflowClient, call), []

    def interrupted(self, *arguments, **options):
        monkeypatch.setattr(track.MlflowClient, call, real)
        before = real(self, *arguments, **options) if moment == "after it was read" else None
        own = client.create_model_version(
            name, "nowhere", tags=track.contest.tags_of(errors(second), TASK)
        )
        number = str(own.version)
        made.append(track._challenge(client, name, number))
        client.set_model_version_tag(name, number, "decision", made[0][1])
        return before or real(self, *arguments, **options)

    monkeypatch.setattr(track.MlflowClient, call, interrupted)
    first = contest(name, 0.3, shared=True)
    assert len(made) == 1
    better = second < 0.3
    assert aliases(client, name)["champion"] == ("3" if better else "2")
    assert first.champion is not better
    assert ("version 3" in first.sentence) is better


def test_a_version_whose_contest_was_cut_short_challenges_with_the_next(contest, client):
    contest("forecaster-cut", 0.5)
    client.create_model_version(
        "forecaster-cut", "nowhere", tags=track.contest.tags_of(errors(0.2), TASK)
    )
    made = contest("forecaster-cut", 0.4)
    assert not made.champion
    assert "version 2 has 0.2583" in made.sentence
    assert aliases(client, "forecaster-cut") == {"champion": "2"}


class TestPromote:
    @pytest.mark.parametrize("named", ["{name}/2", "{name}@challenger", "models:/{name}/2"])
    def test_by_hand(self, named, contest, client, logged):
        name = f"forecaster-promote-{len(named)}"
        contest(name, 0.5)
        contest(name, 0.1, {})
        assert aliases(client, name) == {"champion": "1", "challenger": "2"}
        sentence = track.promote(named.format(name=name))
        assert sentence == (
            f"{name} version 2 is the champion; version 1 was the champion before. To go "
            f"back: forecaster promote {name}/1"
        )
        assert aliases(client, name) == {"champion": "2"}
        promoted = client.get_model_version(name, "2").tags["promoted"]
        assert promoted.startswith("by hand at 2")
        assert promoted.endswith("version 1 was the champion before")
        assert track.promote(f"{name}/2") == f"{name} version 2 is already the champion"
        assert track.promote(f"{name}/1").endswith(f"promote {name}/2")
        assert not contest(name, 0.6).champion, "what was promoted by hand is the one to beat"
        assert contest(name, 0.2).champion

    def test_by_the_run(self, logged, client):
        with track.start(RunConfig(), "x", {}) as run:
            run.register(logged[1], "forecaster-by-run", [0.5] * 4, TASK)
            run.register(logged[1], "forecaster-by-run", [0.6] * 4, TASK)
        assert track.promote(run.id).startswith("forecaster-by-run version 2 is the champion;")
        client.delete_registered_model_alias("forecaster-by-run", "champion")
        assert track.promote("forecaster-by-run/1") == (
            "forecaster-by-run version 1 is the champion; there was none before"
        )

    @pytest.mark.parametrize(
        ("named", "words"),
        [
            (NAME, f"'{NAME}' names no version: use {NAME}/VERSION"),
            (f"{NAME}/99", f"'{NAME}' has no version 99"),
            ("forecaster-nope/1", "no model is registered as 'forecaster-nope'"),
            ("0" * 32, "there is no run 0"),
            ("a b", "'a b' names no model"),
        ],
    )
    def test_what_names_no_version(self, named, words, logged):
        with pytest.raises(UsageError, match=re.escape(words)):
            track.promote(named)

    def test_a_run_without_a_model(self, logged):
        with track.start(RunConfig(), "x", {}) as run:
            pass
        with pytest.raises(UsageError, match="has registered no model"):
            track.promote(run.id)


# The way back


CHAMPION = {"name": NAME, "version": "1", "alias": "champion"}


@pytest.mark.parametrize(
    ("reference", "origin"),
    [
        ("{run}", {}),
        ("runs:/{run}", {}),
        ("runs:/{run}/toy-run-1", {}),
        ("{model}", {}),
        ("models:/{model}", {}),
        (NAME, CHAMPION),
        (f"{NAME}@champion", CHAMPION),
        (f"{NAME}/1", {"name": NAME, "version": "1"}),
        (f"models:/{NAME}@champion", CHAMPION),
        (f"models:/{NAME}/1", {"name": NAME, "version": "1"}),
    ],
)
def test_download_by_every_name(logged, home, tmp_path, reference, origin):
    run, model = logged
    folder = tmp_path / "a" / "b"
    reference = reference.format(run=run, model=model)
    found = track.download(reference, folder)
    assert track.resolve([reference]) == [found]
    assert model in found.pop("source", model)
    assert found == origin
    assert contents(folder) == contents(home / "some bundle")


def test_without_a_champion_the_newest_version_is_meant(logged, client, forecaster, tmp_path):
    folder = tmp_path / "other"
    make_bundle(folder, columns=("one",))
    with track.start(RunConfig(), "x", {}) as run:
        example = forecaster.example
        other = run.log_model(folder, "other", example, forecaster.predict(example), HORIZON, {})
        for _ in range(10):
            run.register(logged[1], "forecaster-newest", [0.5] * 4, TASK)
        run.register(other, "forecaster-newest", [0.6] * 4, TASK)
    track.download("forecaster-newest", tmp_path / "champion")
    assert contents(tmp_path / "champion") != contents(folder)
    client.delete_registered_model_alias("forecaster-newest", "champion")
    assert track.download("forecaster-newest", tmp_path / "newest")["version"] == "11"
    assert contents(tmp_path / "newest") == contents(folder)
    assert "forecaster-newest" not in track.champions()


@pytest.mark.parametrize(
    "reference",
    [
        *("", "../../etc", "a/../b", "/etc/passwd", "a%2e%2e", "a#b", "a?b", "a\0b", "a\nb", "a b"),
        *("file:///etc", "http://host/x", "s3://bucket/x", "mlflow-artifacts:/1", "name@", "name/"),
        *("models:/../x", "runs:/x", f"runs:/{'0' * 32}/../x", f"runs:/{'0' * 32}/a/b", "name/x"),
        *("-x", ".hidden", "x' OR name LIKE '%", "ü" * 3, "a" * 201),
    ],
)
def test_what_is_no_name_is_refused(reference, tmp_path):
    with pytest.raises(UsageError, match="names no model: expected"):
        track.download(reference, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("forecaster-toy-M-all-7", f"Did you mean '{NAME}'? Known: "),
        (f"{NAME}@best", f"'{NAME}' has no alias 'best'. Its aliases: champion."),
        (f"{NAME}/77", f"'{NAME}' has no version 77. Its versions: 1."),
        ("0" * 32, f"there is no run {'0' * 32} in sqlite:///"),
        (f"m-{'0' * 32}", f"there is no model m-{'0' * 32} in sqlite:///"),
    ],
)
def test_what_does_not_exist_is_explained(logged, reference, message, tmp_path):
    with pytest.raises(UsageError) as caught:
        track.download(reference, tmp_path / "bundle")
    assert message in str(caught.value)
    assert not (tmp_path / "bundle").exists()
    first, second = track.resolve([NAME, reference])
    assert first["version"] == "1"
    assert message in second["error"]


def test_a_run_without_the_model_is_explained(logged, tmp_path):
    with pytest.raises(UsageError, match=r"has no model other\. Its models: toy-run-1\."):
        track.download(f"runs:/{logged[0]}/other", tmp_path)
    with pytest.raises(ValueError, match="early"), track.start(RunConfig(), "x", {}) as run:
        raise ValueError("early")
    with pytest.raises(UsageError, match=r"\(failed\) has no model\. Its models: none\."):
        track.download(run.id, tmp_path)


def test_a_model_of_others_is_refused(client, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.pkl").write_text("x")
    client.create_registered_model("theirs")
    client.create_model_version("theirs", (tmp_path / "theirs").as_uri())
    with pytest.raises(UsageError, match="'theirs' was not made by forecaster"):
        track.download("theirs", tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_champions_are_ours_and_all_pages_are_read(logged, client, monkeypatch):
    client.create_registered_model("forecaster-without")
    client.create_registered_model("champion-of-others")
    names = track.champions()
    assert NAME in names
    assert "forecaster-without" not in names
    assert "champion-of-others" not in names
    whole = type(client).search_registered_models

    def page_by_page(self, text="", max_results=1, page_token=None):
        return whole(self, text, max_results=1, page_token=page_token)

    monkeypatch.setattr(type(client), "search_registered_models", page_by_page)
    assert track.champions() == names


def test_command(logged, home, tmp_path, capsys):
    assert track.main(["download", NAME, str(tmp_path / "bundle")]) == 0
    assert contents(tmp_path / "bundle") == contents(home / "some bundle")
    origin = json.loads(capsys.readouterr().out)
    assert origin.items() >= CHAMPION.items()
    assert track.main(["champions"]) == 0
    output = capsys.readouterr()
    assert NAME in output.out.splitlines()
    assert output.err == ""


@pytest.mark.parametrize(
    "arguments", [[], ["download", "x"], ["watch", "x"], ["champions", "x"], ["upload"]]
)
def test_command_tells_its_usage(arguments, capsys):
    assert track.main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: python -m forecaster.track download")


def test_it_watches_until_its_input_ends(logged, home, uri, tmp_path):
    names = [NAME, "forecaster-nobody"]
    file = tmp_path / "found.json"
    with subprocess.Popen(
        [sys.executable, "-m", "forecaster.track", "watch", str(tmp_path), "0.1", *names],
        env=os.environ | {"MLFLOW_TRACKING_URI": uri},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        while not file.exists():
            assert child.poll() is None
            time.sleep(0.05)
        first = file.stat().st_ino
        while file.stat().st_ino == first:
            assert child.poll() is None
            time.sleep(0.05)
        nice = os.getpriority(os.PRIO_PROCESS, child.pid)
        status = Path(f"/proc/{child.pid}/status").read_text()
        found = json.loads(file.read_bytes())
        assert contents(tmp_path / found[NAME]["folder"]) == contents(home / "some bundle")
        child.stdin.close()
        assert (child.wait(60), child.stdout.read()) == (0, "")
    assert not tmp_path.exists()
    assert found[NAME]["state"].items() >= CHAMPION.items()
    assert "no model is registered as 'forecaster-nobody'" in found["forecaster-nobody"]["error"]
    assert found["forecaster-nobody"]["status"] == 2
    assert nice == os.getpriority(os.PRIO_PROCESS, 0) + track.NICE
    assert re.search(r"^NoNewPrivs:\s*1$", status, re.MULTILINE)


def test_it_stays_where_it_is_to_ask_once(logged, uri, tmp_path):
    file = tmp_path / "found.json"
    with subprocess.Popen(
        [sys.executable, "-m", "forecaster.track", "watch", str(tmp_path), "0", NAME],
        env=os.environ | {"MLFLOW_TRACKING_URI": uri}, stdin=subprocess.PIPE,
    ) as child:  # fmt: skip
        while not file.exists():
            assert child.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        assert child.poll() is None
        child.stdin.close()
        assert child.wait(60) == 0


class TestLook:
    """What names resolve to, kept in a folder."""

    @pytest.fixture
    def store(self, monkeypatch):
        """The version of the model, or an error of the store."""
        store = {"version": "1"}

        def answer(*asked):
            if isinstance(store["version"], Exception):
                raise store["version"]
            return {"version": store["version"]}

        def fetched(name, folder):
            folder.mkdir()
            return answer()

        monkeypatch.setattr(track, "resolve", lambda names: [answer() for _ in names])
        monkeypatch.setattr(track, "download", fetched)
        return store

    def test_what_was_found_stays_while_the_store_is_away(self, store, tmp_path):
        first = track.look(["a"], tmp_path, {})
        store["version"] = UnavailableError("nobody answers")
        second = track.look(["a"], tmp_path, first)
        assert second == {"a": {**first["a"], "error": "nobody answers", "status": 69}}
        store["version"] = "1"
        assert track.look(["a"], tmp_path, second) == first

    def test_a_newer_bundle_gets_a_folder_and_the_old_one_goes_later(
        self, store, tmp_path, monkeypatch
    ):
        first = track.look(["a"], tmp_path, {})
        os.utime(tmp_path / first["a"]["folder"], (0, 0))
        assert track.look(["a"], tmp_path, first) == first
        store["version"] = "2"
        second = track.look(["a"], tmp_path, first)
        assert second["a"]["state"] == {"version": "2"}
        assert len([*tmp_path.iterdir()]) == 2, "the old one was in use until now"
        monkeypatch.setattr(track, "OLD", -1.0)
        track.look(["a"], tmp_path, second)
        assert [each.name for each in tmp_path.iterdir()] == [second["a"]["folder"]]

    def test_a_download_that_fails_is_tried_again(self, store, tmp_path, monkeypatch):
        with monkeypatch.context() as broken:
            full = StorageError("no space")
            broken.setattr(track, "download", lambda *_: (_ for _ in ()).throw(full))
            found = track.look(["a"], tmp_path, {})
        assert found == {"a": {"error": "no space", "status": 74}}
        assert "folder" in track.look(["a"], tmp_path, found)["a"]

    def test_an_answer_that_never_comes_is_not_waited_for(self, store, tmp_path, monkeypatch):
        def late(number, frame):
            raise track._LateError

        before = signal.signal(signal.SIGALRM, late)
        monkeypatch.setattr(track, "LOOKING", 1)
        monkeypatch.setattr(track, "resolve", lambda names: time.sleep(60))
        try:
            found = track.look(["a"], tmp_path, {})
        finally:
            signal.signal(signal.SIGALRM, before)
        assert found == {"a": {"error": "MLflow gave no answer within 1 s", "status": 69}}


def test_command_fails_on_one_line(uri, tmp_path):
    arguments = ("-m", "forecaster.track", "download", "forecaster-toy", str(tmp_path / "bundle"))
    unknown = command(*arguments, MLFLOW_TRACKING_URI=uri)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr.count("\n") == 1
    assert unknown.stderr.startswith("no model is registered as 'forecaster-toy'")
    absent = command(*arguments, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert (absent.returncode, absent.stdout) == (69, "")
    assert absent.stderr.count("\n") == 1


def test_a_forecaster_is_loaded_by_its_registered_name(logged, uri, forecaster, monkeypatch):
    loaded = Predictor.load(NAME, "cpu")
    assert loaded.bundle.digest == forecaster.bundle.digest


# Processes and servers


@pytest.fixture
def server(tmp_path):
    """An MLflow server on loopback: its process and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
                *("--port", str(port), "--workers", "1"),
                *("--backend-store-uri", f"sqlite:///{tmp_path}/served.db"),
                *("--artifacts-destination", str(tmp_path / "served")),
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 120
    while True:
        try:
            with urlopen(f"{address}/health", timeout=2):
                break
        except OSError:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.3)
    yield process, address
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_a_server_keeps_runs_models_and_registrations(
    server, forecaster, home, tmp_path, monkeypatch
):
    address = server[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    example = forecaster.example
    monkeypatch.setattr(track, "LIMITS", ((120, 120, 9),) * 3)  # on a busy machine, too
    with track.start(RunConfig(), "toy", {}) as run:
        run.report({"loss": 1.0}, 1)
        run.text("config.yaml", "a: 1")
        run.describe("It wins.", picture=Figure())
        forecast = forecaster.predict(example)
        handle = run.log_model(home / "some bundle", "toy", example, forecast, HORIZON, {})
        run.metrics({"test_mse": 0.5}, handle)
        made = run.register(handle, NAME, [0.5] * 4, TASK)
        model = run.model_id(handle)
    assert run.ui_command.startswith(f"{address}/#/experiments/")
    text = MlflowClient(address).get_run(run.id).data.tags["mlflow.note.content"]
    (link,) = re.findall(r"!\[forecast\]\((.*)\)", text)
    with urlopen(f"{address}/{link}") as picture:
        assert picture.read(8) == b"\x89PNG\r\n\x1a\n"
    assert made.champion
    assert track.champions() == [NAME]
    assert MlflowClient(address).get_run(run.id).info.status == "FINISHED"
    for number, reference in enumerate((run.id, model, NAME, f"{NAME}/1")):
        track.download(reference, tmp_path / str(number))
        assert contents(tmp_path / str(number)) == contents(home / "some bundle")


@pytest.mark.slow
def test_the_slim_client_does_for_a_server(server, forecaster, home, tmp_path):
    """MLflow with only the packages of its slim client logs, registers and fetches a model."""
    program = """
        from forecaster import track
        from forecaster.config import RunConfig
        from forecaster.predict import Predictor
        track.LIMITS = ((120, 120, 9),) * 3
        folder, fetched, name = sys.argv[1:]
        ahead = Predictor.load(folder)
        with track.start(RunConfig(), "toy", {}) as run:
            forecast = ahead.predict(ahead.example)
            model = run.log_model(Path(folder), "toy", ahead.example, forecast, len(forecast), {})
            print(run.register(model, name, [0.5] * 4, {}).version)
        track.download(name, Path(fetched))
    """
    program = "import sys\nfrom pathlib import Path\n" + dedent(program)
    arguments = (str(home / "some bundle"), str(tmp_path / "fetched"), NAME)
    environment = {**os.environ, "MLFLOW_TRACKING_URI": server[1]}
    done = lacking(program, *arguments, without=SKINNY_LACKS, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert contents(tmp_path / "fetched") == contents(home / "some bundle")


@pytest.mark.slow
def test_processes_may_meet_a_missing_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = """
from forecaster import track
from forecaster.config import RunConfig
with track.start(RunConfig(), "x", {}) as run:
    run.metrics({"loss": 1.0})
print(run.id)
"""
    environment = {k: v for k, v in os.environ.items() if k not in ADDRESSES}
    processes = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    runs = {process.communicate()[0].strip().decode() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    client = track._client(f"sqlite:///{tmp_path}/mlflow.db")
    assert {client.get_run(run).info.status for run in runs} == {"FINISHED"}
    assert len(runs) == 4


@pytest.mark.slow
def test_requirements_cover_what_a_bundle_imports(home, forecaster):
    """Everything that a forecast imports is in the requirements of the logged model."""
    script = f"""
import sys
from importlib.metadata import packages_distributions
from forecaster.predict import Predictor
ready = Predictor.load({str(home / "some bundle")!r}, "cpu")
ready.predict(ready.example)
known = packages_distributions()
for name in {{module.partition(".")[0] for module in sys.modules}}:
    for distribution in known.get(name, []):
        print(distribution)
"""
    needed = """
import sys
from importlib.metadata import PackageNotFoundError, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
seen, waiting = set(), sys.argv[1:]
while waiting:
    name = canonicalize_name(waiting.pop())
    if name not in seen:
        seen.add(name)
        try:
            for line in requires(name) or []:
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    waiting.append(requirement.name)
        except PackageNotFoundError:
            pass
print(*sorted(seen), sep="\\n")
"""
    imported = command("-c", script).stdout.split()
    given = command("-c", needed, *track.REQUIREMENTS).stdout.split()
    assert "torch" in imported
    names = {name.lower().replace("_", "-") for name in imported}
    extra = {"forecaster", "tqdm"}  # torch uses tqdm if it is installed
    assert names - set(given) <= extra
