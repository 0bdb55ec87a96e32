"""What a run records, and how it meets MLflow's store."""

import json
import os
import re
import shutil
import signal
import time
from contextlib import closing, nullcontext
from pathlib import Path
from textwrap import dedent

import pandas as pd
import pytest

from forecaster.base import signals
from forecaster.base.errors import Stopped, StorageError, UnavailableError
from forecaster.config.run_config import RunConfig
from forecaster.record.folder import begin, read, take
from forecaster.tracking import run as tracked
from forecaster.tracking.notes import memory
from forecaster.tracking.publish import sync
from forecaster.tracking.run import start, ui_command
from forecaster.tracking.store import MlflowClient
from tests.lacking import SKINNY_LACKS, lacking
from tests.tracking.toy import NAME, Server, contents, points, tracked_at

# What a run records


def test_run_holds_what_it_is_given(client):
    """test_train.py has the rest, with a complete run."""
    source = "https://example.org/ETTh1.csv"
    own = memory("x", data="ETTh1", data_digest=f"sha256:{'ab' * 32}", source=source)
    with start(RunConfig(), "x", {}, held=own) as run:
        run.report({"train_loss": 2.0}, 1)
        run.report({"train_loss": 1 / 3}, 2)
        run.tables({"steps": [{"step": 1, "mse": 0.5}, {"step": 2, "mae": None}], "none": []})
    found = client.get_run(run.id)
    assert points(client, run.id, "train_loss") == [(1, 2.0), (2, 1 / 3)], "with all digits"
    (used,) = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("ETTh1", ("ab" * 32)[:36])
    assert json.loads(used.dataset.source) == {"url": source}
    table = pd.read_json(client.download_artifacts(run.id, "tables/steps.json"), orient="split")
    assert table.columns.to_list() == ["step", "mse", "mae"]
    assert json.loads(found.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": f"tables/{name}.json", "type": "table"} for name in ("steps", "none")
    ]


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
        with start(RunConfig(), "x-1", {}, held=begin("x-1"), say=said.append) as run:
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
    assert "runs/x-1 keeps the rest; upload it with `forecaster sync x-1`" in said[0]
    id = read(Path("runs/x-1")).run_id
    (refused,) = sync([])
    assert "must be in the 'active' state" in refused["left"], "it is not made anew"
    client.restore_run(id)
    damaged = Path("runs/a/run.json")
    damaged.parent.mkdir(parents=True)
    damaged.touch()
    other, synced = sync([])
    assert other["left"].startswith(f"{damaged} cannot be read")
    shutil.rmtree(damaged.parent)
    assert synced["left"] == ""
    assert points(client, id, "loss") == [(1, 1.0), (2, 2.0)]
    assert client.get_run(id).info.status == ("FAILED" if error else "FINISHED")
    assert not any(Path("runs").iterdir())


def test_a_run_that_goes_on_is_told_nothing_twice(client):
    runs = []
    for last in (3, 5):
        with start(RunConfig(), "goes on", {}, key=runs[0] if runs else None) as run:
            runs.append(run.id)
            run.params({"device": f"of {last}"})
            for epoch in range(1, last + 1):
                run.report({"loss": float(last)}, epoch)
    assert runs[0] == runs[1]
    assert points(client, run.id, "loss") == [(1, 3.0), (2, 3.0), (3, 3.0), (4, 5.0), (5, 5.0)]
    found = client.get_run(run.id)
    assert (found.info.status, found.data.params) == ("FINISHED", {"device": "of 3"})


@pytest.mark.parametrize("resumable", [True, False])
def test_a_store_that_cannot_be_used_leaves_a_run_as_it_was(resumable, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = begin("x")
    own.note(resumable=resumable, status="KILLED", tracker="elsewhere")
    with (
        pytest.raises(UnavailableError, match="unable to open"),
        start(tracked_at(f"sqlite:///{tmp_path}"), "x", {}, held=own),
    ):
        pass
    assert Path("runs/x").exists() is resumable
    if resumable:
        with take(Path("runs/x")) as again:
            assert (again.about.status, again.about.tracker) == ("KILLED", "elsewhere")


def test_a_run_whose_process_was_killed_is_closed_by_sync(client, uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with start(RunConfig(), "x", {}, held=begin("x")) as run:
        run.held.note(resumable=True)
        run.report({"loss": 1.0}, 1)
    own, said = take(Path("runs/x")), []
    own.note(status="RUNNING", uploaded=False)  # as its process left it
    own.add({"loss": 2.0}, 2)
    with start(RunConfig(), "y", {}, say=said.append):
        assert said == [], "it is in progress"
    own.release()
    with start(RunConfig(), "y", {}, say=said.append):
        assert said == ["an earlier run is not all in MLflow: forecaster sync"]
    assert [each["left"] for each in sync([])] == [""]
    assert client.get_run(run.id).info.status == "KILLED"
    assert points(client, run.id, "loss") == [(1, 1.0), (2, 2.0)]
    assert [*sync([])] == []
    assert Path("runs/x").is_dir(), "it may go on"


def test_a_full_disk_is_a_storage_error(client, monkeypatch):
    """While something is noted, and at its end."""

    def train():
        with start(RunConfig(), "full", {}, held=begin("full")) as run:
            full.setattr(os, "fsync", lambda *_: (_ for _ in ()).throw(error))
            with pytest.raises(StorageError, match="No space left on device"):
                run.params({"a": "b"})

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


# Processes and servers


@pytest.mark.slow
def test_the_slim_client_does_for_a_server(forecaster, home, tmp_path):
    """MLflow with only the packages of its slim client logs, registers and fetches a model."""
    program = """
        import sys
        from pathlib import Path
        from forecaster.config.run_config import RunConfig
        from forecaster.tracking import run as tracked
        from forecaster.tracking.registry import download
        tracked.START = 120
        folder, fetched, name = sys.argv[1:]
        with tracked.start(RunConfig(), "toy", {}) as run:
            run.log_model(Path(folder))
            run.register(name, [0.5] * 4, {})
        print(run.registered)
        download(name, Path(fetched))
    """
    arguments = (dedent(program), str(home / "some bundle"), str(tmp_path / "fetched"), NAME)
    with closing(Server(tmp_path)) as server:
        environment = {**os.environ, "MLFLOW_TRACKING_URI": server.address}
        done = lacking(*arguments, without=SKINNY_LACKS, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "version 1 is the champion" in done.stdout
    assert contents(tmp_path / "fetched") == contents(home / "some bundle")
