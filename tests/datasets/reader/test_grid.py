import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader.grid import TimeGrid, find_step


def stamps(*texts):
    return pd.DatetimeIndex(texts).as_unit("us").asi8


def step_of(times, codes=None):
    codes = np.zeros(len(times), int) if codes is None else np.asarray(codes)
    return find_step(stamps(*times), codes, "here")[0]


@pytest.mark.parametrize(
    "freq",
    ["us", "250ms", "s", "10min", "h", "D", "3D", "B", "W-MON", "4W-FRI", "MS", "ME", "5MS",
     "QS-JAN", "QS-MAR", "QE-DEC", "QE-OCT", "2QS-FEB", "YS-JAN", "YE-JUN", "2YS-MAY"],
)  # fmt: skip
def test_every_step_is_told_by_its_stamps(freq):
    times = pd.date_range("2019-03-05 12:34:56", periods=30, freq=freq)
    assert step_of(times) == freq
    shuffled = times[np.random.default_rng(0).permutation(30)]
    assert step_of(shuffled) == freq
    gaps = times.delete([4, 11, 12, 25])
    assert step_of(gaps) == freq


def test_the_step_is_that_within_a_series_not_between_them():
    hourly = pd.date_range("2020", periods=20, freq="h")
    shifted = hourly + pd.Timedelta("30min")
    assert step_of([*hourly, *shifted], [0] * 20 + [1] * 20) == "h"
    four_weeks = pd.date_range("2021-01-31", periods=9, freq="28D")
    assert step_of(four_weeks) == "4W-SUN", "they are no month"


def test_where_no_step_shows():
    odd = ["2020-01-01", "2020-01-02 00:05", "2020-01-03", "2020-01-19"]
    for times, message in ((odd[:1] * 2, "no series has two stamps"), (odd, "of 3 .* --freq")):
        with pytest.raises(DataError, match=message):
            step_of(times)


def grid(times, freq=None):
    asi8 = stamps(*times)
    step = find_step(asi8, np.zeros(len(asi8), int), "here", freq)
    return TimeGrid(*step, int(asi8.min()), int(asi8.max()), asi8, len(asi8), "here")


def test_a_stamp_between_steps_belongs_to_the_one_it_falls_in():
    hours = grid(pd.date_range("2020", periods=5, freq="h"))
    places, missed = hours.place(stamps("2020-01-01 01:59", "2020-01-01 02:01", "2020-01-01 02:50"))
    assert places.tolist() == [2, 2, 2]
    assert (missed / 60e6).tolist() == [-1, 1, 50]
    for freq in ("MS", "ME"):
        months = grid(pd.date_range("2020", periods=5, freq=freq))
        assert months.place(stamps("2020-01-31", "2020-02-01"))[0].tolist() == [0, 1]


def test_a_grid_of_jittered_stamps_begins_at_the_usual_place():
    jitter = pd.to_timedelta(np.random.default_rng(1).integers(-200, 200, 50), "s")
    times = pd.date_range("2020-01-01 00:20", periods=50, freq="h")
    assert abs(grid(times + jitter, "h").times - times).max() < pd.Timedelta("1min")
    on_the_hour = pd.date_range("2020-01-01", periods=50, freq="h")
    assert grid(on_the_hour + jitter, "h").times.equals(on_the_hour.as_unit("us"))


def test_a_grid_of_far_more_steps_than_rows_is_refused():
    with pytest.raises(DataError, match=r"steps of s lie between .* for 3 rows"):
        grid(["2020-01-01 00:00:00", "2020-01-01 00:00:01", "2090-01-01"], "s")
