import numpy as np
import pandas as pd

from forecaster.record import live

DAYS = pd.date_range("2026-03-01", periods=40, freq="D")


def forecasts(**changes):
    """A forecast of each of 40 days, made at the day before, one too high."""
    return pd.DataFrame({
        "model": "sha256:a", "series": "s", "target": "y", "made": DAYS, "origin": DAYS[0],
        "step": np.arange(1, 41), "time": DAYS, "forecast": 11.0, "naive": 14.0, "scale": 2.0,
        "known": DAYS[0] - pd.Timedelta("1D"), "last": 7.0,
        "q0.1": 9.5, "q0.9": 12.5,
    } | changes)  # fmt: skip


def actuals(value=10.0, seen="2026-06-01"):
    return pd.DataFrame({
        "series": "s", "target": "y", "time": DAYS, "value": value, "seen": pd.Timestamp(seen),
    })  # fmt: skip


def test_what_is_found_is_in_units_scaled_and_against_the_naive_forecast():
    rows, waiting, _ = live.match(forecasts(), actuals()[:-3])
    assert waiting == 3
    found = live.summary(rows).set_index("period")
    assert found["steps"].to_dict() == {"day": 1, "week": 7, "month": 30, "all": 37}
    figures = {"mae": 1, "scaled": 0.5, "bias": 1, "against_naive": 0.25, "80 %": 1}
    assert (found[[*figures]] == [*figures.values()]).all(axis=None)
    by_step = live.summary(rows, "step")
    assert by_step[by_step["period"] == "week"]["step"].tolist() == [*range(31, 38)]


def test_each_step_counts_once_as_it_was_made_first_with_the_value_seen_last():
    again = forecasts(forecast=50.0, made=DAYS + pd.Timedelta(hours=1))
    later = actuals(12.0, "2026-07-01")
    both = pd.concat([again, forecasts()]), pd.concat([later, actuals(), actuals()])
    rows, waiting, _ = live.match(*both)
    assert (len(rows), waiting) == (40, 0)
    assert set(rows["error"]) == {-1.0}
    assert set(live.match(*both, first=True)[0]["error"]) == {1.0}


def test_what_was_made_from_other_values_than_came_does_not_count():
    at = pd.DataFrame({"series": "s", "target": "y", "time": [DAYS[0] - pd.Timedelta("1D")] * 2,
                       "value": [6.0, 7.0], "seen": pd.Timestamp("2026-06-01")})  # fmt: skip
    came = pd.concat([actuals(), at])
    stranger = forecasts(last=500.0, forecast=90.0, made=DAYS - pd.Timedelta("2D"))
    rows, waiting, strange = live.match(pd.concat([stranger, forecasts()]), came)
    assert (len(rows), waiting, strange) == (40, 0, 40)
    assert set(rows["forecast"]) == {11.0}
    _, _, strange = live.match(forecasts(last=6.0), came)
    assert strange == 0, "a value that was corrected later was seen, too"


def test_other_models_and_origins_are_other_forecasts_but_not_what_a_clock_repeats():
    jumped = forecasts(made=DAYS - pd.Timedelta(days=3000))
    several = [forecasts(), jumped, forecasts(model="sha256:b"), forecasts(origin=DAYS[3])]
    assert len(live.match(pd.concat(several), actuals())[0]) == 120


def test_where_nothing_tells_there_is_no_number():
    rows, *_ = live.match(forecasts(naive=np.nan, **{"q0.1": np.nan}), actuals())
    found = live.summary(rows)
    assert found[["against_naive", "80 %"]].isna().all(axis=None)
    assert live.plain(found)[0]["80 %"] is None
    rows, waiting, _ = live.match(pd.DataFrame(), actuals())
    assert (live.summary(rows).empty, waiting) == (True, 0)
    assert live.match(forecasts(), pd.DataFrame())[1] == 40


def test_the_picture_has_error_and_coverage_by_day():
    rows, *_ = live.match(forecasts(), actuals())
    for expected, lines in ((None, 1), (0.4, 2)):
        above, below = live.figure(rows, expected).axes
        assert set(above.lines[0].get_ydata()) == {0.5}
        assert len(above.lines) == lines
        assert set(below.lines[0].get_ydata()) == {100.0}
