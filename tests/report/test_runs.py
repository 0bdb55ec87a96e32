from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from forecaster import report
from forecaster.base.errors import UsageError
from forecaster.evaluate.inference import Inference
from forecaster.evaluate.judge import find_intervals, judge
from forecaster.evaluate.problem import reopen
from forecaster.forecast.predictor import load_bundle
from forecaster.parts import Blend, Network
from forecaster.report import runs
from tests import small
from tests.browser import READY, complaints, quiet, wants_chromium
from tests.bundles import blended, judged, of_problem
from tests.report.reader import check_alone

SECTIONS = [
    "figures", "verdicts", "parts", "columns", "steps", "forecasts", "commands",
]  # fmt: skip
EVIL = "<b>& 'co'"


def bundle(name, *sets, seed=0, refit=False, calibrated=False):
    """An untrained bundle."""
    problem = small.problem(*sets, seed=seed)
    model = Blend.alone(Network(problem.build_model().eval()))
    intervals = find_intervals(problem, model, "cpu")[0] if calibrated else None
    return of_problem(problem, None, intervals, refit=refit).save(Path(name))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.chdir(folder)
        small.install(folder, patch)
        patch.setattr(runs, "inference", lambda bundle: Inference(1.25, 3.5))
        bundle("plain", calibrated=True)
        bundle(EVIL, "model.linear=false", seed=1)
        bundle("short", "window.horizon=3")
        yield folder


@pytest.fixture(scope="module")
def html(home):
    page = runs.of_runs(["plain", f"./{EVIL}", "short", "plain"], "forecaster report <x>", "cpu")
    return report.render(page)


@pytest.fixture(scope="module")
def read(html):
    return check_alone(html)


def test_examples_are_of_what_was_observed():
    errors = np.array([2.0, np.nan, 5.0, 1.0, 3.0, 4.0])
    assert runs.picked(errors) == {"best": 3, "median": 4, "worst": 2}


def test_it_shows_every_run_and_compares_those_of_the_same_task(read, html):
    assert list(read.text)[1:] == [*SECTIONS[:3], "intervals", *SECTIONS[3:]]
    assert len(html) < 1_000_000
    assert "Report of 3 runs" in read.text[""], "one was named twice"
    for name in ("plain", EVIL, "short"):
        for kind in ("best", "median", "worst"):
            assert f"{name}, {kind} of 7" in read.text["forecasts"]
    assert len(read.pictures) == 1 + 2 + 3 * 3
    assert f"plain − {EVIL}" in read.text["verdicts"]
    assert "− short" not in read.text["verdicts"]
    costs = [words for words in read.pictures if "no other beats" in words]
    assert [words.partition(".")[0] for words in costs] == ["small (M, a, b, c), T = 5"]
    assert "<b>" not in html
    commands = read.text["commands"]
    assert "forecaster evaluate --model './<b>& '\"'\"'co'\"'\"''" in commands
    assert "forecaster report <x>\nforecaster evaluate --model plain\n" in commands
    assert "past: 36" in commands
    assert "torch 2." in commands


def test_the_figures_are_those_of_the_evaluation(read, home):
    found = load_bundle("plain")
    test = judge(reopen(found), found.build(), "cpu")
    figures = read.text["figures"]
    floor = test.best_floor
    for text in (
        "test MASE", f"{test.record.to_dict()['mase']:.3f}", f"{test.model.mse:.4f}",
        f"{test.model.mae:.4f}", f"{test.floors[floor].mse:.4f}", floor,
        "0.1235", "61", "5678", "1.25", "3.5", "4 of 9 queries active",
        str(len(test.model.by_window)), "small (M, a, b, c), T = 5", "small (M, a, b, c), T = 3",
    ):  # fmt: skip
        assert text in figures, text
    assert f"plain: {test.verdict()}" in read.text["verdicts"]
    parts = read.text["parts"].replace("\n", "")
    for name, own in test.floors.items():
        assert f"{name}{own.mse:.4f}{own.mae:.4f}{test.chosen[name]}" in parts
    assert f"MSE {test.model.by_window.max():.4f} over all columns" in read.text["forecasts"]


def test_the_forecasts_of_a_run_are_drawn_with_their_band(home):
    (run,) = [
        each for each in runs.of_runs(["plain"], "", "cpu").sections if each.id == "forecasts"
    ]
    for chart in run.charts:
        assert [axis.get_ylabel() for axis in chart.figure.axes] == ["b", "a", "c"], "the main one"
        for axis in chart.figure.axes:
            (band,) = axis.collections
            assert str(band.get_label()).startswith("80 % (covered ")


def test_errors_by_series_begin_with_the_worst():
    errors = {f"s{i}": {"mse": float(i), "mae": 1.0, "mase": 1.0} for i in range(12)}
    items = {"count": 12, "tested": 12, "shown": "all tested", "errors": errors}
    (section,) = runs._series([SimpleNamespace(name="panel", test=judged(items=items))])
    (table,) = section.tables
    assert [row[0] for row in table.rows[:2]] == ["s11", "s10"]
    assert len(table.rows) == 10
    assert table.caption == "panel; and 2 more series with smaller errors"
    assert not [*runs._series([SimpleNamespace(name="one", test=judged())])]


def test_which_run_is_better_is_said(home):
    found = load_bundle("plain")
    problem = reopen(found)
    good = judge(problem, found.build(), "cpu")
    worse = replace(good, model=replace(good.model, by_window=good.model.by_window + 1))
    judged = [
        runs.Judged(name, name, found, problem, own, Inference(1, None), [])
        for name, own in (("a", worse), ("b", good))
    ]
    (table,) = runs._pairs([judged])
    (row,) = table.rows
    assert (row[0], row[1], row[3]) == ("a − b", "+1.0000", "worse")
    assert np.isfinite(float(row[2].strip("[]").split(",")[0]))


def test_one_run_whose_network_has_no_share(home):
    found = load_bundle("short")
    record = found.record.model_copy(update={"test": judged()})
    blended(replace(found, record=record), cycle=0.25, last=0.75).save(Path("closed"))
    page = runs.of_runs(["closed"], "", "cpu")
    assert page.title == "Report of closed"
    assert [section.id for section in page.sections] == SECTIONS, "it has no intervals"
    parts = check_alone(report.render(page)).text["parts"].replace("\n", "")
    assert "last value75.0%" in parts
    assert "cycle mean25.0%" in parts


def test_a_refitted_model_cannot_be_judged(home):
    bundle("refitted", refit=True)
    with pytest.raises(UsageError, match="refitted on all rows"):
        runs.of_runs(["refitted"], "", "cpu")


@pytest.mark.slow
@wants_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_a_browser_shows_it(tab, html, tmp_path, width, scheme):
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    with quiet(tab):
        tab.open(f"file://{tmp_path}/page.html", width, scheme, READY)
        assert tab.run("document.images.length") > 10
    assert complaints(tab) == []
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    pixels = tab.picture()
    paper = np.array([1, 1, 1] if scheme == "light" else [0x0F, 0x17, 0x2A] / np.array(255.0))
    written = np.abs(pixels - paper).max(axis=2) > 0.02
    assert 0.01 < written.mean() < 0.5, "ink on paper of the right colour"
