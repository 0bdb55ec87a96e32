from matplotlib.collections import PathCollection

from forecaster.report.parts import Costs, frontier, frontier_chart


def test_the_frontier_is_what_no_other_beats_in_all_three():
    models = {
        "fast": Costs(1.0, 0.5, 5.0),
        "good": Costs(9.0, 0.3, 9.0),
        "lean": Costs(2.0, 0.6, 1.0),
        "beaten": Costs(1.5, 0.5, 5.0),
        "twin of fast": Costs(1.0, 0.5, 5.0),
    }
    assert frontier(models) == ["fast", "good", "lean", "twin of fast"]
    chart = frontier_chart("here", models)
    assert "at once: fast, good, lean, twin of fast." in chart.caption
    assert "the largest 9 MiB" in chart.caption
    (axis,) = chart.figure.axes
    dots = [each for each in axis.collections if isinstance(each, PathCollection)]
    found = {tuple(each.get_offsets()[0]): tuple(each.get_facecolor()[0]) for each in dots}
    assert found[1.0, 0.5] == found[9.0, 0.3] == found[2.0, 0.6] != found[1.5, 0.5]
    assert sorted(each.get_text() for each in axis.texts) == sorted(models)
