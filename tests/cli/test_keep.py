import importlib.metadata
import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from forecaster.base import machine
from forecaster.forecast.export import graph, runtime
from forecaster.forecast.predictor import load_bundle
from forecaster.tracking import publish, registry
from tests.bundles import unsaved
from tests.forecast.export import eager
from tests.gpu_simulated.device import Simulated
from tests.service.toy import make_bundle

PLAIN = {"name": "toy-4", "told": "", "left": "", "under_way": False}
DONE = PLAIN | {"name": "toy-1", "told": "forecaster-toy version 1 is the champion"}
LEFT = PLAIN | {"name": "toy-2", "left": "http://host: Connection refused"}
UNDER_WAY = PLAIN | {"name": "toy-3", "under_way": True}


def test_what_was_uploaded_and_what_is_left_is_said(run, monkeypatch):
    asked, found = [], [DONE, UNDER_WAY, PLAIN]
    monkeypatch.setattr(publish, "sync", lambda names: asked.append(names) or found)
    out = f"toy-1: uploaded; {DONE['told']}\ntoy-4: uploaded\n"
    assert run("sync") == (0, out, "toy-3: in progress, its own process uploads it\n")
    found[:] = [DONE, LEFT]
    status, _, err = run("sync", "toy-1", "toy-2")
    assert (status, asked) == (69, [[], ["toy-1", "toy-2"]])
    assert err.splitlines()[0] == "toy-2: not all uploaded: http://host: Connection refused"
    assert "error: 1 of 2 runs could not be uploaded: toy-2. The rest is kept" in err
    status, out, _ = run("sync", "--json")
    assert (status, [each["left"] for each in json.loads(out)["runs"]]) == (69, ["", LEFT["left"]])


def test_nothing_to_upload(done, refused):
    assert done("sync") == ("MLflow has all of the runs in runs/\n", "")
    err = refused(2, "sync", "toy-1")
    assert err == "error: no run 'toy-1' in runs/; left to upload: nothing\n"
    Path("runs/toy-1").mkdir(parents=True)
    assert done("sync", "runs/toy-1") == ("MLflow has all of runs/toy-1\n", "")


def test_it_says_what_was_done_with_a_name_or_the_folder_of_a_run(
    done, refused, monkeypatch, tmp_path
):
    assert "there is no MLflow database" in refused(69, "promote", "forecaster-x/3")
    monkeypatch.setattr(registry, "promote", lambda reference: f"{reference} is the champion")
    make_bundle(tmp_path / "bundle")
    run_id = str(load_bundle(tmp_path / "bundle").about.get("run_id"))
    for given, meant in (("forecaster-x/3", "forecaster-x/3"), (tmp_path / "bundle", run_id)):
        assert done("promote", given) == (f"{meant} is the champion\n", "")


@pytest.fixture
def export(done, monkeypatch):
    """Export a bundle; returns stdout and stderr."""
    monkeypatch.setattr(graph, "to_onnx", eager.write)
    monkeypatch.setattr(graph, "needed", lambda: None)
    return lambda folder, *others: done("export", "--model", folder, "--format", "onnx", *others)


def test_a_folder_beside_the_caller_or_another(folder, export, refused):
    out, err = export(folder)
    name = "forecaster-toy-M-all-6-onnx"
    assert out == f"{name}/model.onnx\n"
    assert "standard deviations from the model's own forecasts" in err
    assert sorted(file.name for file in Path(name).iterdir()) == ["model.json", "model.onnx"]
    err = refused(2, "export", "--model", folder, "--format", "onnx")
    assert "already exists; name a new or an empty folder" in err
    told = json.loads(export(folder, "--output", "x", "--json")[0])
    assert told.pop("file") == "x/model.onnx"
    kept = json.loads(Path("x/model.json").read_text())
    assert {key: kept[key] for key in told} == told


def test_predict_with_it(folder, csv, export, done, refused, tmp_path, monkeypatch):
    bundle = unsaved(calibrated=True).save(tmp_path / "calibrated")
    export(tmp_path / "calibrated", "--output", "x")
    served = graph.module_of(runtime.Predictor(bundle, "cpu"))
    monkeypatch.setattr(runtime, "session", lambda *_: eager.write(served, None)[1])
    arguments = ("predict", "--input", csv, "--levels", "0.1,0.9", "--horizon", "2")
    out, err = done(*arguments, "--model", "x", "--runtime", "onnx")
    usual, _ = done(*arguments, "--model", tmp_path / "calibrated")
    assert out.splitlines()[0] == usual.splitlines()[0]
    assert "in brackets the 80 % band" in err
    err = refused(69, "predict", "--input", csv, "--model", folder, "--runtime", "onnx")
    assert "holds no exported model: model.json is missing" in err


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("", None),
        ("wrong", "the device multiplies wrongly"),
        ("broken", "the device cannot multiply: no kernel image"),
    ],
)
def test_the_doctor_examines_a_gpu(fault, problem, done, monkeypatch):
    broken = Mock(side_effect=RuntimeError("no kernel image\nCUDA kernel errors might be"))
    with Simulated():
        if fault:
            monkeypatch.setattr(
                torch, "equal", Mock(return_value=False) if fault == "wrong" else broken
            )
        report = json.loads(done("doctor", "--json")[0])
    assert (report["device"], report["capability"]) == ("simulated", "sm_90")
    found = " ".join(report["problems"])
    assert problem in found if problem else found == ""


def test_the_doctor_says_what_is_bad_or_missing(done, monkeypatch):
    monkeypatch.setattr(machine, "without_cuda", lambda: "no card: buy one")
    out = done("doctor")[0]
    assert out.splitlines()[-1] == "no problem found"
    assert "\ncuda          no card: buy one\nthreads " in out
    report = json.loads(done("doctor", "--json")[0])
    assert (report["torch"], report["problems"]) == (importlib.metadata.version("torch"), [])
    real, other = importlib.metadata.version, {}

    def version(name):
        if other.get(name) == "missing":
            raise importlib.metadata.PackageNotFoundError(name)
        return other.get(name) or real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    for other["lightning"] in ("2.5.0", "2.6.6rc1"):
        assert "lightning below 2.6.6" in done("doctor")[0]
    other["lightning"] = other["pandas"] = "missing"
    monkeypatch.setenv("FORECASTER_DATA", "/no/where")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    out, _ = done("doctor")
    assert "problem: MLflow cannot use http://127.0.0.1:1: " in out
    assert "problem: pandas is not installed" in out
    assert "problem: lightning" not in out, "there may be no need of it"
    assert "not installed; 'attention-forecaster[train]' brings it" in out
    assert "problem: FORECASTER_DATA=/no/where: no such folder" in out
