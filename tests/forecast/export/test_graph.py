import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from forecaster.base.errors import DataError, UnavailableError
from forecaster.forecast.export import graph
from forecaster.forecast.export.description import read
from forecaster.forecast.predictor import Predictor
from tests.bundles import blended, unsaved
from tests.forecast.export import eager
from tests.service.toy import KINDS, make_bundle


@pytest.fixture
def _eager(monkeypatch):
    monkeypatch.setattr(graph, "to_onnx", eager.write)


@pytest.mark.usefixtures("_eager")
class TestExport:
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_graph_forecasts_what_the_bundle_does(self, kind, tmp_path):
        bundle = make_bundle(tmp_path / "bundle", **KINDS[kind])
        if bundle.schema.items:
            made = blended(bundle, network=0.5, cycle=0.3, last=0.2)
            widths = np.arange(1.0, 1 + len(made.schema.items))[:, None]
            own = replace(made.intervals, of_series=widths.repeat(len(made.schema.targets), axis=1))
            bundle = replace(made, intervals=own).save(tmp_path / "blend")
        found = graph.export(Predictor(bundle, "cpu"), tmp_path / "out")
        assert found.parity < 1e-6
        assert read(tmp_path / "out") == (found, b"a model")
        assert set(found.inputs) == {"history", "known", "levels"} | (
            {"mean", "std", "item"} if bundle.schema.items else set()
        )

    def test_without_quantiles(self, tmp_path):
        found = graph.export(Predictor(unsaved(), "cpu"), tmp_path / "out")
        assert [*found.outputs] == ["forecast"]
        assert "levels" not in found.inputs

    @pytest.mark.parametrize("away", [1e-3, np.nan])
    def test_what_forecasts_something_else_is_not_kept(self, away, tmp_path, monkeypatch):
        def off(served, description):
            model, run = eager.write(served, description)
            return model, lambda *given: [run(*given)[0] + away, *run(*given)[1:]]

        monkeypatch.setattr(graph, "to_onnx", off)
        with pytest.raises((UnavailableError, DataError)):
            graph.export(Predictor(unsaved(), "cpu"), tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_why_it_cannot_be(self, tmp_path, monkeypatch):
        error = RuntimeError("no such operator\nand more")
        monkeypatch.setattr(graph, "to_onnx", Mock(side_effect=error))
        with pytest.raises(UnavailableError, match=r"no such operator\."):
            graph.export(Predictor(unsaved(), "cpu"), tmp_path / "out")
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(UnavailableError, match=r"needs onnx: .*'attention-forecaster\[onnx\]'"):
            graph.export(Predictor(unsaved(), "cpu"), tmp_path / "out")


# In a process of its own, because the tracer cannot see through the checks of shapes in tests.
PROGRAM = """
import sys
from pathlib import Path

from forecaster.forecast.export import graph
from forecaster.forecast.predictor import Predictor

for folder in map(Path, sys.argv[1:]):
    print(graph.export(Predictor.load(folder, "cpu"), folder / "onnx").parity < 1e-6)
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_real_files(tmp_path):
    for kind in ("plain", "wide, past", "all"):  # the others run in Python, above
        make_bundle(tmp_path / kind.replace(", ", "-"), **KINDS[kind])
    for kind in ("ahead", "words"):  # all columns are targets, and one of three
        make_bundle(tmp_path / f"own-{kind}", model="tokens", **KINDS[kind])
    blended(unsaved(), cycle=1.0).save(tmp_path / "no-network")
    command = [sys.executable, "-c", PROGRAM, *sorted(tmp_path.iterdir())]
    assert subprocess.check_output(command, text=True).split() == ["True"] * 6


PARTS = """
import io, logging, warnings

import onnxruntime, torch

from forecaster.config.run_config import load
from forecaster.model import Task
from forecaster.parts import Network
from forecaster.parts.boosted import Boosted
from forecaster.parts.ridge import Ridge
from forecaster.parts.smoothing import Smoothing

logging.disable()
warnings.simplefilter("ignore")
torch.manual_seed(0)
task = Task(1, (0,), 24, 12, 8, 1, 6, covariates=1)
smoothing = Smoothing(task, "x", 24, season=6, logs=True)
trees = Boosted(task, "x", 24, season=6, longer=[12], moving=1, whole=True)
trees.features.random_(20)
trees.thresholds.normal_()
trees.leaves.normal_()
ridge = Ridge(task, "x", 24, season=6, centre="cycle", maps=1, inputs="level", penalties=[1.0])
ridge.weights.normal_()
network = Network(load("default", environment={}).config.build_model(task))
flat, drawn = (torch.full((2, 24, 1), 0.3), torch.full((2, 1, 1), 2.0)), torch.randn(2, 56, 1)
for part in (smoothing, trees, ridge, network):
    past, beside = flat if part is smoothing else drawn.split((24, 32), 1)
    given = {
        "past": past, "past_known": torch.randn(2, 24, 2), "future_known": torch.randn(2, 8, 2),
        "observed": torch.ones(2, 24, 1, dtype=torch.bool),
        **({"beside": beside} if part in (smoothing, trees) else {}),
    }
    program = torch.onnx.export(part.eval(), tuple(given.values()), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = {each.name for each in session.get_inputs()}
    (found,) = session.run(None, {k: v.numpy() for k, v in given.items() if k in names})
    print(bool(abs(torch.from_numpy(found) - part(*given.values())).max() < 1e-5))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_kind_of_part_is_the_same_there():
    """The exporter drops sums with terms as small as 1e-12, which a constant history has."""
    found = subprocess.check_output([sys.executable, "-c", PARTS], text=True)
    assert found.split()[-4:] == ["True"] * 4
