import json
from pathlib import Path

import pytest

from forecaster.forecast.export import graph, runtime
from tests.bundles import COLUMNS, unsaved
from tests.forecast.export import eager


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setattr(graph, "to_onnx", eager.write)
    monkeypatch.setattr(graph, "needed", lambda: None)


def test_a_folder_beside_the_caller(folder, run):
    status, out, err = run("export", "--model", folder, "--format", "onnx")
    name = "forecaster-toy-M-all-6-onnx"
    assert (status, out) == (0, f"{name}/model.onnx\n")
    assert "standard deviations from the model's own forecasts" in err
    assert sorted(file.name for file in Path(name).iterdir()) == ["model.json", "model.onnx"]
    status, out, err = run("export", "--model", folder, "--format", "onnx")
    assert (status, out) == (2, "")
    assert "already exists; name a new or an empty folder" in err


def test_json_is_the_description_with_the_file(folder, run):
    status, out, _ = run("export", "--model", folder, "--format", "onnx", "--output", "x", "--json")
    told = json.loads(out)
    assert (status, told.pop("file")) == (0, "x/model.onnx")
    kept = json.loads(Path("x/model.json").read_text())
    assert {key: kept[key] for key in told} == told


def test_predict_with_it(folder, csv, run, tmp_path, monkeypatch):
    bundle = unsaved(calibrated=True).save(tmp_path / "calibrated")
    assert (
        run("export", "--model", tmp_path / "calibrated", "--format", "onnx", "--output", "x")[0]
        == 0
    )
    served = graph.ExportedModule(runtime.Predictor(bundle, "cpu"))
    monkeypatch.setattr(runtime, "session", lambda *_: eager.write(served, None)[1])
    arguments = ("predict", "--input", csv, "--levels", "0.1,0.9", "--horizon", "2")
    status, out, err = run(*arguments, "--model", "x", "--runtime", "onnx")
    assert (status, err) == (0, "")
    usual = run(*arguments, "--model", tmp_path / "calibrated")[1]
    assert out.splitlines()[0] == usual.splitlines()[0]
    assert out.splitlines()[0].startswith(f"time,{COLUMNS[0]},{COLUMNS[0]} 0.1")
    status, _, err = run("predict", "--model", "x", "--runtime", "onnx")
    assert (status, "--runtime onnx needs --model FOLDER and --input FILE" in err) == (2, True)
    status, _, err = run("predict", "--input", csv, "--model", folder, "--runtime", "onnx")
    assert (status, "holds no exported model: model.json is missing" in err) == (69, True)
