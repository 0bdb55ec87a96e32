import re

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader import history, read
from forecaster.datasets.reading import Reading

HOURS = pd.date_range("2019-12-25", periods=400, freq="h")
HALVES = pd.date_range("2019-12-25", periods=400, freq="30min")
DAY = HALVES.strftime("%d/%m/%Y")


def put(folder, name="x.csv", **columns):
    table = pd.DataFrame(columns)
    table["v"] = np.arange(len(table)) % 7 + 0.5
    table.to_csv(folder / name, index=False)
    return str(folder / name)


FORMS = {
    "hour from 0": (HOURS, {"Hour": HOURS.hour}),
    "hour from 1": (HOURS, {"Hour": (HOURS - pd.Timedelta("1h")).hour + 1}),
    "clock": (HALVES, {"Time": HALVES.strftime("%H:%M")}),
    "clock with seconds": (HALVES, {"Time": HALVES.strftime("%H:%M:%S")}),
    "half a day": (HALVES, {"Time": HALVES.strftime("%I:%M %p")}),
    "half-hours from 1": (HALVES, {"Period": HALVES.hour * 2 + HALVES.minute // 30 + 1}),
    "half-hours from 0": (HALVES, {"n": HALVES.hour * 2 + HALVES.minute // 30}),
    "digits": (HALVES, {"HHMM": HALVES.hour * 100 + HALVES.minute}),
    "minutes of the day": (HALVES, {"minutes": HALVES.hour * 60 + HALVES.minute}),
    "hour and minute": (HALVES, {"hr": HALVES.hour, "min": HALVES.minute}),
}


def days(times, form):
    """The dates beside the time of day: hour 24 has the date of the day that it ends."""
    return (times - pd.Timedelta(hours=int(form == "hour from 1"))).strftime("%d/%m/%Y")


class TestDates:
    @pytest.mark.parametrize("form", FORMS)
    def test_a_date_and_the_time_of_day(self, tmp_path, form):
        times, columns = FORMS[form]
        whole = {"Date": days(times, form), **columns}
        reading = Reading(time=",".join(whole))
        own = read(put(tmp_path, **whole), reading)
        assert (own.time, own.freq, own.targets) == ("Date", times.freqstr, ("v",))
        assert list(own.series.times) == list(times)
        assert any(f"Column '{name}' counts " in said for name in columns for said in own.said)

        stretch = {name: cells[7:11] for name, cells in whole.items()}
        again = history(put(tmp_path, **stretch), own.reading)
        assert (list(again.series.times), again.said) == (list(times[7:11]), ())
        forecast = put(tmp_path, Date=times[7:11])
        again = history(forecast, own.reading)
        assert (list(again.series.times), again.time) == (list(times[7:11]), "Date")

    def test_the_end_of_a_day_is_hour_24(self, tmp_path):
        _, columns = FORMS["hour from 1"]
        assert columns["Hour"].max() == 24
        own = read(put(tmp_path, Date=["2020-01-01"] * 2, Hour=[23, 24]), Reading(time="Date,Hour"))
        assert own.series.times[-1] == pd.Timestamp("2020-01-02")
        assert "Column 'Hour' counts hours, 24 being the next day's 0." in own.said

    @pytest.mark.parametrize(("name", "last"), [("Hour", 25), ("n", 25), ("n", 50), ("n", 100)])
    def test_a_day_of_25_hours_is_no_day_of_finer_steps(self, tmp_path, name, last):
        counts = {name: [*range(1, last - last // 25 + 1), *range(1, last + 1)]}
        stamps = ["2023-10-28"] * (last - last // 25) + ["2023-10-29"] * last
        wrong = (
            rf"column '{name}': values such as 1, 10, .* For days of 25 hours, on which daylight"
        )
        with pytest.raises(DataError, match=wrong):
            read(put(tmp_path, Date=stamps, **counts), Reading(time=f"Date,{name}", policy="sort"))

    def test_hours_are_no_half_hours(self, tmp_path):
        table = {"Date": ["2023-10-28"] * 3, "Hour": [1, 2, 30]}
        with pytest.raises(DataError, match="expected hours"):
            read(put(tmp_path, **table), Reading(time="Date,Hour"))

    def test_another_way_to_tell_the_hour(self, tmp_path):
        hours = {"Date": HOURS.strftime("%Y-%m-%d"), "Hour": HOURS.hour}
        own = read(put(tmp_path, **hours), Reading(time="Date,Hour"))
        clock = {**hours, "Hour": HOURS.strftime("%H:%M")}
        again = history(put(tmp_path, **clock), own.reading)
        assert list(again.series.times) == list(HOURS)
        assert again.said == ("Column 'Hour' counts hours and minutes, such as 13:30.",)

    def test_a_panel(self, tmp_path):
        table = {
            "Date": [*HOURS.strftime("%Y-%m-%d")] * 2, "Hour": [*HOURS.hour] * 2,
            "zone": ["a"] * 400 + ["b"] * 400,
        }  # fmt: skip
        own = read(put(tmp_path, **table), Reading(time="Date,Hour"))
        assert (own.id, own.freq, len(own.series.times)) == (("zone",), "h", 400)


class TestYears:
    def test_year_month_day_and_hour(self, tmp_path):
        whole = {"Year": HOURS.year, "Month": HOURS.month, "Day": HOURS.day, "Hour": HOURS.hour}
        own = read(put(tmp_path, **whole), Reading(time="Year,Month,Day,Hour"))
        assert (own.time, own.targets, own.freq) == ("time", ("v",), "h")
        assert list(own.series.times) == list(HOURS)
        stretch = {name: cells[3:5] for name, cells in whole.items()}
        for part in (stretch, {"time": HOURS[3:5]}):
            again = history(put(tmp_path, **part), own.reading)
            assert list(again.series.times) == list(HOURS[3:5])

    def test_days(self, tmp_path):
        days = pd.date_range("2020-02-20", periods=30)
        own = read(
            put(tmp_path, YEAR=days.year, MO=days.month, DY=days.day), Reading(time="YEAR,MO,DY")
        )
        assert list(own.series.times) == list(days)

    @pytest.mark.parametrize("form", ["%m", "%b", "%B"])
    def test_months(self, tmp_path, form):
        months = pd.date_range("2020-01-01", periods=30, freq="MS")
        file = put(tmp_path, year=months.year, month=months.strftime(form))
        own = read(file, Reading(time="year,month"))
        assert (list(own.series.times), own.freq) == (list(months), "MS")

    def test_quarters(self, tmp_path):
        quarters = pd.date_range("2020-01-01", periods=30, freq="QS")
        file = put(tmp_path, year=quarters.year, quarter=quarters.quarter)
        assert read(file, Reading(time="year,quarter")).freq == "QS-JAN"


class TestWrong:
    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"Date": ["2020-01-01"] * 2, "Hour": [1, 2500]},
             "column 'Hour': values such as 1, 2500 add nothing to the time in the columns"),
            ({"Date": ["2020-01-01"] * 2, "Time": ["05:00", "25:00"]},
             "row 2, column 'Time': expected a time such as 13:30, got '25:00'."),
            ({"Date": ["2020-01-01"] * 2, "x": ["a", "b"]},
             "column 'x': values such as a, b add nothing to the time"),
            ({"Date": ["2020-01-01 05:00"] * 2, "Hour": [5, 6]},
             "row 1, column 'Hour': it counts hours, 24 being the next day's 0, but the columns "
             "before it already give 2020-01-01 05:00:00."),
            ({"Date": ["2020-01-01"] * 2, "Day": [1, 2]}, "column 'Day': values such as 1, 2 add"),
            ({"Year": [2020, 2021], "Month": [1, 2], "Day": [31, 31]},
             "row 2, column 'Day': February 2021 has no day 31."),
            ({"Month": [1, 2], "Year": [2020, 2020]}, "such as 2016-07-01 00:00:00, got '1'"),
            ({"Date": ["2020-01-01"] * 3, "Hour": [1, None, 3]}, "row 2, column 'Hour': expected"),
        ],
    )  # fmt: skip
    def test_what_is_no_time_together(self, tmp_path, columns, message):
        with pytest.raises(DataError, match=re.escape(message)):
            read(put(tmp_path, **columns), Reading(time=",".join(columns)))

    def test_a_column_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match="column 'Hour' not found"):
            read(put(tmp_path, Date=["2020-01-01"]), Reading(time="Date,Hour"))


@pytest.mark.parametrize("days", [HOURS.strftime("%Y-%m-%d"), ["2020-01-01"] * 400])
def test_repeated_stamps_may_be_half_of_the_time(tmp_path, days):
    with pytest.raises(DataError, match=r"--time names them, as in --time Date,Hour"):
        read(put(tmp_path, Date=days, Hour=HOURS.hour))
