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


def test_the_forecast_picture_shows_the_band():
    zeros, times = np.zeros((10, 2)), pd.date_range("2020-01-01", periods=15, freq="h")
    band = np.stack([zeros - (1, 2), zeros + np.array([3, 4])], axis=-1)
    test = judged(intervals={"80": {"columns": {"a": {"coverage": 0.756}}}, "95": None})
    labels = [display.band_label("80", test.covered("80", name)) for name in ("a", "b")]
    assert labels == ["80 % (covered 76 %)", "80 %"]
    assert test.covered("95", "a") is judged().covered("80", "a") is None
    paths = {"forecast": zeros, "truth": zeros}
    figure = display.forecast_figure(times, zeros[:5], paths, ("a", "b"), "x", band, labels)
    draw(figure)
    for axis, ends, label in zip(figure.axes, ((-1, 3), (-2, 4)), labels, strict=True):
        (filled,) = axis.collections
        heights = filled.get_paths()[0].vertices[:, 1]
        assert (heights.min(), heights.max(), filled.get_label()) == (*ends, label)


@pytest.mark.parametrize(("columns", "shown"), [(1, 1), (7, 4)])
def test_a_forecast_follows_its_history(columns, shown):
    random = np.random.default_rng(0)
    history, forecast, truth = (random.normal(size=(n, columns)) for n in (20, 10, 10))
    times = pd.date_range("2020-01-01", periods=30, freq="h")
    names = tuple(f"c{i}" for i in range(columns))
    paths = {"forecast": forecast, "truth": truth}
    figure = display.forecast_figure(times, history, paths, names, "ETTh1")
    draw(figure)
    assert [axis.get_ylabel() for axis in figure.axes] == list(names[:shown])
    for i, axis in enumerate(figure.axes):
        past, ahead, real, border = axis.lines
        for line, drawn in ((past, history), (ahead, forecast), (real, truth)):
            np.testing.assert_array_equal(line.get_ydata(), drawn[:, i])
        for line in (real, ahead):
            np.testing.assert_array_equal(line.get_xdata(), times[20:].to_numpy())
        assert pd.Timestamp(border.get_xdata()[0]) == times[19]


def test_error_by_step_shows_each_floor_step_by_step_mse_and_mae_apart():
    rising = np.array([0.5, 1.0, 1.5])
    curves = {
        name: (rising + more, rising / 2 + more)
        for name, more in {"model": 0, "network": 0.1, "cycle mean": 0.2, "far": 100}.items()
    }
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
    wanted = [f"{kind} (scaled, logarithmic)" for kind in ("MSE", "MAE")]
    assert [axis.get_ylabel() for axis in figure.axes] == wanted
