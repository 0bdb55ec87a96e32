import shutil

import pytest

from forecaster import report
from forecaster.attention import CONTROLS
from forecaster.base.errors import DataError, UnavailableError, UsageError
from forecaster.evaluate import interval_text
from forecaster.evaluate.figures import whole
from forecaster.study.compare import GRIDS, grid_page, table
from forecaster.study.compare import finished as finished_cells
from tests import small
from tests.report.reader import check_alone
from tests.study.compare.grids import small_grid, trained

FEW, FEW_PLAIN, MANY = (
    "small, T = 5, few (9 tokens), with the linear path",
    "small, T = 5, few (9 tokens), without the linear path",
    "small, T = 5, many (36 tokens), without the linear path",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A grid whose cells were trained for six steps, two seeds each."""
    with small.at_home(tmp_path_factory.mktemp("home")) as folder:
        made = small_grid(seeds=2)
        for cell in made.cells:
            trained(made, cell, GRIDS / "toy" / "cells", "forecaster compare <toy>")
        yield folder


@pytest.fixture(scope="module")
def cells(home):
    return finished_cells(GRIDS / "toy")


@pytest.fixture(scope="module")
def page(cells):
    return grid_page.of_grid("toy", "forecaster report --grid toy")


@pytest.fixture(scope="module")
def read(page):
    return check_alone(report.render(page))


def test_it_has_every_section(read, page):
    assert list(read.text)[1:] == ["figures", "steps", "lags", "commands"]
    assert page.title == "Comparison toy"
    assert "26 trained models" in page.lead
    assert "(6)" in page.lead


def test_the_figures_are_those_of_the_table(read, cells):
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


def test_lags_are_shown_without_the_linear_path_and_kept(page, cells, monkeypatch):
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


def test_a_grid_that_is_not_there(home):
    with pytest.raises(UnavailableError, match=r"no grid 'toi' in .*Did you mean.*toy"):
        grid_page.of_grid("toi", "")
    (GRIDS / "empty").mkdir()
    with pytest.raises(UsageError, match="no finished cell"):
        grid_page.of_grid("empty", "")


def test_other_data_are_refused(home, cells):
    shutil.copytree(GRIDS / "toy", GRIDS / "other")
    for cell in finished_cells(GRIDS / "other"):
        cell.note(data_digest="sha256:0")
    with pytest.raises(DataError, match=r"trained on sha256:0, but .*small\.csv has digest"):
        grid_page.of_grid("other", "")
