import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri, stdtrit
from scipy.stats import norm

from forecaster.base.errors import DataError, UsageError
from forecaster.datasets.reading import Reading
from forecaster.forecast import totals as module
from forecaster.forecast.answer import Answer
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.question import Form
from forecaster.forecast.totals import Totals, check_asked, labels, of
from tests.bundles import whole_errors

NO_LIMIT = np.array([[-np.inf, np.inf]])
READING = Reading(time="time", id=("shop",), targets=("y",), freq="D", timezone="naive")


def answer(start="2026-12-02", steps=14, items=("a", "b", "c"), freq="D", **reading):
    """Forecasts 1, 2, ... of some series, each with a spread of its own."""
    form = Form(replace(READING, freq=freq, **reading), ("y",), 30, 30, 30, steps)
    ahead = np.arange(1.0, steps + 1)[None, :, None] * np.arange(1, len(items) + 1)[:, None, None]
    spread = np.full_like(ahead, 0.5) * np.arange(1, len(items) + 1)[:, None, None]
    starts = [pd.Timestamp(start)] * len(items)
    return Answer(form, starts, items, ahead, np.empty((*ahead.shape, 0)), spread=spread)


def errors_of(steps=14, series=3, windows=39, apart=5.0):
    errors = whole_errors(series, steps, 1, windows)
    return Intervals((0.1, 0.9), np.ones((steps, 1, 2)), np.ones((steps, 1)), 99, errors=errors,
                     apart=apart)  # fmt: skip


def totals(
    asked, period, groups=None, levels=(0.1, 0.5, 0.9), limits=NO_LIMIT, own=None, rows=None
):
    own = errors_of(asked.forecasts.shape[1], len(asked.items)) if own is None else own
    rows = np.arange(len(asked.items)) if rows is None else rows
    return of(asked, own, rows, limits, period, groups, levels)


@pytest.mark.parametrize(
    ("start", "steps", "freq", "period", "begins", "lengths", "cut"),
    [
        ("2026-12-02", 14, "D", "week", ["12-07"], [7], ["week 11-30", "week 12-14"]),
        ("2026-11-30", 14, "D", "week", ["11-30", "12-07"], [7, 7], []),
        ("2026-11-30", 33, "D", "month", ["12-01"], [31], ["month 11-01", "month 01-01"]),
        ("2026-12-02 22:00", 50, "h", "day", ["12-03", "12-04"], [24, 24], ["day 12-02"]),
        ("2026-12-03", 9, "B", "week", ["12-07"], [5], ["week 11-30", "week 12-14"]),
        ("2026-12-02", 14, "D", "horizon", ["12-02"], [14], []),
        ("2026-12-02", 2, "MS", None, ["12-02", "01-02"], [1, 1], []),
    ],
)  # fmt: skip
def test_whole_periods_have_totals_and_others_are_named(
    start, steps, freq, period, begins, lengths, cut
):
    start = "2026-12-01" if freq == "MS" else start
    found = totals(answer(start, steps, ("a",), freq), period)
    stamps = [stamp.strftime("%m-%d") for stamp in found.starts]
    assert stamps == [begin.replace("-02", "-01") if freq == "MS" else begin for begin in begins]
    assert found.steps == lengths
    assert [re.sub(r"the (\w+) of \d+-", r"\1 ", name) for name in found.cut] == cut
    first = (found.starts[0] - pd.Timestamp(start)) // pd.Timedelta(
        "1h" if freq == "h" else "1D"
    ) if freq in "hD" else None  # fmt: skip
    if first is not None:
        assert found.sums[0, 0] == np.arange(first + 1, first + lengths[0] + 1).sum()


def test_the_band_of_a_total_comes_from_sums_of_errors():
    """An order statistic of the sizes of the 39 sums, widened to Student's t: by hand."""
    asked, own = answer(), errors_of()
    for groups, members in ((None, [0]), (["x", "x", "y"], [0, 1]), (["all"] * 3, [0, 1, 2])):
        found = totals(asked, "horizon", groups, own=own)
        assert found.names == {None: ["a", "b", "c"]}.get(
            groups and 1, [*dict.fromkeys(groups or [])]
        )
        sums = (own.errors.astype(float) * asked.spread)[:, members].sum(axis=(1, 2, 3))
        size = np.sort(np.abs(sums))[31]  # number 32 = 0.8 * 40
        half = size * stdtrit(5.0, 0.9) / ndtri(0.9)
        total = asked.forecasts[members].sum()
        assert found.sums[0, 0] == total
        np.testing.assert_allclose(found.quantiles[0, 0], [total - half, total, total + half], 1e-3)


def test_student_s_t_is_near():
    """To 1 % from 2 degrees of freedom on, at the levels that are calibrated."""
    freedom = np.array([2.0, 3.5, 10, 1000])
    for level in (0.025, 0.1, 0.75, 0.9, 0.975):
        wanted = stdtrit(freedom, level) / ndtri(level)
        np.testing.assert_allclose(module._widening(level, freedom), wanted, rtol=0.012)


def test_bands_of_totals_hold_what_they_should():
    """Of 2,000 draws of the same kind, between 76 and 84 %: neither added up nor independent."""
    asked, own = answer(items=("a",)), errors_of(series=1, windows=999, apart=1000.0)
    found = totals(asked, "horizon", own=own)
    came = whole_errors(1, 14, 1, 2000, seed=1).astype(float) * asked.spread
    low, _, high = found.quantiles[0, 0] - found.sums[0, 0]
    sums = came.sum(axis=(1, 2, 3))
    assert 0.76 < ((low < sums) & (sums < high)).mean() < 0.84
    added = norm.ppf(0.9) * came.std(axis=0).sum()
    assert 1.2 * high < added


def test_closed_steps_and_limits_count():
    shut = answer("2026-11-30", 14, ("a",), holidays="DE", closed=())
    whole = totals(shut, "week", limits=np.array([[0.0, np.inf]]), levels=(0.1, 0.9))
    assert (whole.quantiles >= 0).all()
    wide = replace(shut, spread=shut.spread * 100)
    assert totals(wide, "week", limits=np.array([[0.0, np.inf]])).quantiles.min() == 0
    assert totals(wide, "week").quantiles.min() < 0
    closed = totals(answer("2026-11-30", 14, ("a",), closed=((5, 7),)), "week")
    assert closed.steps == [5, 5]
    assert closed.sums[:, 0].tolist() == [15, 50]


def test_series_alone_and_together_have_the_same_totals():
    asked = answer()
    every, own = totals(asked, "week"), errors_of()
    alone = totals(asked[1:2], "week", own=own, rows=np.array([1]))
    place = every.names.index("b")
    assert np.array_equal(every.quantiles[place : place + 1], alone.quantiles)


def test_series_of_one_name_are_apart_and_pieces_are_summed(monkeypatch):
    every = totals(answer(), "week")
    same = totals(answer(items=(None,) * 3), "week")
    assert same.names == [None] * 3
    assert np.array_equal(same.quantiles, every.quantiles)
    whole = totals(answer(), "week", ["x", "y", "x"])
    monkeypatch.setattr(module, "CELLS", 1)
    np.testing.assert_allclose(totals(answer(), "week", ["x", "y", "x"]).quantiles, whole.quantiles)


def test_tables_and_json():
    asked = answer()
    found = totals(asked, "week", levels=(0.1, 0.9))
    assert found.to_json("+00:00")[0]["start"] == "2026-12-07T00:00:00+00:00"
    again = Totals.from_json(found.to_json())
    assert (again.names, again.starts, again.steps) == (found.names, found.starts, found.steps)
    assert np.array_equal(again.quantiles, found.quantiles)
    table = found.to_frame(asked.form, None)
    assert [*table] == ["shop", "time", "y", "y 0.1", "y 0.9"]
    grouped = totals(asked, None, ["n", "n", "s"], levels=()).to_frame(asked.form, "region")
    assert [*grouped] == ["region", "time", "y"]
    assert len(grouped) == 2 * 14
    assert grouped["y"][0] == asked.forecasts[:2, 0].sum()
    wide = answer("2026-11-30", id=(), panel=True)
    columns = totals(wide, "week", levels=(0.9,)).to_frame(wide.form, None)
    assert [*columns] == ["time", "a", "a 0.9", "b", "b 0.9", "c", "c 0.9"]
    assert len(columns) == 2
    assert [*totals(wide, "week", ["all"] * 3, ()).to_frame(wide.form, "all")] == ["time", "all"]


def test_groups_have_names():
    names, static = ["n / 1", "n / 2", "s / 1"], {"size": [1.0, 2.5, 1.0]}
    reading = replace(READING, id=("region", "shop"))
    assert labels("all", names, static, reading) == ["all"] * 3
    assert labels("size", names, static, reading) == ["1", "2.5", "1"]
    assert labels("region", names, static, reading) == ["n", "n", "s"]
    with pytest.raises(
        UsageError, match=r"expected 'all', 'size', 'region', 'shop'.* mean 'region'"
    ):
        labels("regoin", names, static, reading)
    with pytest.raises(UsageError, match="one series"):
        labels("all", [None], {}, replace(READING, id=()))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"period": "month"}, DataError, "no whole month lies in the 14 steps"),
        ({"levels": (0.001, 0.9)}, UsageError, r"39 windows of errors.* from 0\.0125"),
        ({"asked": answer("2026-12-06", freq="W-SUN"), "period": "month"}, UsageError, "horizon"),
        ({"asked": answer(freq="5h"), "period": "day"}, UsageError, "no whole number of steps"),
        ({"asked": replace(answer(), starts=[*pd.date_range("2026-12-02", periods=3)]),
          "groups": ["all"] * 3}, DataError, "must end at the same time"),
    ],
)  # fmt: skip
def test_what_has_no_total_is_refused(change, error, words):
    asked = {"asked": answer(), "period": "week", **change}
    with pytest.raises(error, match=words):
        totals(**asked)


@pytest.mark.parametrize(
    "asked",
    [(0, None, (), ()), (True, None, (), ()), (5, "week", (), ()), (5, None, (), (0.1,)),
     (5, None, "all", ()), (None, "year", None, ())],
)  # fmt: skip
def test_what_cannot_be_asked_together_is_refused(asked):
    with pytest.raises(UsageError, match=r"samples|total"):
        check_asked(*asked)
