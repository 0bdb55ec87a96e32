"""A metric is one entry of one list, and is shown wherever the entry states."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from forecaster import Forecaster, report
from forecaster.config.run_config import load
from forecaster.evaluate import figures
from forecaster.evaluate.figures import METRICS, ErrorMetric, Metric
from forecaster.evaluate.inference import Inference
from forecaster.evaluate.judge import find_intervals, judge
from forecaster.evaluate.problem import find_data, make_problem
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import load_bundle
from forecaster.parts import Blend, Network
from forecaster.record import Record, Training
from forecaster.report import runs, tables
from forecaster.study.compare import GRIDS, cell, finished, grid_page, table
from forecaster.tracking import pages
from tests import small
from tests.study.compare.grids import small_grid, trained

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LARGEST = ErrorMetric(
    name="largest", label="LARGEST", form="<{:.7f}>", unit="variances of the training rows",
    of=lambda errors, by: errors.mean("squared", by) + 123,
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The data set `small`, and one additional metric."""
    monkeypatch.setattr(figures, "METRICS", (*METRICS, LARGEST))
    monkeypatch.setattr(cell, "_known_floors", {})
    monkeypatch.setattr(runs, "inference", lambda bundle: Inference(1.25, 3.5))
    with small.at_home(tmp_path) as folder:
        yield folder


def test_a_new_metric_of_a_run_is_shown_everywhere() -> None:
    problem = make_problem(*find_data(load("small.yaml", [], {}, {}), print))
    network = problem.build_model().eval()
    model = Blend.alone(Network(network))
    intervals, _ = find_intervals(problem, model, "cpu")
    found = judge(problem, model, "cpu", intervals)
    test, mse = found.record.to_dict(), found.model.mse
    said = tables.text(found.record)
    head, model_line, network_line, floor_line, *_ = said.splitlines()[1:]
    assert head.split() == ["part", "MSE", "MAE", "LARGEST", "skill", "weight", "chosen"]
    assert f"<{mse + 123:.7f}>" in model_line
    assert network_line.split()[:-1] == ["network", *model_line.split()[1:]]
    assert "training mean" in floor_line
    assert f"<{test['floors']['training mean']['mse'] + 123:.7f}>" in floor_line
    assert f"  <{test['columns']['a']['mse'] + 123:.7f}>" in said
    fitted = Training(
        windows=1, peak_mib=None, expected_mib=1, epochs=1, seconds=1, best_epoch=1, steps=1,
        windows_per_second=1, still_falling=False,
    )  # fmt: skip
    record = Record(validation_mse=1.0, validation_windows=1, train=fitted, test=found.record)
    about = {
        "name": "x", "data_digest": problem.digest, "refit": False, "commit": "abc",
        "attn_effective": "prob",
    }  # fmt: skip
    weights = dict(network.state_dict())
    bundle = Bundle(problem.config, problem.schema, weights, record, about)
    tracked = pages.tables_of(bundle)
    own, alone, floor, *_ = tracked["parts"]
    for row in (own, alone, floor, tracked["columns"][0], tracked["steps"][0]):
        assert row["largest"] == pytest.approx(row["mse"] + 123)
    assert "test LARGEST" in pages.describe(bundle)[1]
    bundle.save(Path("it"))
    assert Forecaster.load("it").evaluate()["largest"]["model"] == own["largest"]
    assert load_bundle("it").record.judged["largest"] == own["largest"], "as exports keep it"
    page = report.render(runs.of_runs(["it"], "the command", "cpu"))
    assert "test LARGEST" in page
    assert f"&lt;{mse + 123:.7f}&gt;" in page


def test_a_new_metric_of_a_grid_is_shown_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small_grid(attn=[])
    for each in made.cells:
        if each.regime == "few" and each.linear:
            trained(made, each, GRIDS / "toy" / "cells")
    cells = finished(GRIDS / "toy")
    printed = [f"<{each.facts['mse'] + 123:.7f}>" for each in cells]
    shown = table.text(table.rows(cells))
    page = report.render(grid_page.of_grid("toy", "the command"))
    assert "LARGEST" in shown
    assert "LARGEST" in page
    for text in printed:
        assert text in shown
        assert text.replace("<", "&lt;").replace(">", "&gt;") in page

    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", ["x", str(GRIDS / "toy"), f"--output={results}"])
    script("compare").main()
    assert len(list(results.iterdir())) == len(cells) + 1
    kept = [json.loads(file.read_text()) for file in results.iterdir()]
    rows = [row for document in kept for row in document.get("rows", [document])]
    assert all(row["largest"] == pytest.approx(row["mse"] + 123) for row in rows)
    documents = script("render")
    assert documents._labels() == "MSE / MAE / LARGEST"
    assert documents._metrics(rows[0]).endswith(LARGEST.text(rows[0]["largest"]))
    assert "`largest` | LARGEST |" in documents.metrics()


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_script", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_cells_of_an_older_list_are_shown_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.study.compare.grids import finished as made

    rows = table.rows([made(Path("old"), [1.0] * 9, attn="full")])
    assert "LARGEST" not in table.text(rows)
    assert rows[0].to_dict()["largest"] is None


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_what_is_not_known_has_a_text(metric: Metric) -> None:
    assert metric.text(None) == metric.text(np.nan) == metric.missing
    assert metric.text(1.0) == metric.form.format(1)
