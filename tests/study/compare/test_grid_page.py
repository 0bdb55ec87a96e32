import pytest
from matplotlib.collections import PathCollection

from forecaster import report
from forecaster.base.errors import UnavailableError, UsageError
from forecaster.evaluate.figures import whole
from forecaster.evaluate.metrics import interval_text
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


def test_it_has_every_section(home):
    page = grid_page.of_grid("toy", "forecaster report --grid toy")
    read = check_alone(report.render(page))
    assert list(read.text)[1:] == ["figures", "steps", "commands"]
    assert page.title == "Comparison toy"
    assert "26 trained models" in page.lead
    assert "(6)" in page.lead
    (steps,) = [section for section in page.sections if section.id == "steps"]
    assert [chart.caption for chart in steps.charts] == [FEW, FEW_PLAIN, MANY]
    rows, shown = table.rows(finished_cells(GRIDS / "toy")), read.text["figures"]
    assert len(rows) == 13
    for row in rows:
        for text in (
            table.heading(row), *(table.spread(row, metric) for metric in whole("report")),
            f"{row.skill:+.1%}", f"{row.budget_parameters:,}", f"{row['inference_ms']:.2f}",
            f"{row['peak_mib']:.1f}", row.effective,
            *(interval_text(against.low, against.high) for against in row.against.values()),
        ):  # fmt: skip
            assert text in shown, text


def test_a_grid_that_is_not_there(home):
    with pytest.raises(UnavailableError, match=r"no grid 'toi' in .*Did you mean.*toy"):
        grid_page.of_grid("toi", "")
    (GRIDS / "empty").mkdir()
    with pytest.raises(UsageError, match="no finished cell"):
        grid_page.of_grid("empty", "")


def test_the_frontier_is_what_no_other_beats_in_all_three():
    costs = {
        "fast": (1.0, 0.5, 5.0),
        "good": (9.0, 0.3, 9.0),
        "lean": (2.0, 0.6, 1.0),
        "beaten": (1.5, 0.5, 5.0),
        "twin of fast": (1.0, 0.5, 5.0),
    }
    chart = grid_page.frontier("here", costs)
    assert "at once: fast, good, lean, twin of fast." in chart.caption
    assert "the largest 9 MiB" in chart.caption
    (axis,) = chart.figure.axes
    dots = [each for each in axis.collections if isinstance(each, PathCollection)]
    found = {tuple(each.get_offsets()[0]): tuple(each.get_facecolor()[0]) for each in dots}
    assert found[1.0, 0.5] == found[9.0, 0.3] == found[2.0, 0.6] != found[1.5, 0.5]
    assert sorted(each.get_text() for each in axis.texts) == sorted(costs)
