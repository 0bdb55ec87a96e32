import json
from pathlib import Path

import pytest

from forecaster.forecast.export import graph, runtime
from tests.bundles import COLUMNS, unsaved
from tests.forecast.export import eager


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
    served = graph.ExportedModule(runtime.Predictor(bundle, "cpu"))
    monkeypatch.setattr(runtime, "session", lambda *_: eager.write(served, None)[1])
    arguments = ("predict", "--input", csv, "--levels", "0.1,0.9", "--horizon", "2")
    out, err = done(*arguments, "--model", "x", "--runtime", "onnx")
    assert err == ""
    usual, _ = done(*arguments, "--model", tmp_path / "calibrated")
    assert out.splitlines()[0] == usual.splitlines()[0]
    assert out.splitlines()[0].startswith(f"time,{COLUMNS[0]},{COLUMNS[0]} 0.1")
    err = refused(2, "predict", "--model", "x", "--runtime", "onnx")
    assert "--runtime onnx needs --model FOLDER and --input FILE" in err
    err = refused(69, "predict", "--input", csv, "--model", folder, "--runtime", "onnx")
    assert "holds no exported model: model.json is missing" in err
