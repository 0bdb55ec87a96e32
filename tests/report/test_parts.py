import numpy as np
from matplotlib.collections import PathCollection

from forecaster.evaluate.lags import LagProfile
from forecaster.report.parts import Costs, frontier, frontier_chart, lag_chart


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


def test_lag_profiles_in_words():
    matrix = np.zeros((2, 13))
    matrix[0, 5], matrix[1, 11], matrix[1, 2] = 0.5, 0.2, 0.3
    profiles = {"a model": LagProfile(matrix, 8), "blind": LagProfile(np.zeros((2, 13)), 8)}
    chart = lag_chart("here", {**profiles, "flat": LagProfile(np.full((1, 4), 0.25), 8)}, 6)
    assert chart.caption == "here. Peaks: a model 6, blind nowhere, flat 1."
    assert [axis.get_title(loc="left") for axis in chart.figure.axes] == [
        "a model: peak at lag 6\nmultiples of 6: 15% of the lags, 70% of the whole",
        "blind: does not depend on its past\n",
        "flat: peak at lag 1\nmultiples of 6: 0% of the lags, 0% of the whole",
    ]
    (curve,) = chart.figure.axes[0].lines
    assert list(curve.get_ydata()) == list(profiles["a model"].by_lag)
