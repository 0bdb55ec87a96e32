import io
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.evaluate import report


def metrics(columns: int = 3) -> dict[str, Any]:
    floor = {"mse": 1.5, "mae": 1.25, "skill": 0.3333, "chosen": "k = 2 cycles"}
    return {
        "windows": 123,
        "mse": 1.0,
        "mae": 0.5,
        "by_step": {"mse": [0.5, 1.0, 1.5], "mae": [0.25, 0.5, 0.75]},
        "columns": {f"c{i}": {"mse": float(i), "mae": i / 2} for i in range(columns)},
        "floors": {"cycle mean": floor, "perfect": {**floor, "mse": 0.0, "skill": None}},
        "best_floor": "cycle mean",
    }


def draw(figure: Any) -> None:
    """Layout problems only show when a figure is drawn."""
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    assert figure.canvas.manager is None  # not pyplot's, which would keep it in memory


def test_the_table_has_the_model_first() -> None:
    assert report.table(metrics()) == [
        ("model", "1.0000", "0.5000", "", ""),
        ("cycle mean", "1.5000", "1.2500", "+33.3%", "k = 2 cycles"),
        ("perfect", "0.0000", "1.2500", "", "k = 2 cycles"),
    ]


@pytest.mark.parametrize(("columns", "shown"), [(1, 1), (4, 4), (7, 4)])
def test_a_forecast_joins_its_history(columns: int, shown: int) -> None:
    random = np.random.default_rng(0)
    history, truth, forecast = (random.normal(size=(n, columns)) for n in (20, 10, 10))
    times = pd.date_range("2020-01-01", periods=30, freq="h")
    names = tuple(f"c{i}" for i in range(columns))
    figure = report.forecast_figure(times, history, truth, forecast, names, "ETTh1")
    draw(figure)
    assert [axis.get_ylabel() for axis in figure.axes] == list(names[:shown])
    title = figure.axes[0].get_title(loc="left")
    assert title == ("ETTh1 (first 4 of 7 columns)" if columns > 4 else "ETTh1")
    for i, axis in enumerate(figure.axes):
        past, real, ahead, border = axis.lines
        np.testing.assert_array_equal(past.get_ydata(), [*history[:, i], truth[0, i]])
        np.testing.assert_array_equal(real.get_ydata(), truth[:, i])
        np.testing.assert_array_equal(ahead.get_ydata(), forecast[:, i])
        for line in (real, ahead):
            np.testing.assert_array_equal(line.get_xdata(), times[20:].to_numpy())
        assert pd.Timestamp(border.get_xdata()[0]) == times[20]


def test_error_by_step_shows_the_best_floor() -> None:
    figure = report.step_figure(metrics())
    draw(figure)
    (axis,) = figure.axes
    mse, mae, floor = axis.lines
    assert list(mse.get_xdata()) == [1, 2, 3]
    assert (list(mse.get_ydata()), list(mae.get_ydata())) == ([0.5, 1.0, 1.5], [0.25, 0.5, 0.75])
    assert set(floor.get_ydata()) == {1.5}
    assert "cycle mean" in floor.get_label()
    assert "123 test windows" in axis.get_title(loc="left")


@pytest.mark.parametrize(("columns", "title"), [(3, "Error by column"), (862, "worst 40 of 862")])
def test_error_by_column_starts_with_the_worst(columns: int, title: str) -> None:
    figure = report.column_figure(metrics(columns))
    draw(figure)
    (axis,) = figure.axes
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels[0] == f"c{columns - 1}"
    assert len(labels) == min(columns, 40)
    assert len(axis.patches) == 2 * len(labels)
    assert axis.get_title(loc="left").endswith(title)
