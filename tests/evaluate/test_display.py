import io

import numpy as np
import pandas as pd
import pytest

from forecaster.evaluate import display
from tests.bundles import judged


def draw(figure):
    """Layout problems only show when a figure is drawn."""
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    assert figure.canvas.manager is None  # not with pyplot, which would keep it in memory


@pytest.mark.parametrize(("columns", "shown"), [(1, 1), (7, 4)])
def test_a_forecast_follows_its_history_within_its_band(columns, shown):
    random = np.random.default_rng(0)
    history, forecast, truth = (random.normal(size=(n, columns)) for n in (20, 10, 10))
    times = pd.date_range("2020-01-01", periods=30, freq="h")
    names = tuple(f"c{i}" for i in range(columns))
    test = judged(intervals={"80": {"columns": {"c0": {"coverage": 0.756}}}, "95": None})
    labels = [display.band_label("80", test.covered("80", name)) for name in names]
    assert labels[:2] == ["80 % (covered 76 %)", "80 %"][:columns]
    assert test.covered("95", "c0") is judged().covered("80", "c0") is None
    paths, band = {"forecast": forecast, "truth": truth}, np.stack([forecast - 1, forecast + 3], -1)
    about = (band, labels) if columns > 1 else ()
    figure = display.forecast_figure(times, history, paths, names, "ETTh1", *about)
    draw(figure)
    assert [axis.get_ylabel() for axis in figure.axes] == list(names[:shown])
    for i, axis in enumerate(figure.axes):
        past, ahead, real, border = axis.lines
        for line, drawn in ((past, history), (ahead, forecast), (real, truth)):
            np.testing.assert_array_equal(line.get_ydata(), drawn[:, i])
        for line in (real, ahead):
            np.testing.assert_array_equal(line.get_xdata(), times[20:].to_numpy())
        assert pd.Timestamp(border.get_xdata()[0]) == times[19]
        assert len(axis.collections) == (columns > 1)
        for filled in axis.collections:
            heights = filled.get_paths()[0].vertices[:, 1]
            ends = forecast[:, i].min() - 1, forecast[:, i].max() + 3
            assert (heights.min(), heights.max(), filled.get_label()) == (*ends, labels[i])


def test_error_by_step_shows_each_floor_step_by_step_mse_and_mae_apart():
    rising, more = np.array([0.5, 1.0, 1.5]), {"model": 0, "cycle mean": 0.2, "far": 100}
    curves = {name: (rising + own, rising / 2 + own) for name, own in more.items()}
    figure = display.step_figure(curves, "cycle mean", 123)
    draw(figure)
    for place, axis in enumerate(figure.axes):
        drawn = {line.get_label(): line for line in axis.lines}
        assert {*drawn} == {*curves}
        for name, line in drawn.items():
            assert list(line.get_xdata()) == [1, 2, 3]
            assert list(line.get_ydata()) == list(curves[name][place])
        assert drawn["cycle mean"].get_color() != drawn["far"].get_color()
        assert axis.get_yscale() == "log", "one that errs far more does not flatten the others"
        assert axis.get_ylabel() == f"{('MSE', 'MAE')[place]} (scaled, logarithmic)"
