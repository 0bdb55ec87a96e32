import json

import numpy as np
import pandas as pd
import pytest

from forecaster.datasets.card import Borders
from forecaster.datasets.check import advice, figure, report, text
from forecaster.datasets.oddities import Oddity, find_oddities
from forecaster.datasets.reader import read
from forecaster.datasets.reading import Reading

TIMES = pd.date_range("2020-01-01", periods=200, freq="h")
BORDERS = Borders(140, 160, 200)
EACH = tuple((140 - i, 160 - i, 200) for i in range(8))


def wide(folder, policy="error"):
    table = pd.DataFrame({"when": TIMES, "a": np.arange(200.0), "b": 5, "c": np.arange(200) % 24})
    table.loc[7, "a"] = np.nan
    if policy != "error":
        table = table.drop(index=[20, 21])
    table.to_csv(folder / "sales.csv", index=False)
    roles = Reading(
        targets=("a",), past_covariates=("b",), future_covariates=("c",) * (policy == "error"),
        policy=policy,
    )  # fmt: skip
    return read(str(folder / "sales.csv"), roles)


def panel(folder, series=8):
    parts = [
        pd.DataFrame({"unique_id": f"s{i}", "ds": TIMES[i:], "y": np.arange(200.0 - i), "shop": i})
        for i in range(series)
    ]
    pd.concat(parts).to_parquet(folder / "panel.parquet")
    return read(str(folder / "panel.parquet"), Reading(static=("shop",)))


def test_a_wide_file(tmp_path):
    found = report(wide(tmp_path), horizon=10, past=20, borders=BORDERS)
    assert json.loads(json.dumps(found)) == found
    assert found["columns"] == {
        "when": {"role": "time"},
        "a": {"role": "target", "missing": 1, "constant": False},
        "b": {"role": "past covariate", "missing": 0, "constant": True},
        "c": {"role": "future covariate"},
    }
    assert found["time"] == {
        "column": "when", "timezone": "naive", "freq": "h", "steps": 200,
        "first": "2020-01-01 00:00:00", "last": "2020-01-09 07:00:00",
    }  # fmt: skip
    assert found["series"] == {"count": 1, "shortest": 200, "longest": 200}
    windows = [found["parts"][part]["windows"] for part in ("train", "validation", "test")]
    assert windows == [140 - 20 - 10 + 1, 11, 31]
    assert found["parts"]["train"]["last"] == str(TIMES[139])
    for part in ("200 steps of h", "a: target, 1 values missing", "b: past covariate, constant",
                 "irregular   nothing", "validation  to", "20 steps back, 10 ahead"):  # fmt: skip
        assert part in text(found)
    words = text(report(wide(tmp_path, "sort"), horizon=10, past=20, borders=BORDERS))
    assert "irregular   gaps 2" in words
    assert "a: target, 3 values missing" in words


def test_columns_of_words_and_what_stands_out(tmp_path):
    draw = np.random.default_rng(0).normal(50, 1, 200)
    table = pd.DataFrame({"when": TIMES, "a": draw, "sky": ["clear", "rain"] * 100})
    table.loc[[5, 50], "a"], table.loc[[3, 5], "sky"] = -9999, None
    table.to_csv(tmp_path / "odd.csv", index=False)
    own = read(str(tmp_path / "odd.csv"), Reading(targets=("a",), past_covariates=("sky",)))
    (oddity,) = find_oddities(own.series, BORDERS)
    found = report(own, 10, 20, BORDERS, (oddity,))
    assert json.loads(json.dumps(found))["oddities"] == [
        {"kind": "sentinel", "column": "a", "count": 2, "where": "2020-01-01 05:00:00",
         "text": oddity.text}
    ]  # fmt: skip
    assert f"look here   {oddity.text}" in text(found)
    assert "sky: past covariate, 2 values missing, one of clear, rain" in text(found)


def test_a_panel(tmp_path):
    own = panel(tmp_path)
    found = report(own, 10, 20, BORDERS)
    assert found["series"] == {"count": 8, "shortest": 193, "longest": 200}
    assert found["parts"]["train"]["windows"] == sum(140 - i - 29 for i in range(8))
    assert found["columns"]["shop"] == {"role": "static"}
    assert "series      8, of 193 to 200 rows" in text(found)
    assert advice(found) == ""
    found = report(own, 30, 20, BORDERS)
    assert [each["windows"] for each in found["parts"].values()][1:] == [0, 8 * 11]
    assert "no window of 20 + 30 steps fits into validation; use a" in advice(found)
    assert "--lookback, --split series, or" in advice(found)
    found = report(own, 10, 20, Borders(140, 160, 200, EACH))
    assert found["split"] == "series"
    assert found["parts"]["test"] == {"last": None, "windows": 8 * 31 + 28, "series": 8}
    assert "validation  by length: 88 windows of 8 series" in text(found)


@pytest.mark.parametrize("each", [(), EACH])
def test_the_picture_shows_the_borders_and_a_sample(tmp_path, each):
    picture = figure(panel(tmp_path), Borders(140, 160, 200, each))
    assert "6 series, and 2 more" in picture.get_suptitle()
    items = [int(axis.get_title("left")[1:]) for axis in picture.axes]
    assert items == [0, 1, 2, 4, 5, 7]
    for item, axis in zip(items, picture.axes, strict=True):
        values, *borders = axis.lines
        assert values.get_ydata().tolist() == list(range(200 - item))
        ends = pd.to_datetime([line.get_xdata()[0] for line in borders])
        assert list(ends) == [TIMES[end - item * bool(each)] for end in (140, 160)]
    picture.savefig(tmp_path / "picture.png")


def test_a_file_of_many_columns_is_told_on_one_screen(tmp_path):
    values = {f"s{i}": [1.0 + step % 3 for step in range(200)] for i in range(99)}
    pd.DataFrame({"when": TIMES} | values).to_csv(tmp_path / "many.csv", index=False)
    found = read(str(tmp_path / "many.csv"))
    odd = [Oddity("shift", f"s{i}", 9, "2020-01-07", f"Column 's{i}' shifts") for i in range(50)]
    lines = text(report(found, 10, 20, BORDERS, odd)).splitlines()
    assert len(lines) < 60
    assert "columns     80 more: target" in lines
    assert "look here   and 30 more such (--json lists all)" in lines
