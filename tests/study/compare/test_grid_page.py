import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from forecaster import report
from forecaster.attention import CONTROLS
from forecaster.base.errors import DataError, UnavailableError, UsageError
from forecaster.evaluate import interval_text
from forecaster.evaluate.figures import whole
from forecaster.report.page import Page
from forecaster.study.compare import GRIDS, grid_page, table
from forecaster.study.compare import finished as finished_cells
from forecaster.study.compare.cell import FACTS, Finished
from tests import small
from tests.browser import READY, Tab, complaints, quiet, wants_chromium
from tests.report.reader import Reader, check_alone
from tests.report.test_runs import SECTIONS
from tests.study.compare.grids import finished, small_grid, trained

FEW, FEW_PLAIN, MANY = (
    "small, T = 5, few (9 tokens), with the linear path",
    "small, T = 5, few (9 tokens), without the linear path",
    "small, T = 5, many (36 tokens), without the linear path",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    """A grid whose cells were trained for six steps, two seeds each."""
    with small.at_home(tmp_path_factory.mktemp("home")) as folder:
        made = small_grid(seeds=2)
        for cell in made.cells:
            trained(made, cell, GRIDS / "toy" / "cells", "forecaster compare <toy>")
        yield folder


@pytest.fixture(scope="module")
def cells(home: Path) -> list[Finished]:
    return finished_cells(GRIDS / "toy")


@pytest.fixture(scope="module")
def page(cells: list[Finished]) -> Page:
    return grid_page.of_grid("toy", "forecaster report --grid toy")


@pytest.fixture(scope="module")
def read(page: Page) -> Reader:
    return check_alone(report.render(page))


def test_it_has_every_section(read: Reader, page: Page) -> None:
    wanted = [each for each in SECTIONS if each not in ("columns", "parts")]
    assert list(read.text)[1:] == wanted
    assert page.title == "Comparison toy"
    assert "26 trained models" in page.lead
    assert "(6)" in page.lead


def test_the_figures_are_those_of_the_table(read: Reader, cells: list[Finished]) -> None:
    rows = table.rows(cells)
    assert len(rows) == 13
    for row in rows:
        for text in (
            table.heading(row), *(table.spread(row, metric) for metric in whole("report")),
            f"{row.skill:+.1%}", f"{row.budget_parameters:,}", f"{row['inference_ms']:.2f}",
            f"{row['peak_mib']:.1f}", row.effective,
        ):  # fmt: skip
            assert text in read.text["figures"], text
        for against in row.against.values():
            assert interval_text(against.low, against.high) in read.text["figures"]


def test_the_forecasts_are_of_the_best_on_validation(page: Page, cells: list[Finished]) -> None:
    forecasts = next(section for section in page.sections if section.id == "forecasts")
    assert len(forecasts.charts) == 9
    means: dict[str, list[float]] = {}
    for cell in cells:
        if cell.folder.name.endswith(("few-linear-s0", "few-linear-s1")):
            means.setdefault(cell.facts.attn, []).append(cell.facts.validation_mse)
    best = min(means, key=lambda attn: float(np.mean(means[attn])))
    own = next(c for c in cells if c.folder.name == f"{best}-5-few-linear-s0")
    assert [chart.caption.partition(" over")[0] for chart in forecasts.charts[:3]] == [
        f"{FEW}: {best}, seed 0, {kind} of 76 windows: MSE {error:.4f}"
        for kind, error in (
            ("best", own.by_window().min()),
            ("median", np.sort(own.by_window())[38]),
            ("worst", own.by_window().max()),
        )
    ]


def test_lags_are_shown_without_the_linear_path_and_kept(
    page: Page, cells: list[Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    lags = next(section for section in page.sections if section.id == "lags")
    assert [chart.caption.partition(". Peaks")[0] for chart in lags.charts] == [FEW_PLAIN, MANY]
    for chart in lags.charts:
        titles = [axis.get_title(loc="left") for axis in chart.figure.axes]
        assert [title.partition(":")[0] for title in titles] == ["full", *CONTROLS]
    kept = [c.folder.name for c in cells if (c.folder / grid_page.LAG_FILE).is_file()]
    assert len(kept) == 8
    assert all(name.endswith("plain-s0") for name in kept)
    monkeypatch.setattr(grid_page, "lag_profile", lambda *_: pytest.fail("it was computed before"))
    again = grid_page.of_grid("toy", "forecaster report --grid toy")
    (found,) = [section for section in again.sections if section.id == "lags"]
    assert [chart.caption for chart in found.charts] == [chart.caption for chart in lags.charts]


def test_the_commands(read: Reader) -> None:
    commands = read.text["commands"]
    assert "forecaster compare <toy>\nforecaster report --grid toy" in commands
    assert "at commit abc" in commands
    assert "feed_forward: " in commands


def edited(cells: list[Finished], name: str, change: object) -> list[Finished]:
    """A copy of the grid under another name, with changed facts of its cells."""
    folder = GRIDS / name
    shutil.copytree(GRIDS / "toy", folder)
    for cell in cells:
        facts = json.loads((cell.folder / FACTS).read_text())
        assert callable(change)
        change(facts)
        (folder / "cells" / cell.folder.name / FACTS).write_text(json.dumps(facts))
    return finished_cells(folder)


def test_verdicts_in_words(home: Path, cells: list[Finished]) -> None:
    def change(facts: dict[str, object]) -> None:
        facts["floors"] = {"<floor>": {"mse": 1e-3, "mae": 1.0}}
        if facts["attn"] == "mean":
            facts.update(is_full=True, within_budget=False)

    edited(cells, "changed", change)
    page = grid_page.of_grid("changed", "")
    html = report.render(page)
    read = check_alone(html)
    verdicts = read.text["verdicts"]
    assert verdicts.count("Full attention under another name, no verdict: mean.") == 3
    assert "LOSE to the best floor, <floor> (0.0010), on average: all of them." in verdicts
    assert "<floor>" not in html
    assert "(full)" in read.text["figures"]
    assert re.search(r"\d\*", read.text["figures"])


def test_verdicts_name_the_types(home: Path, tmp_path: Path) -> None:
    """`full` is better than `none` in every window, `prob` is as good, and `mean` loses."""
    made = [
        finished(tmp_path, np.full(100, error) + 1e-3 * np.sin(np.arange(100)), attn=attn)
        for attn, error in (("full", 0.3), ("prob", 0.3), ("mean", 0.7), ("none", 0.4))
    ]
    words = table.verdicts(table.rows(made))
    assert words == (
        "small, T = 2, few (9 tokens), without the linear path; 6 steps, 100 test windows. "
        "Measurably better than none: full, prob. Measurably worse than none: mean. "
        "No measurable difference from full: prob. Measurably worse than full: mean, none. "
        "LOSE to the best floor, low (0.5000), on average: mean."
    )
    words = table.verdicts(table.rows(made[:2]))
    assert "No type differs measurably from full." in words
    assert "All are better on average than the best floor, low (0.5000)." in words
    first, second = table.rows(made[:2])
    close = second.against["full"].model_copy(update={"low": -0.1, "high": 0.0001})
    close_row = second.model_copy(update={"against": {**second.against, "full": close}})
    words = table.verdicts([first, close_row])
    assert "No measurable difference from full: prob (borderline)." in words


@pytest.mark.slow
@wants_chromium
@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(tab: Tab, page: Page, tmp_path: Path, width: int, scheme: str) -> None:
    (tmp_path / "page.html").write_text(report.render(page), encoding="utf-8")
    with quiet(tab):
        tab.open(f"file://{tmp_path}/page.html", width, scheme, READY)
    assert complaints(tab) == []
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")


def test_a_grid_that_is_not_there(home: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no grid 'toi' in .*Did you mean.*toy"):
        grid_page.of_grid("toi", "")
    (GRIDS / "empty").mkdir()
    with pytest.raises(UsageError, match="no finished cell"):
        grid_page.of_grid("empty", "")


def test_other_data_are_refused(home: Path, cells: list[Finished]) -> None:
    edited(cells, "other", lambda facts: facts.update(data_digest="sha256:0"))
    with pytest.raises(DataError, match=r"trained on sha256:0, but .*small\.csv has digest"):
        grid_page.of_grid("other", "")
