import subprocess
import sys
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError, UnavailableError, UsageError
from forecaster.forecast.export import graph, runtime
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question
from tests.bundles import COLUMNS, blended, unsaved, warning
from tests.forecast.export import eager
from tests.forecast.test_predictor import history

PROGRAM = """
import sys

import pandas as pd

from forecaster.forecast.export.runtime import load

model, csv = sys.argv[1:]
said = []
frame = load(model, threads=1).predict(csv, levels=[0.1, 0.3, 0.9], say=said.append)
assert "torch" not in sys.modules
print(frame.to_csv(index=False), end="")
print(*said, sep="\\n", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A bundle, its export and a history that has gaps."""
    folder = tmp_path_factory.mktemp("export")
    parts = {"network": 0.5, "cycle": 0.3, "last": 0.2}
    warning(blended(unsaved("informer", calibrated=True), **parts)).save(folder / "bundle")
    frame = history(rows=30)
    frame.loc[20:22, "wind"] = np.nan
    frame.to_csv(folder / "history.csv", index=False)
    export = ("forecaster", "export", "--model", "bundle", "--format", "onnx", "--output", "onnx")
    command = [sys.executable, "-m", *export]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return folder


def test_it_answers_what_the_bundle_does_without_torch(made):
    command = [sys.executable, "-c", PROGRAM, "onnx", "history.csv"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=made)
    said = []
    forecaster = Predictor.load(made / "bundle", "cpu")
    ours = forecaster.predict(made / "history.csv", levels=[0.1, 0.3, 0.9], say=said.append)
    theirs = pd.read_csv(StringIO(run.stdout), parse_dates=["time"])
    pd.testing.assert_frame_equal(theirs, ours, rtol=1e-5, atol=1e-4)
    assert run.stderr.splitlines() == [str(each) for each in said]
    assert len(said) >= 3


def test_any_number_of_histories_and_of_levels(made):
    ours, theirs = Predictor.load(made / "bundle", "cpu"), runtime.load(made / "onnx", 1)
    for count in (1, 2, 7):
        values = np.random.default_rng(0).normal(size=(count, 12, 3))
        starts = pd.date_range("2026-01-01", periods=count, freq="h")
        for levels in ((), (0.5,), (0.1, 0.2, 0.3, 0.4, 0.6)):
            asked = Question(values, starts), levels
            mine, others = (each.forecast_quantiles(*asked) for each in (ours, theirs))
            for own, other in zip(mine, others, strict=True):
                np.testing.assert_allclose(other, own, rtol=1e-5, atol=1e-4)


def test_the_graph_tells_nothing_of_the_machine_that_made_it(made):
    assert b"forecaster/" not in (made / "onnx" / "model.onnx").read_bytes()
    assert str(made) not in (made / "onnx" / "model.json").read_text()


@pytest.fixture
def exported(tmp_path, monkeypatch):
    forecaster = Predictor(blended(unsaved(calibrated=True), network=0.5, last=0.5), "cpu")
    monkeypatch.setattr(graph, "to_onnx", eager.write)
    description = graph.export(forecaster, tmp_path / "out")
    _, run = eager.write(graph.module_of(forecaster), description)
    return runtime.Exported(description, run)


def test_what_it_cannot_do_is_refused(exported, monkeypatch):
    with pytest.raises(UsageError, match=r"from 0\.1 to 0\.9, got 0\.99"):
        exported.predict(history(), levels=[0.99])
    with pytest.raises(DataError, match=r"has 5 rows, the model needs 12: give at least 12 rows$"):
        exported.predict(history(rows=5), short_history="drop")
    assert exported.predict(exported.example).columns.tolist() == ["time", *COLUMNS]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    words = r"needs onnxruntime: .*'attention-forecaster\[onnx\]'"
    with pytest.raises(UnavailableError, match=words):
        runtime.session(b"")
