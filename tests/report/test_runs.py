from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forecaster import report
from forecaster.evaluate.judge import example, find_intervals, judge, picked
from forecaster.parts import Blend, Network
from forecaster.record import InputEffect
from forecaster.report import runs
from tests import small
from tests.browser import READY, complaints, quiet, wants_chromium
from tests.bundles import blended, of_splits, rejudged, unsaved
from tests.report.reader import check_alone

SECTIONS = [
    "ahead", "figures", "verdicts", "parts", "intervals", "columns", "steps", "forecasts",
    "commands",
]  # fmt: skip
EVIL = "<b>& 'co'"


def bundle(name, *sets, seed=0, calibrated=False, refit=False):
    """An untrained bundle, judged as after a training; and what was found."""
    problem = small.splits(*sets, seed=seed)
    model = Blend.alone(Network(problem.build_model().eval()))
    intervals = find_intervals(problem, model, "cpu")[0] if calibrated else None
    test = judge(problem, model, "cpu", intervals)
    examples = {
        kind: example(problem, model, intervals, test.model, number, "cpu")
        for kind, number in picked(test.model.by_window).items()
    }
    made = of_splits(problem, test.backtest, intervals, refit=refit)
    record = made.record.model_copy(update={"examples": examples})
    replace(made, record=record).save(Path(name))
    return test


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What was found of the runs in the working directory, by name."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.chdir(folder)
        small.install(folder, patch)
        patch.setattr(runs, "inference", lambda _: {"inference_ms": 1.25, "peak_mib": 3.5})
        made = {
            "plain": bundle("plain", calibrated=True),
            EVIL: bundle(EVIL, "model.linear=false", seed=1, refit=True),
            "short": bundle("short", "window.horizon=3"),
        }
        (folder / "data" / "small.csv").unlink()  # the report needs no data
        yield made


def test_the_forecast_from_the_last_row_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small.install(tmp_path, monkeypatch)
    monkeypatch.setattr(runs, "inference", lambda _: {})
    bundle("plain", calibrated=True)
    section, *_ = runs.of_runs(["plain"], "it", 5).sections
    assert (section.id, [*section.notes]) == ("ahead", [])
    (chart,) = section.charts
    assert chart.caption.startswith(
        "plain: the steps after the data, in units. Totals over the hor"
    )
    assert "a 100.2 (80 % band 99.89 to 100.5); b" in chart.caption
    assert len(chart.figure.axes[0].get_lines()) == 3 + 5
    labels = {text.get_text() for text in chart.figure.axes[0].get_legend().get_texts()}
    assert {"history", "forecast"} < labels


@pytest.fixture(scope="module")
def html(found):
    page = runs.of_runs(["plain", f"./{EVIL}", "short", "plain"], "forecaster report <x>")
    return report.render(page)


@pytest.fixture(scope="module")
def read(html):
    return check_alone(html)


def test_it_shows_every_run_and_compares_those_of_the_same_task(read, html):
    assert list(read.text)[1:] == SECTIONS
    assert len(html) < 1_000_000
    assert "Report of 3 runs" in read.text[""], "one was named twice"
    for name in ("plain", EVIL, "short"):
        for kind in ("best", "median", "worst"):
            assert f"{name}, {kind} of 7" in " ".join(read.pictures)
    assert len(read.pictures) == 2 + 3 * 3 + 3, "that of the next steps is one of the test split"
    assert "plain: no forecast from the last row of its data" in read.text["ahead"]
    assert f"plain − {EVIL}" in read.text["verdicts"]
    assert "− short" not in read.text["verdicts"]
    assert "<b>" not in html
    commands = read.text["commands"]
    assert "forecaster evaluate --model './<b>& '\"'\"'co'\"'\"''" in commands
    assert "forecaster report <x>\nforecaster evaluate --model plain\n" in commands
    assert "past: 36" in commands
    assert "torch 2." in commands


def test_the_figures_are_those_of_the_evaluation(read, found):
    test, figures = found["plain"], read.text["figures"]
    floor = test.best_floor
    for text in (
        "test MASE", f"{test.backtest.to_dict()['mase']:.3f}", f"{test.model.mse:.4f}",
        f"{test.model.mae:.4f}", f"{test.floors[floor].mse:.4f}", floor,
        "0.1235", "61", "5678", "1.25", "3.5", "4 of 9 queries active",
        str(len(test.model.by_window)), "small (M, a, b, c), T = 5", "small (M, a, b, c), T = 3",
    ):  # fmt: skip
        assert text in figures, text
    for text in (test.verdict(), test.headline, test.network_verdict()):
        assert text in read.text["verdicts"]
    parts = read.text["parts"].replace("\n", "")
    for name, own in test.floors.items():
        assert f"{name}{own.mse:.4f}{own.mae:.4f}{test.chosen[name]}" in parts
    worst = f"MSE {test.model.by_window.max():.4f} over all columns"
    assert any(worst in words for words in read.pictures)


def test_the_pictures_of_a_run_are_those_of_its_record(found):
    charts = {each.id: each.charts for each in runs.of_runs(["plain"], "").sections}
    for chart in charts["forecasts"]:
        assert [axis.get_ylabel() for axis in chart.figure.axes] == ["b", "a", "c"], "the main one"
        for axis in chart.figure.axes:
            (band,) = axis.collections
            assert str(band.get_label()).startswith("80 % (covered ")
    (steps,), test = charts["steps"], found["plain"]
    drawn = {line.get_label(): line.get_ydata().mean() for line in steps.figure.axes[0].lines}
    network, floor = test.network.mse, test.floors[test.best_floor].mse
    wanted = {"model": test.model.mse, "network": network, test.best_floor: floor}
    assert drawn == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("errors", "row"),
    [
        ([1.5, 1.25, 1.75, 1.5], ("+1.0000", "worse")),
        ([0.5, 0.25, 0.75, 0.5], ("+0.0000", "no measurable difference")),
        ([], ("", "too few windows")),
    ],
)
def test_which_run_is_better_is_said(errors, row):
    other = [0.5, 0.5, 0.5, 0.5][: len(errors)]
    group = {"a": rejudged(unsaved(), errors=errors), "b": rejudged(unsaved(), errors=other)}
    (table,) = runs._pairs([group])
    ((pair, mean, _, verdict),) = table.rows
    assert (pair, mean, verdict) == ("a − b", *row)


def test_one_run_whose_network_has_no_share(found):
    curves = {"mse": [0.5] * 6, "mae": [0.5] * 6}
    plain = rejudged(unsaved(), by_step=curves, floors={"last value": {"mse": 0.75}})
    plain = blended(plain, cycle=0.25, last=0.75)
    effects = (InputEffect(input="price", target="load", effect=-2.0, low=-3.0, high=-1.0),)
    record = plain.record.model_copy(update={"effects": effects})
    about = {**plain.about, "data_digest": "d", "commit": "c", "attn_effective": "none"}
    replace(plain, record=record, about=about).save(Path("closed"))
    page = runs.of_runs(["closed"], "")
    assert page.title == "Report of closed"
    text = check_alone(report.render(page)).text
    missing = {"intervals", "columns", "forecasts"}
    assert {*text} - {""} == {*SECTIONS, "effects"} - missing, "what it does not have"
    assert "one more of price: load -2 on average" in text["effects"]
    parts = text["parts"].replace("\n", "")
    assert "last value75.0%" in parts
    assert "cycle mean25.0%" in parts


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
