import datetime

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets import (
    calendar,
    calendar_features,
    calendar_names,
    future_times,
    normalise_freq,
    phase_weights,
)

DATE = ("weekday", "day", "yearday")
NAIVE = {
    "second": lambda t: t.second / 59,
    "minute": lambda t: t.minute / 59,
    "hour": lambda t: t.hour / 23,
    "weekday": lambda t: t.weekday() / 6,
    "day": lambda t: (t.day - 1) / 30,
    "yearday": lambda t: (t.timetuple().tm_yday - 1) / 365,
    "week": lambda t: (t.isocalendar()[1] - 1) / 52,
    "month": lambda t: (t.month - 1) / 11,
}


@pytest.mark.parametrize(
    ("freq", "names"),
    [
        ("100ms", ("second", "minute", "hour", *DATE)),
        ("30s", ("second", "minute", "hour", *DATE)),
        ("15min", ("minute", "hour", *DATE)),
        ("h", ("hour", *DATE)),
        ("6h", ("hour", *DATE)),
        ("D", DATE),
        ("B", DATE),
        ("W", ("day", "week")),
        ("ME", ("month",)),
        ("QS", ("month",)),
        ("YE", ("month",)),
    ],
)
def test_features_by_their_definition(freq, names):
    assert calendar_names(freq) == names
    rng = np.random.default_rng(0)
    seconds = rng.integers(0, 40 * 365 * 86_400, 400)
    times = [datetime.datetime(1999, 12, 25) + datetime.timedelta(seconds=int(s)) for s in seconds]
    times += [datetime.datetime(2020, 12, 31, 23, 59, 59), datetime.datetime(2021, 1, 1)]
    features = calendar_features(pd.DatetimeIndex(times), freq)
    expected = [[NAIVE[name](time) - 0.5 for name in names] for time in times]
    assert features.dtype == np.float32
    assert (features == np.array(expected, dtype=np.float32)).all()


@pytest.mark.parametrize("freq", ["s", "min", "h", "D", "W", "ME"])
def test_features_fill_the_unit_interval_around_zero(freq):
    leap_year = pd.date_range("2020-01-01", "2020-12-31 23:59:59", freq="1111s")
    features = calendar_features(leap_year, freq)
    assert features.min() == -0.5
    assert features.max() == 0.5


@pytest.mark.parametrize(
    ("text", "freq"),
    [
        ("H", "h"),
        ("T", "min"),
        ("S", "s"),
        ("15T", "15min"),
        ("M", "ME"),
        ("Q", "QE-DEC"),
        ("Y", "YE-DEC"),
        ("A-JUN", "YE-JUN"),
        ("d", "D"),
        ("w", "W-SUN"),
        ("W-MON", "W-MON"),
        ("2W-TUE", "2W-TUE"),
        ("QS", "QS-JAN"),
        ("1h", "h"),
        ("60min", "h"),
        ("3600s", "h"),
        ("90min", "90min"),
        ("24h", "D"),
        ("48h", "2D"),
        ("1000ms", "s"),
        (" 30min ", "30min"),
    ],
)
def test_steps_have_one_spelling_that_pandas_reads_alike(text, freq):
    assert normalise_freq(text) == freq
    assert normalise_freq(freq) == freq
    assert pd.tseries.frequencies.to_offset(freq).freqstr == freq


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0h",
        "-1h",
        "1.5h",
        "x",
        "5",
        "hour",
        "15 min",
        "W-ABC",
        "h-MON",
        "9999999h",
        "1D2h",
        "m",
    ],
)
def test_unknown_steps_are_refused_with_good_ones(text):
    with pytest.raises(DataError, match=f"unknown time step '{text}'.*h, 15min, D, W-MON"):
        normalise_freq(text)


@pytest.mark.parametrize(
    ("last", "freq", "following"),
    [
        ("2018-06-26 19:00", "h", ["2018-06-26 20:00", "2018-06-26 21:00"]),
        ("2020-02-28 23:45", "15T", ["2020-02-29 00:00", "2020-02-29 00:15"]),
        ("2021-01-01", "B", ["2021-01-04", "2021-01-05"]),
        ("2021-01-04", "W-MON", ["2021-01-11", "2021-01-18"]),
        ("2020-01-31", "M", ["2020-02-29", "2020-03-31"]),
        ("2020-12-01", "MS", ["2021-01-01", "2021-02-01"]),
        ("2020-12-31", "Q", ["2021-03-31", "2021-06-30"]),
    ],
)
def test_the_future_begins_one_step_after_the_last_stamp(last, freq, following):
    times = future_times(pd.Timestamp(last), 2, freq)
    assert list(times) == [pd.Timestamp(time) for time in following]


@pytest.mark.parametrize(
    ("last", "freq"), [("9999-12-31 22:00", "h"), ("9999-11-30", "ME"), ("9000-01-01", "999999D")]
)
def test_the_future_ends_with_the_year_9999(last, freq):
    with pytest.raises(DataError, match="beyond the year 9999"):
        future_times(pd.Timestamp(last), 3, freq)


@pytest.mark.parametrize(
    ("freq", "season", "start"),
    [
        ("h", 24, "2021-03-01 00:00"),
        ("h", 168, "2021-03-01 00:00"),  # a Monday
        ("15min", 96, "2021-03-01 00:00"),
        ("15min", 672, "2021-03-01 00:00"),
        ("2h", 12, "2021-03-01 00:00"),
        ("2h", 12, "2021-03-01 01:00"),
        ("30s", 2880, "2021-03-01 00:00"),
        ("D", 7, "2021-03-01"),
        ("MS", 12, "2021-01-01"),
    ],
)
def test_the_phase_of_a_season_is_read_from_the_features(freq, season, start):
    times = pd.date_range(start, periods=3 * season, freq=freq)
    weights = np.asarray(phase_weights(freq, season), dtype=np.float32)
    steps = (calendar_features(times, freq) + np.float32(0.5)) @ weights
    phase = np.floor(steps + 1e-2).astype(int) % season
    assert phase.tolist() == list(range(season)) * 3


@pytest.mark.parametrize(("freq", "season"), [("h", 7), ("D", 365), ("W", 52), ("ME", 6), ("B", 5)])
def test_a_season_that_the_features_do_not_know_has_no_phase(freq, season):
    assert phase_weights(freq, season) == ()


def test_holidays_are_those_of_the_region() -> None:
    times = pd.date_range("2013-01-25", periods=8, freq="12h", unit="us")
    off = calendar.holiday_feature(times, "AU-VIC")
    # Australia Day fell on a Saturday, so Monday the 28th was off
    assert off[:, 0].tolist() == [-0.5] * 6 + [0.5] * 2
    assert calendar.holiday_feature(times[:0], "DE").shape == (0, 1)


@pytest.mark.parametrize(
    ("region", "told"), [("XX", "such as DE"), ("AU-XYZ", "the parts of AU are: .*VIC")]
)
def test_unknown_regions_are_told(region: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        calendar.check_region(region)
