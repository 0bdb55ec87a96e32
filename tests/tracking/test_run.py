"""What a run records, and how it meets MLflow's store."""

import errno
import json
import math
import os
import re
import shutil
import signal
import time
from contextlib import closing, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from textwrap import dedent

import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forecaster.base import signals
from forecaster.base.errors import Stopped, StorageError, UnavailableError
from forecaster.config.run_config import RunConfig
from forecaster.tracking import notes
from forecaster.tracking import run as tracked
from forecaster.tracking.publish import sync
from forecaster.tracking.run import start, ui_command
from forecaster.tracking.store import MlflowClient
from tests.lacking import SKINNY_LACKS, lacking
from tests.tracking.toy import NAME, WATCHED, Server, command, contents, noted, points, tracked_at

# What a run records


def test_run_holds_what_it_is_given(client):
    """test_experiment.py has the rest, with a complete run."""
    with start(RunConfig(), "x", {}) as run:
        run.report({"train_loss": 2.0}, 1)
        run.report({"train_loss": 1 / 3}, 2)
        run.dataset("ETTh1", f"sha256:{'ab' * 32}", "https://example.org/ETTh1.csv")
        run.tables({"steps": [{"step": 1, "mse": 0.5}, {"step": 2, "mae": None}], "none": []})
    found = client.get_run(run.id)
    assert points(client, run.id, "train_loss") == [(1, 2.0), (2, 1 / 3)], "with all digits"
    (used,) = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("ETTh1", ("ab" * 32)[:36])
    assert json.loads(used.dataset.source) == {"url": "https://example.org/ETTh1.csv"}
    table = pd.read_json(client.download_artifacts(run.id, "tables/steps.json"), orient="split")
    assert table.columns.to_list() == ["step", "mse", "mae"]
    assert json.loads(found.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": f"tables/{name}.json", "type": "table"} for name in ("steps", "none")
    ]
    assert not any(name.startswith("system/") for name in found.data.metrics)


def test_names_and_values_are_made_to_fit(client):
    values = {f"option.{number}": "x" for number in range(230)}
    odd = "data \udcff.csv"  # the name of a file in another encoding
    with start(RunConfig(), odd, {"data": odd, "long": "b" * 9000}) as run:
        run.params({**values, "long": "a" * 7000, "lr_of.T (degC)": "1", "data.name": odd})
        run.metrics({"test_mse": 0.36719671677728562, "skill": -1e-7 / 3, "parameters": 12345678})
        run.metrics({"test_mae": math.nan, "column/T (degC)/mse": 1.0, "column/ü %/mse": 2.0})
        run.dataset(odd, "12", odd)
        run.text("config.yaml", odd)
        run.describe(odd, "\n".join(f"| {i:04} |" for i in range(2000)), Figure())
    found = client.get_run(run.id)
    data, (used,) = found.data, found.inputs.dataset_inputs
    assert found.info.status == "FINISHED"
    fitting = {"long": "a" * 6000, "lr_of.T _degC_": "1", "data.name": "data ?.csv"}
    assert data.params == values | fitting
    rounded = {"test_mse": 0.367197, "skill": -3.33333e-8, "parameters": 12345678}
    assert math.isnan(data.metrics.pop("test_mae"))
    assert data.metrics == rounded | {"column/T _degC_/mse": 1.0, "column/ü _/mse": 2.0}
    assert (data.tags["data"], data.tags["long"]) == ("data ?.csv", "b" * 8000)
    assert used.dataset.name == found.info.run_name == "data ?.csv"
    assert used.dataset.source_type == "local"
    assert json.loads(used.dataset.source)["uri"] == "data ?.csv"
    text = data.tags["mlflow.note.content"]
    picture = f"![forecast](get-artifact?path=plots%2Fpicture.png&run_uuid={run.id})"
    assert text.startswith(f"data ?.csv\n\n{picture}\n")
    *_, last, empty, end = text.splitlines()
    assert (len(last), empty, end) == (8, "", "…"), "it ends with a whole line"


def test_what_was_written_by_hand_stays_though_the_store_fails(client, monkeypatch):
    log, failed = MlflowClient.log_batch, []

    def fail_once(*arguments, **options):
        if not failed:
            failed.append(True)
            raise OSError("away")
        return log(*arguments, **options)

    with start(RunConfig(), "x", {}) as run:
        run.describe("ours")
        run.report({"loss": 1.0}, 1)
        assert run.settle()
        client.set_tag(run.id, "mlflow.note.content", "my own words")
        monkeypatch.setattr(MlflowClient, "log_batch", fail_once)
        run.report({"loss": 2.0}, 2)
        assert run.settle()
    assert failed
    assert client.get_run(run.id).data.tags["mlflow.note.content"] == "my own words"
    assert points(client, run.id, "loss") == [(1, 1.0), (2, 2.0)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Stopped(signal.SIGTERM)])
def test_a_run_that_is_stopped_is_told_as_killed(client, error):
    with pytest.raises(type(error)) as caught, start(RunConfig(), "x", {}) as run:
        raise error
    assert caught.value is error
    assert client.get_run(run.id).info.status == "KILLED"


def test_a_signal_while_a_run_is_made_ends_it_as_killed(client, monkeypatch):
    settled = tracked.Background.settle

    def stopped(self, *limits, **how):
        found = settled(self, *limits, **how)
        # a second signal would end the tests
        monkeypatch.setattr(tracked.Background, "settle", settled)
        signal.raise_signal(signal.SIGTERM)
        return found

    monkeypatch.setattr(tracked.Background, "settle", stopped)
    with pytest.raises(Stopped), signals.heeding(), start(RunConfig(), "cut short", {}):
        pytest.fail("the signal was not heeded")
    places = [each.experiment_id for each in client.search_experiments()]
    (run,) = client.search_runs(places, "attributes.run_name = 'cut short'")
    assert run.info.status == "KILLED"


@pytest.mark.parametrize("error", [None, ValueError("of the training")])
def test_a_store_that_refuses_fails_no_run(client, error, monkeypatch, tmp_path):
    """The run was deleted; once restored, it gets the rest."""
    monkeypatch.chdir(tmp_path)
    said = []

    def train():
        with start(RunConfig(), "x", {}, say=said.append) as run:
            client.delete_run(run.id)
            run.report({"loss": 1.0}, 1)
            run.report({"loss": 2.0}, 2)
            if error:
                raise error

    before = time.monotonic()
    with pytest.raises(ValueError, match="of the training") if error else nullcontext():
        train()
    assert time.monotonic() - before < tracked.END, "what refuses is not waited for"
    assert re.search("does not have all of this run yet.*must be in the 'active' state", said[0])
    (folder,) = Path("runs").glob("x-*/mlflow")
    assert str(folder) in said[0]
    assert f"upload it with `forecaster sync {folder.parent.name}`" in said[0]
    id = json.loads((folder / "run.json").read_text())["id"]
    (refused,) = sync([])
    assert "must be in the 'active' state" in refused.left, "it is not made anew"
    client.restore_run(id)
    damaged = Path("runs/a/mlflow/run.json")
    damaged.parent.mkdir(parents=True)
    damaged.touch()
    other, synced = sync([])
    assert other.left.startswith(f"{damaged} cannot be read")
    shutil.rmtree(damaged.parents[1])
    assert synced.left == ""
    assert points(client, id, "loss") == [(1, 1.0), (2, 2.0)]
    assert client.get_run(id).info.status == ("FAILED" if error else "FINISHED")
    assert not any(Path("runs").iterdir())


def test_a_run_that_goes_on_is_told_nothing_twice(client, monkeypatch):
    monkeypatch.setattr(tracked, "SAMPLING_SECONDS", 0.05)
    runs = []
    for last in (3, 5):
        again = runs[0] if runs else None
        with start(WATCHED, "goes on", {}, again=again) as run:
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
    left = noted("x", "1" * 32)
    left.points.append(notes.Points(at=1, step=1, values={"loss": 1.0}))
    left.save()
    left.release()
    with (
        pytest.raises(UnavailableError, match="unable to open"),
        start(tracked_at(f"sqlite:///{tmp_path}"), "x", {}, again="1" * 32),
    ):
        pass
    again = notes.take(*notes.find([]))
    assert [points.values for points in again.points] == [{"loss": 1.0}]
    again.release()


def test_runs_of_processes_that_are_gone_are_closed(client):
    with start(RunConfig(), "x", {}) as run:
        experiment = client.get_run(run.id).info.experiment_id
        own = client.get_run(run.id).data.tags["forecaster.process"]
    where, number, _ = own.split()
    tags = {"gone": f"{where} {number} 7.00", "own": own, "elsewhere": "host/1 1 7.00", "none": ""}
    made = {
        name: client.create_run(experiment, tags={"forecaster.process": tag} if tag else {})
        for name, tag in tags.items()
    }
    with start(RunConfig(), "x", {}):
        found = {name: client.get_run(each.info.run_id) for name, each in made.items()}
    ended = {name for name, run in found.items() if run.info.status != "RUNNING"}
    assert (ended, found["gone"].info.status) == ({"gone"}, "KILLED")


def test_a_full_disk_is_a_storage_error(client, monkeypatch):
    """While a file is written, and where the run has to be kept at its end."""

    def train():
        with start(RunConfig(), "x", {}) as run:
            client.delete_run(run.id)
            run.report({"loss": 1.0}, 1)
            full.setattr(os, "fsync", lambda *_: (_ for _ in ()).throw(error))
            with pytest.raises(StorageError, match="No space left on device"):
                run.text("a.txt", "a")

    error = OSError(28, "No space left on device")
    with (
        monkeypatch.context() as full,
        pytest.raises(StorageError, match="No space left on device"),
    ):
        train()


def test_where_to_look():
    for address, said in (
        ("sqlite:////a b/m.db", "mlflow ui --backend-store-uri 'sqlite:////a b/m.db'\nhttp://127"),
        ("http://u:p@host:5000/", "http://***@host:5000/#/experiments/3/runs?"),
    ):
        assert ui_command(address, "3").startswith(said)
        assert ui_command(address, "3").endswith("&viewStateShareKey=attention")
        assert ui_command(address, "").endswith(" after forecaster sync")


# The model


def test_a_full_disk_while_a_model_is_built_is_an_error_of_the_disk(home, client, monkeypatch):
    """MLflow reports that the code could not be copied."""

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    (home / "kept").mkdir()
    monkeypatch.setattr("mlflow.utils.model_utils._copy_file_or_tree", full)
    frame = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=2), "y": [1.0, 2.0]})
    with (
        pytest.raises(StorageError, match=r"could not be written: .*No space left on device"),
        start(RunConfig(), "x", {}) as run,
    ):
        run.log_model(home / "kept", frame, frame, 1)


def test_model_is_logged_without_pickle(logged, client, home):
    model = client.get_logged_model(logged[1])
    folder = home / "mlartifacts" / "forecaster" / "models" / model.model_id / "artifacts"
    endings = {path.suffix for path in folder.rglob("*") if path.is_file()}
    code = {".py", ".css", ".j2", ".typed"}
    assert endings == {"", ".json", ".yaml", ".txt", ".safetensors", ".sha256"} | code
    assert contents(folder / "artifacts" / "bundle") == contents(home / "some bundle")
    description = yaml.safe_load((folder / "MLmodel").read_text())
    assert set(description["flavors"]) == {"python_function"}
    assert "python_model" not in description["flavors"]["python_function"]
    inputs = json.loads(description["signature"]["inputs"])
    types = dict.fromkeys(("time", "load", "wind", "Zürich °C"), "any")  # our reader checks them
    assert {field["name"]: field["type"] for field in inputs} == types


def test_model_belongs_to_its_run(logged, client):
    run, model = logged
    found, tracked = client.get_logged_model(model), client.get_run(run)
    assert (str(found.status), found.name, found.source_run_id) == ("READY", "toy-run-1", run)
    assert found.params == {"seed": "0"}
    assert {"attn": "prob", "data": "toy", "horizon": "6"}.items() <= found.tags.items()
    expected = {"test_mse": 0.25, "column/Zürich _C/mae": 2.0}
    assert {metric.key: metric.value for metric in found.metrics} == expected
    assert tracked.data.metrics.items() >= expected.items()
    assert [output.model_id for output in tracked.outputs.model_outputs] == [model]


# Processes and servers


@pytest.mark.slow
def test_the_slim_client_does_for_a_server(forecaster, home, tmp_path):
    """MLflow with only the packages of its slim client logs, registers and fetches a model."""
    program = """
        import sys
        from pathlib import Path
        from forecaster.config.run_config import RunConfig
        from forecaster.forecast.predictor import Predictor
        from forecaster.tracking import run as tracked
        from forecaster.tracking.registry import download
        tracked.START = 120
        folder, fetched, name = sys.argv[1:]
        ahead = Predictor.load(folder)
        with tracked.start(RunConfig(), "toy", {}) as run:
            forecast = ahead.predict(ahead.example)
            run.log_model(Path(folder), ahead.example, forecast, len(forecast))
            print(run.register(name, [0.5] * 4, {}))
        download(name, Path(fetched))
    """
    arguments = (dedent(program), str(home / "some bundle"), str(tmp_path / "fetched"), NAME)
    with closing(Server(tmp_path)) as server:
        environment = {**os.environ, "MLFLOW_TRACKING_URI": server.address}
        done = lacking(*arguments, without=SKINNY_LACKS, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "version 1 is the champion" in done.stdout
    assert contents(tmp_path / "fetched") == contents(home / "some bundle")


@pytest.mark.slow
def test_requirements_cover_what_a_bundle_imports(home, forecaster):
    """Everything that a forecast imports is in the requirements of the logged model."""
    script = f"""
import sys
from importlib.metadata import packages_distributions
from forecaster.forecast.predictor import Predictor
ready = Predictor.load({str(home / "some bundle")!r}, "cpu")
ready.predict(ready.example)
known = packages_distributions()
for name in {{module.partition(".")[0] for module in sys.modules}}:
    for distribution in known.get(name, []):
        print(distribution)
"""
    imported = command("-c", script).stdout.split()
    assert "torch" in imported
    given, waiting, plain = set(), [*tracked.REQUIREMENTS], {"extra": ""}
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in given:
            given.add(name)
            with suppress(PackageNotFoundError):
                needed = map(Requirement, requires(name) or [])
                own = [each for each in needed if not each.marker or each.marker.evaluate(plain)]
                waiting += [each.name for each in own]
    extra = {"forecaster", "tqdm"}  # torch uses tqdm if it is installed
    assert {*map(canonicalize_name, imported)} - given <= extra
