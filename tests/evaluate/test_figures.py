"""A metric is one entry of one list, and is shown wherever the entry states."""

from pathlib import Path

import pytest

from forecaster import Forecaster, report
from forecaster.evaluate import figures
from forecaster.evaluate.figures import METRICS, ErrorMetric
from forecaster.evaluate.judge import find_intervals, judge
from forecaster.forecast.predictor import load_bundle
from forecaster.parts import Blend, Network
from forecaster.report import runs, tables
from forecaster.study.compare import cell
from forecaster.tracking import texts
from tests import small
from tests.bundles import of_splits

LARGEST = ErrorMetric(
    name="largest", label="LARGEST", form="<{:.7f}>", unit="variances of the training rows",
    of=lambda errors, by: errors.mean("squared", by) + 123,
)  # fmt: skip


@pytest.mark.usefixtures("home")
def test_a_new_metric_of_a_run_is_shown_everywhere(monkeypatch):
    monkeypatch.setattr(figures, "METRICS", (*METRICS, LARGEST))
    monkeypatch.setattr(cell, "_known_floors", {})
    monkeypatch.setattr(runs, "inference", lambda _: {"inference_ms": 1.25, "peak_mib": 3.5})
    problem = small.splits()
    model = Blend.alone(Network(problem.build_model().eval()))
    intervals, _, _ = find_intervals(problem, model, "cpu")
    found = judge(problem, model, "cpu", intervals)
    test, mse = found.backtest.to_dict(), found.model.mse
    said = tables.text(found.backtest)
    head, *lines = said.splitlines()[2:]
    assert head.split() == ["part", "MSE", "MAE", "LARGEST", "skill", "weight", "chosen"]
    assert lines[1].split()[:-1] == ["network", *lines[0].split()[1:]]
    for error in (mse, test["floors"]["training mean"]["mse"], test["columns"]["a"]["mse"]):
        assert f"  <{error + 123:.7f}>" in said
    bundle = of_splits(problem, found.backtest)
    tracked = texts.tables_of(bundle)
    own, alone, floor, *_ = tracked["parts"]
    for row in (own, alone, floor, tracked["columns"][0], tracked["steps"][0]):
        assert row["largest"] == pytest.approx(row["mse"] + 123)
    assert "test LARGEST" in texts.describe(bundle)[1]
    bundle.save(Path("it"))
    assert Forecaster.load("it").evaluate()["largest"]["model"] == own["largest"]
    assert load_bundle("it").record.judged["largest"] == own["largest"], "as exports keep it"
    page = report.render(runs.of_runs(["it"], "the command"))
    assert "test LARGEST" in page
    assert f"&lt;{mse + 123:.7f}&gt;" in page
