"""The steps between a frame and a model, with numbers that are easy to follow. Real models are used
in test_predict.py, test_own_files.py and test_client.py."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError, UsageError
from forecaster.datasets.reading import Reading
from forecaster.forecast import history
from forecaster.forecast.answer import Answer
from forecaster.forecast.history import read
from forecaster.forecast.notices import Notice, NoticeCode
from forecaster.forecast.question import Form

PAST, HORIZON = 3, 2


def form(**reading):
    said = {"time": "when", "targets": ("y",), "freq": "D", "panel": False, "timezone": "naive"}
    return Form(Reading(**{**said, **reading}), ("y",), PAST, PAST, 1, HORIZON)


def panel(days, shops, **columns):
    """A row of each series a day."""
    stamps = {"shop": np.repeat(shops, len(days)), "when": np.tile(days, len(shops))}
    return pd.DataFrame(stamps | columns)


def last(histories, steps):
    """The last value of each history plus one at each step, and plus ten as a quantile."""
    ahead = histories.values[:, -1:, :, None] + np.arange(1.0, HORIZON + 1)[:, None, None]
    return ahead[..., 0], ahead + 10


def predict(frame, form, run=last, horizon=None):
    def answer(question):
        numbers = run(question, question.steps)
        return Answer.of(question, form, numbers, question.levels, ()).at((0.9,), question.steps)

    return read(form, frame, horizon, (0.9,)).answer(answer, print)


def test_many_series_are_forecast_some_at_a_time(monkeypatch):
    monkeypatch.setattr(history, "TOGETHER", 2)
    days, shops = pd.date_range("2026-01-01", periods=4), ["a", "b", "c"]
    frame = panel(days, shops, y=np.arange(12.0))
    seen = []

    def run(histories, steps):
        seen.append((list(histories.items), histories.values[..., 0].tolist(), steps))
        return last(histories, steps)

    ahead = predict(frame, form(id=("shop",)), run, horizon=1)
    assert seen == [(["a", "b"], [[1, 2, 3], [5, 6, 7]], 1), (["c"], [[9, 10, 11]], 1)]
    wanted = panel(pd.date_range("2026-01-05", periods=1), shops, y=[4, 8, 12])
    pd.testing.assert_frame_equal(
        ahead, wanted.assign(**{"y 0.9": [14, 18, 22]}), check_dtype=False
    )


def test_covariates_known_ahead_stand_after_the_history_of_each_series():
    days, shops = pd.date_range("2026-01-01", periods=6), ["a", "b", "c"]
    frame = panel(days, shops, y=1.0, promo=np.arange(18.0))
    ahead = frame["when"] > days[3]
    frame.loc[ahead, "y"] = np.nan
    seen = []

    def run(histories, steps):
        seen.append(histories.covariates[..., 0].tolist())
        return last(histories, steps)

    known = form(id=("shop",), future_covariates=("promo",))
    found = predict(frame, known, run)
    assert seen == [[[1, 2, 3, 4, 5], [7, 8, 9, 10, 11], [13, 14, 15, 16, 17]]]
    assert list(found["when"]) == [*days[4:]] * 3
    with pytest.raises(UsageError, match="this model needs promo for the 2 steps ahead"):
        predict(frame[~ahead], known, run)


def test_the_series_of_a_wide_panel_are_columns_again():
    days = pd.date_range("2026-01-01", periods=3)
    frame = pd.DataFrame({"b": [1.0, 2, 3], "a": [4.0, 5, 6]}, index=days)
    wide = form(targets=("b", "a"), panel=True)
    ahead = predict(frame, wide)
    assert list(ahead) == ["when", "a", "a 0.9", "b", "b 0.9"]
    assert ahead["a"].tolist() == [7, 8]
    frame.loc[days[-1], "a"] = np.nan
    frame.loc[days[0] - pd.Timedelta("1D")] = 1.0
    with pytest.raises(DataError, match="the columns end at different times"):
        predict(frame.sort_index(), wide)


def test_one_short_series_stops_no_other():
    days, said = pd.date_range("2026-01-01", periods=4), []
    parts = {"a": 4, "b": 2, "c": 1}
    rows = pd.concat(
        [pd.DataFrame({"shop": shop, "when": days[-n:], "y": 1.0}) for shop, n in parts.items()]
    )
    own = replace(form(id=("shop",)), least=2)
    asked = read(own, rows, levels=(0.9,), say=said.append)
    assert [q.rows for q in asked.questions()] == [[3, 2]]
    assert predict(rows, own)["shop"].tolist() == ["a", "a", "b", "b"]
    assert [each.code for each in said if isinstance(each, Notice)] == [NoticeCode.LEFT_OUT]
    assert "'c'" in said[-1]
    refuse = read(own, rows, short_history="refuse")
    with pytest.raises(DataError, match=r"series 'b' has 2 rows.*, or leave the series out"):
        list(refuse.questions())
    with pytest.raises(DataError, match=r"series 'c' has 1 rows, the model needs 2"):
        predict(rows[rows["shop"] == "c"], own)


def test_what_is_left_of_a_short_history_stands_at_its_end():
    """The rows before are missing, their times go on backwards, and known values are repeated."""
    times = pd.date_range("2026-01-01", periods=2 + HORIZON)
    table = pd.DataFrame({"when": times, "y": np.nan, "k": np.arange(2.0 + HORIZON)})
    table.loc[:1, "y"] = [5.0, 6.0]
    own = replace(form(future_covariates=("k",)), past=4, needs=3, least=2)
    ask = partial(read, own, table)
    with pytest.raises(DataError, match=r"has 2 rows, the model needs 3: .*; short_history="):
        list(ask().questions())
    (found,) = ask(short_history="drop").questions()
    assert found.rows == [2]
    np.testing.assert_array_equal(found.values[0, :, 0], [np.nan, np.nan, 5, 6])
    assert list(found.starts) == [pd.Timestamp("2025-12-30")]
    np.testing.assert_array_equal(found.covariates[0, :, 0], [0, 0, 0, 1, *range(2, 2 + HORIZON)])
    future = table.loc[2:, ["when", "k"]]
    apart = replace(own, needs=2)
    (same,) = read(apart, table.loc[:1], future=future).questions()
    np.testing.assert_array_equal(same.covariates, found.covariates)
