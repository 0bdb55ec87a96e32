import json

import pytest

from forecaster.base.errors import BundleError, StorageError, UnavailableError
from forecaster.forecast.export import graph
from forecaster.forecast.export.description import DESCRIPTION, read
from forecaster.forecast.predictor import Predictor
from tests.bundles import COLUMNS, unsaved
from tests.forecast.export import eager
from tests.service.toy import KINDS, make_bundle


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.setitem(graph.WRITERS, "onnx", eager.write)
    bundle = make_bundle(tmp_path / "bundle", **KINDS["all"])
    graph.export(Predictor(bundle, "cpu"), "onnx", tmp_path / "out")
    return tmp_path / "out"


def test_a_reader_without_the_library_finds_all_it_needs(saved):
    told = json.loads((saved / DESCRIPTION).read_text())
    assert (told["file"], told["past"], told["horizon"]) == ("model.onnx", 24, 6)
    assert told["bundle"].startswith("sha256:")
    assert [*told["inputs"]] == ["history", "known", "levels", "mean", "std"]
    assert told["inputs"]["history"].endswith(f"{', '.join(COLUMNS)}, in units, NaN where missing")
    assert "(batch, 30, " in told["inputs"]["known"]
    assert "hour, weekday, day, yearday, holiday, " in told["inputs"]["known"]
    assert [*told["outputs"]] == ["forecast", "quantiles"]
    assert told["included"]["intervals"] is True
    assert told["included"]["statistics of each series"] is False


def test_the_known_inputs_are_as_many_as_the_model_takes(saved, tmp_path):
    told = json.loads((saved / DESCRIPTION).read_text())
    shape, _, names = told["inputs"]["known"].partition("): ")
    forecaster = Predictor.load(tmp_path / "bundle", "cpu")
    task = forecaster.model.task
    assert shape.endswith(f", {task.calendar + task.covariates}")
    assert len(names.split(", ")) >= task.calendar + task.covariates


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("model.onnx", "other bytes", BundleError, "its SHA-256 is not the one in model.json"),
        (DESCRIPTION, "{", BundleError, "is not a description of this version"),
        (DESCRIPTION, '{"version": 9, "format": "onnx"}', BundleError, "export the model anew"),
        ("model.onnx", None, UnavailableError, "model.onnx is missing; write one with"),
        (DESCRIPTION, None, UnavailableError, "model.json is missing; write one with"),
    ],
)
def test_damage_is_named(saved, name, text, error, words):
    (saved / name).unlink() if text is None else (saved / name).write_text(text)
    with pytest.raises(error, match=words):
        read(saved, "onnx")


def test_another_format_is_named(saved):
    with pytest.raises(UnavailableError, match="in the format onnx, not torch-export"):
        read(saved, "torch-export")


def test_a_file_in_the_way(tmp_path, monkeypatch):
    monkeypatch.setitem(graph.WRITERS, "onnx", eager.write)
    (tmp_path / "out").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        graph.export(Predictor(unsaved(), "cpu"), "onnx", tmp_path / "out")
