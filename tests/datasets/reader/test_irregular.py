"""Steps that are missing or repeated by a rule: summer time and closed hours."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets import reader
from forecaster.datasets.calendar import DAY
from forecaster.datasets.reading import Reading
from tests.test_estimator import made

Y = Reading(targets=("y",))
read_frame = partial(reader.read_frame, where="it")


def berlin(freq, days=400):
    """A table on the clock of Berlin, from January 2025 on, with its two changes."""
    steps = days * DAY // (pd.Timedelta(freq) // pd.Timedelta("1us"))
    times = pd.date_range("2025-01-01", periods=steps, freq=freq, tz="UTC")
    local = times.tz_convert("Europe/Berlin").tz_localize(None)
    values = np.arange(len(times)) % 48 + 1.0
    return pd.DataFrame({"time": local, "y": values, "heat": values / 2})


@pytest.mark.parametrize("freq", ["1h", "15min"])
def test_summer_time_is_no_irregularity(freq):
    table = berlin(freq)
    found = read_frame(table, replace(Y, future_covariates=("heat",)))
    hour = pd.Timedelta("1h") // pd.Timedelta(freq)
    (text,) = [text for text in found.said if "Summer time" in text]
    assert f"missing: {hour:,} steps" in text
    assert f"averaged: {hour:,}." in text
    series = found.series
    spring = series.times.get_indexer([pd.Timestamp("2025-03-30 02:00")])[0]
    assert np.isnan(series.values[spring]).all()
    assert series.known[spring] == series.known[spring - 1]
    autumn = pd.Timestamp("2025-10-26 02:00")
    place = series.times.get_indexer([autumn])[0]
    assert series.values[place, 0] == table.loc[table["time"] == autumn, "y"].mean()
    assert found.reading.policy == "error"


@pytest.mark.parametrize(
    "drop", ["2025-03-31 02:00", "2025-03-30 05:00", "2025-03-23 02:00", "2025-10-05 02:00"]
)
def test_another_gap_is_still_an_error(drop):
    table = berlin("1h")
    with pytest.raises(DataError, match="missing steps of h"):
        read_frame(table[table["time"] != drop], Y)
    with pytest.raises(DataError, match="repeated stamps"):
        read_frame(pd.concat([table, table.tail(3)]).sort_values("time"), Y)


def is_open(times):
    minutes = times.hour * 60 + times.minute
    return np.asarray((times.day_of_week < 6) & (minutes >= 480) & (minutes <= 1080))


def shop(days=60):
    """A shop that opens Monday to Saturday, 8:00 to 18:00, in steps of half an hour."""
    times = pd.date_range("2026-01-01", periods=days * 48, freq="30min")
    times = times[is_open(times)]
    return pd.DataFrame({"time": times, "y": np.arange(len(times)) % 21 + 1.0})


def test_open_hours_are_found_and_serve_shorter_files():
    found = read_frame(shop(), Y)
    (text,) = [text for text in found.said if "Open hours" in text]
    assert "Mon to Sat, 08:00 to 18:00" in text
    assert len(found.reading.closed) == 7
    values, times = found.series.values[:, 0], found.series.times
    assert np.array_equal(np.isnan(values), ~is_open(times))
    days = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=100), "y": np.arange(100.0)})
    found_days = read_frame(days[days["time"].dt.day_of_week < 6], Y)
    assert any("Mon to Sat; the other" in text for text in found_days.said)
    again = Reading.from_dict(found.reading.to_dict())
    short = read_frame(shop().tail(50), again)
    assert not [text for text in short.said if "Open hours" in text]
    with pytest.raises(DataError, match="missing steps of 30min: 1"):
        read_frame(shop().tail(50).drop(index=shop().index[-10]), again)


def test_a_forecast_leaves_closed_steps_out():
    model = made(target="y", horizon=96, lookback=96).fit(shop())
    said = []
    ahead = model.predict(say=said.append)
    assert is_open(pd.DatetimeIndex(ahead["time"])).all()
    assert f"{96 - len(ahead)} of 96 steps are closed: left out" in said
    past = model.historical_forecasts(horizon=48, stride=48)
    assert past["y actual"].notna().all()
    assert model.plot()


def test_a_gap_in_open_hours_is_an_error():
    for table, words in ((shop().drop(index=100), ": 1 "), (shop(20), "")):
        with pytest.raises(DataError, match=f"missing steps of 30min{words}"):
            read_frame(table, Y)


@pytest.mark.parametrize("freq", ["MS", "B", "2W-MON", "14D"])
def test_a_gap_in_steps_of_the_calendar_is_an_error(freq):
    times = pd.date_range("2010-01-04", periods=80, freq=freq).delete(40)
    with pytest.raises(DataError, match=r"missing steps of .*: 1 "):
        read_frame(pd.DataFrame({"time": times, "y": np.arange(79.0)}), Y)
