import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.base.errors import DataError
from forecaster.datasets import calendar
from forecaster.datasets.calendar import (
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
        ("15min", ("minute", "hour", *DATE)),
        ("h", ("hour", *DATE)),
        ("D", DATE),
        ("W", ("day", "week")),
        ("ME", ("month",)),
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


STEPS = (
    "H:h T:min S:s 15T:15min M:ME Q:QE-DEC A-JUN:YE-JUN d:D w:W-SUN W-MON:W-MON 2W-TUE:2W-TUE "
    "QS:QS-JAN 1h:h 60min:h 3600s:h 90min:90min 24h:D 48h:2D 1000ms:s"
)
UNKNOWN = "|0h|-1h|1.5h|x|5|hour|15 min|W-ABC|h-MON|9999999h|1D2h|m"


def test_steps_have_one_spelling_that_pandas_reads_alike():
    for text, freq in (pair.split(":") for pair in STEPS.split()):
        assert normalise_freq(f" {text} ") == normalise_freq(freq) == freq
        assert pd.tseries.frequencies.to_offset(freq).freqstr == freq
    for text in UNKNOWN.split("|"):
        with pytest.raises(DataError, match=f"unknown time step '{text}'"):
            normalise_freq(text)


@settings(deadline=None)
@given(
    st.integers(1, 40),
    st.sampled_from(["s", "min", "h", "D", "B", "W-MON", "MS", "ME", "QS-FEB", "QE", "YS", "YE"]),
    st.integers(0, 4000),
    st.integers(0, 6),
)
def test_the_future_begins_one_step_after_the_last_stamp(count, unit, day, periods):
    freq = f"{count}{unit}"
    grid = pd.date_range(pd.Timestamp("2001-01-01") + pd.Timedelta(day, "D"), periods=7, freq=freq)
    times = future_times(grid[6 - periods], periods, freq)
    assert list(times) == list(grid[7 - periods :])


def test_the_future_ends_with_the_year_9999():
    for last, freq in (("9999-12-31 22:00", "h"), ("9999-11-30", "ME"), ("9000-01-01", "999999D")):
        with pytest.raises(DataError, match="beyond the year 9999"):
            future_times(pd.Timestamp(last), 3, freq)


def test_the_phase_of_a_season_is_read_from_the_features_that_know_it():
    for freq, season, start in (
        ("h", 24, "2021-03-01 00:00"),
        ("h", 168, "2021-03-01 00:00"),  # a Monday
        ("2h", 12, "2021-03-01 01:00"),
        ("30s", 2880, "2021-03-01 00:00"),
        ("D", 7, "2021-03-01"),
        ("MS", 12, "2021-01-01"),
    ):
        times = pd.date_range(start, periods=3 * season, freq=freq)
        weights = np.asarray(phase_weights(freq, season), dtype=np.float32)
        steps = (calendar_features(times, freq) + np.float32(0.5)) @ weights
        phase = np.floor(steps + 1e-2).astype(int) % season
        assert phase.tolist() == list(range(season)) * 3, (freq, season)
    for freq, season in (("h", 7), ("D", 365), ("W", 52), ("ME", 6), ("B", 5)):
        assert phase_weights(freq, season) == (), (freq, season)


def test_unknown_regions_are_told():
    for region, told in (("XX", "'XX'"), ("AU-XYZ", "'AU-XYZ'.*VIC")):
        with pytest.raises(DataError, match=told):
            calendar.check_region(region)
