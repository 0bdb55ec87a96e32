"""The child that asks MLflow, and what the service reads of what it has found."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from forecaster.base.errors import StorageError, UnavailableError, UsageError
from forecaster.config.run_config import RunConfig
from forecaster.tracking.run import start as start_run
from forecaster_service import registry
from forecaster_service.registry import Child, Found
from forecaster_service.settings import Settings
from tests.service.processes import SECONDS, Load, serving, until
from tests.service.toy import make_bundle

PYTHON = sys.executable
NAMES = "model,other"
FOUND = """
own = {"pid": str(os.getpid()), **os.environ}
found = {name: {"state": {**own, "name": name}} for name in sys.argv[6:]}
with open(sys.argv[4] + "/new", "w") as file:
    json.dump(found, file)
os.rename(file.name, sys.argv[4] + "/found.json")
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a Python script as the child."""
    children = []

    def child(text):
        code, file = tmp_path / "child.py", tmp_path / "python"
        code.write_text(f"import json, os, sys, time\n{text}")
        file.write_text(f'#!/bin/sh\nexec {PYTHON} {code} "$@"\n')
        file.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(file))
        children.append(Child(Settings(model=NAMES, poll_seconds=7)))
        return children[-1]

    yield child
    for each in children:
        each.close()


def reason(child):
    with pytest.raises(UnavailableError) as error:
        child.state("model")
    return str(error.value)


def test_one_process_watches_all_models_without_our_settings_and_ends_with_us(start, monkeypatch):
    monkeypatch.setenv("FORECASTER_API_KEYS", "anna:" + "0" * 64)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "needed")
    child = start(FOUND)
    found = [child.state(name) for name in ("other", "model")]
    assert [each["name"] for each in found] == ["other", "model"]
    assert child._command[1:] == ["-m", "forecaster.tracking", "watch", str(child.place), "7.0",
                                  "model", "other"]  # fmt: skip
    assert found[0]["MLFLOW_TRACKING_TOKEN"] == "needed"
    assert not any(name.startswith("FORECASTER_") for name in found[0])
    process = psutil.Process(int(found[0]["pid"]))
    child.close()
    assert not process.is_running()
    assert not child.place.exists()


def test_one_that_died_or_did_not_start_is_replaced_and_what_it_found_stays(start, monkeypatch):
    failures, real = iter([OSError("no more processes")]), subprocess.Popen

    def popen(*arguments, **how):
        for error in failures:
            raise error
        return real(*arguments, **how)

    monkeypatch.setattr(subprocess, "Popen", popen)
    child = start(FOUND)
    first = child.state("model")
    os.kill(int(first["pid"]), signal.SIGKILL)
    until(lambda: "error" in (child.place / "found.json").read_text())
    assert reason(child) == "the process that asks MLflow ended with status -9"
    assert json.loads((child.place / "found.json").read_bytes())["model"]["state"] == first
    until(lambda: "error" not in (child.place / "found.json").read_text())
    assert child.state("model") != first


def test_one_that_ends_says_why_and_is_started_ever_more_rarely(start, monkeypatch):
    pauses = []

    class Ending(threading.Event):
        def wait(self, timeout=None):
            pauses.append(timeout or 0.0)
            return super().wait(0.0 if len(pauses) < 8 else timeout)

    monkeypatch.setattr(registry, "Event", Ending)
    child = start("print('No module named mlflow', file=sys.stderr); sys.exit(1)")
    assert reason(child) == (
        "the process that asks MLflow ended with status 1 (No module named mlflow)"
    )
    until(lambda: len(pauses) == 8)
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_question_does_not_outlive_the_service(start):
    child, reasons = start("time.sleep(600)"), []
    thread = threading.Thread(target=lambda: reasons.append(reason(child)))
    thread.start()
    child.close()
    thread.join(SECONDS)
    assert reasons == ["MLflow has not been asked yet"]


def test_what_was_found_is_read_as_it_was_meant(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "kept")
    state = {"name": "x", "version": "1"}
    entries = {
        "there": {"state": state, "folder": "kept"},
        "unknown": {"error": "no such model", "status": 2},
        "away": {"state": state, "folder": "kept", "error": "nobody answers", "status": 69},
        "full": {"error": "no space", "status": 74},
        "gone": {"state": state, "folder": "other"},
    }
    (tmp_path / "found.json").write_text(json.dumps(entries))
    found = Found(tmp_path)
    assert found.state("there") == state
    for name, kind in (("unknown", UsageError), ("away", UnavailableError), ("full", StorageError)):
        with pytest.raises(kind, match=entries[name]["error"]):
            found.state(name)
    for name in ("there", "away"):  # the last one is for a process that starts
        assert found.fetch(name, tmp_path / name) == state
        assert sorted(os.listdir(tmp_path / name)) == sorted(os.listdir(folder))
    with pytest.raises(UsageError, match="no such model"):
        found.fetch("unknown", tmp_path / "none")
    with pytest.raises(UnavailableError, match="replaced meanwhile"):
        found.fetch("gone", tmp_path / "none")


def register(folder, score):
    """Register a bundle as the next version of "swapped", whose champion has the lowest score."""
    with start_run(RunConfig(), "toy", {}) as run:
        run.log_model(folder)
        run.register("swapped", [score] * 4, {})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_service_follows_the_champion_under_load_and_keeps_its_model_when_it_cannot(
    tmp_path, monkeypatch
):
    """A database that goes and comes back; the child that asks it ends with its killed parent."""
    database = tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    monkeypatch.chdir(tmp_path)
    for number, columns in enumerate((("x", "y"), ("x", "y"), ("y",))):
        model = ("informer", "tokens")[number % 2]
        make_bundle(tmp_path / str(number), columns=columns, model=model)
    register(tmp_path / "0", 0.5)
    variables = {"MLFLOW_TRACKING_URI": f"sqlite:///{database}"}
    with serving(
        "models:/swapped@champion", tmp_path, variables=variables, poll_seconds=1, device="cpu"
    ) as server:

        def version():
            (card,) = server.get("/models")["models"]
            return (card["name"], card["alias"], card["version"])

        def failures():
            return server.figure("model_reload_failures_total")

        assert version() == ("swapped", "champion", "1")
        example = server.get("/models/swapped/example")
        before = server.post("/predict", example)
        (child,) = psutil.Process(server.process.pid).children()
        with Load(server.port, json.dumps(example).encode()) as load:
            register(tmp_path / "1", 0.4)
            until(lambda: version()[2] == "2")
        assert (bool(load.answers), load.failed, load.again) == (True, [], 0)
        after = server.post("/predict", example)
        assert before["predictions"] != after["predictions"]
        assert failures() == 0

        register(tmp_path / "2", 0.3)
        until(lambda: failures() > 0)
        had = failures()
        database.rename(tmp_path / "gone.db")
        until(lambda: failures() > had)
        assert server.get("/readyz") == {"status": "ready"}
        assert server.post("/predict", example)["predictions"] == after["predictions"]
        assert version()[2] == "2"
        (tmp_path / "gone.db").rename(database)
        register(tmp_path / "0", 0.2)
        until(lambda: version()[2] == "4")
        assert psutil.Process(server.process.pid).children() == [child], "one asks all the time"
        server.process.kill()
        child.wait(60)
    told = server.log.read_text()
    assert "the new model would not suit the clients of the old: columns" in told
    assert "there is no MLflow database" in told
