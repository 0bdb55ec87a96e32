import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError, UsageError
from forecaster.datasets.reader import history, read
from forecaster.datasets.reader.clock import Clock, time_columns
from forecaster.datasets.reader.files import frame_table
from forecaster.datasets.reading import Reading, Stamps

HOURS = pd.date_range("2019-12-25", periods=400, freq="h")
DAYS = pd.date_range("2019-12-25", periods=400, freq="D")
MONTHS = pd.date_range("2015-01-01", periods=60, freq="MS")
QUARTERS = pd.date_range("1998-01-01", periods=40, freq="QS")
YEARS = pd.date_range("1960-01-01", periods=40, freq="YS")
WEEKS = pd.date_range("2015-01-05", periods=60, freq="W-MON")

FORMS = {
    "%Y-%m-%d %H:%M:%S": HOURS,
    "%Y-%m-%dT%H:%M:%SZ": HOURS,
    "%d.%m.%Y %H:%M": HOURS,
    "%-m/%-d/%y": DAYS,
    "%y-%m-%d %H:%M": HOURS,
    "%b %d, %Y": DAYS,
    "%d-%b-%y %H:%M": HOURS,
    "%Y-%m": MONTHS,
    "%Y%m%d": DAYS,
    "%Y%m%d%H": HOURS,
    "%Y": YEARS,
    "%G-W%V": WEEKS,
    "Q %Y": QUARTERS,
    "s": HOURS,
}
"""How stamps may be written, by a pattern: Q is the quarter, s counts since 1970."""


def written(times, form):
    if form == "s":
        return times.as_unit(form).asi8.astype(str).tolist()
    return [stamp.strftime(form.replace("Q", f"Q{stamp.quarter}")) for stamp in times]


def put(folder, stamps, name="x.csv", column="time", **others):
    table = pd.DataFrame(others if stamps is None else {column: stamps, **others})
    table["v"] = np.arange(len(table)) % 7 + 0.5
    table.to_csv(folder / name, index=False)
    return str(folder / name)


@pytest.mark.parametrize(("form", "times"), FORMS.items(), ids=FORMS)
def test_stamps_are_read_however_they_are_written(tmp_path, form, times):
    own = read(put(tmp_path, written(times, form)))
    assert (own.time, list(own.series.times)) == ("time", list(times))
    again = history(put(tmp_path, written(times[5:8], form)), own.reading)
    assert (list(again.series.times), again.said) == (list(times[5:8]), ())


@pytest.mark.parametrize("form", ["%Y%m%d", "%Y", "s"])
@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_numbers_of_a_frame_and_of_parquet(tmp_path, form, kind):
    times = YEARS if form == "%Y" else DAYS
    frame = pd.DataFrame({"time": np.array(written(times, form)).astype(kind), "v": 1.5})
    frame.to_parquet(tmp_path / "x.parquet")
    own = read(str(tmp_path / "x.parquet"))
    assert list(own.series.times) == list(times)
    assert list(history(frame, own.reading).series.times) == list(times)
    assert own.timezone == ("UTC" if form == "s" else "naive")


def order(stamps, told=None):
    said = []
    table = frame_table(pd.DataFrame({"t": stamps}), "t", "here")
    clock = Clock(table, table.rows(["t"]), Reading(time="t", stamps=told), said)
    return clock.form, said


@pytest.mark.parametrize(
    ("form", "times", "expected"),
    [
        ("%d/%m/%Y", MONTHS[:20], "day-first"),
        ("%m/%d/%y %H:%M", pd.date_range("2020-01-03", periods=60, freq="h"), "month-first"),
        ("%y/%m/%d %H:%M", pd.date_range("2020-01-03", periods=60, freq="h"), "year-first"),
    ],
)
def test_the_spacing_decides_and_a_late_stamp(monkeypatch, form, times, expected):
    found, said = order(times.strftime(form))
    assert found == expected
    assert f"' is {times[0]}. They are evenly spaced only in this form." in said[0]
    monkeypatch.setattr("forecaster.datasets.reader.files.SAMPLE", 5)
    assert order(["01/02/2020"] * 9 + ["02/13/2020"])[0] == "month-first"


def test_days_that_may_be_months_are_refused_and_can_be_told():
    stamps = pd.date_range("2020-01-01", periods=12).strftime("%d/%m/%Y")
    message = "'02/01/2020' is 2 January 2020 or 1 February 2020.*--stamps day-first or --stamp"
    with pytest.raises(DataError, match=message):
        order(stamps)
    for form in ("day-first", "month-first"):
        assert order(stamps, Stamps(form)) == (form, [])


def test_a_file_in_another_form_than_the_models_is_plain_or_refused(tmp_path):
    american, iso = (
        read(put(tmp_path, written(DAYS, form))).reading for form in ("%m/%d/%Y", "%Y-%m-%d")
    )
    for form in ("%Y-%m-%d", "%d/%m/%Y", "%d %b %Y"):
        stamps = written(DAYS[30:40], form)
        again = history(put(tmp_path, stamps), american)
        assert list(again.series.times) == list(DAYS[30:40])
        assert [f"such as '{stamps[0]}'" in sentence for sentence in again.said] == [True]
    file = put(tmp_path, written(DAYS[10:16], "%m/%d/%Y"))
    assert len(history(file, american).series.times) == 6
    with pytest.raises(DataError, match="no stamp of the file shows which"):
        history(file, iso)


@pytest.mark.parametrize(
    ("stamps", "told", "message"),
    [
        (["12/01/2020", "13/01/2020"], "month-first", "'13/01/2020' .* as --stamps month-fi"),
        (["13/02/2020", "02/14/2020"], "", "'02/14/2020' is no date .*'13/02/2020' none"),
        (["30/01/2020", "31/02/2020"], "", "'31/02/2020' is no date"),
        (["2020-01-01", "2020-01-02"], "stardate", "'stardate', which this version does not"),
        (["2020-01-01"] * 3 + ["01/02/2020"], "", "row 4, .*'01/02/2020' is written differently"),
        (["Jan 2020", "Feb 2020", "2020-03-01"], "", "row 3, .*'2020-03-01' is written diff"),
        (["5 mai 2020", "6 mai 2020"], "", "row 1, .*months are read in English"),
        (["2020-01-01 05:00 CET"] * 2, "", "row 1, .*the name of a zone; leave it out"),
        (["2020-01-01", "2020-02-30"], "", "row 2, .*'2020-02-30' does not exist"),
        ([*written(DAYS, "%d/%m/%Y")[:20], "2020-01-14"], "", "row 21, .*is written differently"),
    ],
)
def test_stamps_that_cannot_be_read(tmp_path, monkeypatch, stamps, told, message):
    monkeypatch.setattr("forecaster.datasets.reader.files.SAMPLE", 5)
    with pytest.raises(DataError, match=message):
        read(put(tmp_path, stamps), Reading(time="time", stamps=Stamps(told) if told else None))


def test_numbers_are_the_time_only_where_they_are_called_so(tmp_path):
    for name in ("ts", "Timestamp", "epoch", "date", "year"):
        stamps = written(YEARS, "%Y") if name == "year" else written(DAYS, "s")
        own = read(put(tmp_path, stamps, column=name))
        assert (own.time, own.targets) == (name, ("v",))
    for name, numbers in (("load", written(DAYS, "s")), ("time", range(100))):
        with pytest.raises(DataError, match="no column holds stamps"):
            read(put(tmp_path, numbers, column=name))
    own = read(put(tmp_path, written(DAYS, "%Y-%m-%d"), column="when", ts=written(DAYS, "s")))
    assert (own.time, own.targets) == ("when", ("ts", "v"))


DATES = HOURS.strftime("%d/%m/%Y")
BEFORE = HOURS - pd.Timedelta("1h")
HALVES = pd.date_range("2019-12-25", periods=400, freq="30min")
DAYS_OF_YEARS = pd.date_range("2020-02-20", periods=30)
SEVERAL = {
    "hours from 0": (HOURS, {"Date": DATES, "Hour": HOURS.hour}),
    "hours from 1": (HOURS, {"Date": BEFORE.strftime("%d/%m/%Y"), "Hour": BEFORE.hour + 1}),
    "midnights": (HOURS, {"Date": HOURS.strftime("%Y-%m-%d 00:00:00"), "Hour": HOURS.hour * 1.0}),
    "midnights in words": (HOURS, {"Date": HOURS.strftime("%m/%d/%Y 12:00 AM"), "h": HOURS.hour}),
    "digits": (HOURS, {"Date": HOURS.strftime("%Y%m%d"), "Hour": HOURS.hour}),
    "clock": (HALVES, {"Date": HALVES.strftime("%d %b %Y"), "Time": HALVES.strftime("%I:%M %p")}),
    "minutes": (HALVES, {"Date": HALVES.date, "h": HALVES.hour, "m": HALVES.minute}),
    "year, month, day, hour": (
        HOURS, {"Y": HOURS.year, "M": HOURS.month, "D": HOURS.day, "H": HOURS.hour}
    ),
    "year, month": (MONTHS, {"year": MONTHS.year, "month": MONTHS.strftime("%B")}),
    "year, quarter": (QUARTERS, {"year": QUARTERS.year, "quarter": QUARTERS.quarter}),
    "year, month, day": (
        DAYS_OF_YEARS,
        {"Y": DAYS_OF_YEARS.year, "MO": DAYS_OF_YEARS.month, "DY": DAYS_OF_YEARS.day},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", SEVERAL)
def test_several_columns_are_joined_to_one_stamp(tmp_path, form):
    times, columns = SEVERAL[form]
    assert time_columns(Reading(time="a, b"), ["a, b", "a", "b"]) == ("a, b",)
    own = read(put(tmp_path, None, **columns), Reading(time=", ".join(columns)))
    assert list(own.series.times) == list(times)
    assert own.time == ("time" if form.startswith("year") else "Date")
    assert own.targets == ("v",)
    part = {name: cells[7:11] for name, cells in columns.items()}
    again = history(put(tmp_path, None, **part), own.reading)
    assert (list(again.series.times), again.said) == (list(times[7:11]), ())
    forecast = history(put(tmp_path, times[7:11], column=own.time), own.reading)
    assert (list(forecast.series.times), forecast.time) == (list(times[7:11]), own.time)


def test_typed_cells_of_several_columns(tmp_path):
    frame = pd.DataFrame({"d": HOURS.normalize(), "t": HOURS.time, "v": np.arange(400)})
    frame.to_parquet(tmp_path / "x.parquet")
    own = read(str(tmp_path / "x.parquet"), Reading(time="d,t"))
    assert list(own.series.times) == list(HOURS)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ({"Date": ["2020-01-01"] * 2, "Time": ["05:00", "25:00"]}, 2),
        ({"Date": ["2020-01-01 05:00"] * 2, "Hour": [5, 6]}, 1),
        ({"Year": [2020, 2021], "Month": [1, 2], "Day": [31, 31]}, 2),
        ({"Month": [1, 2], "Year": [2020, 2020]}, 1),
        ({"Date": ["2020-01-01"] * 3, "Hour": [1, None, 3]}, 2),
        ({"Date": ["2020-01-01"] * 48, "Period": range(1, 49)}, 25),
    ],
)
def test_what_is_no_time_together(tmp_path, columns, row):
    with pytest.raises(DataError, match=f"row {row}, column"):
        read(put(tmp_path, None, **columns), Reading(time=",".join(columns)))


def test_a_column_of_the_time_too_many_or_too_few(tmp_path):
    file = put(tmp_path, HOURS.date, column="Date", Hour=HOURS.hour, m=0, s=0, x=1)
    with pytest.raises(UsageError, match="'Date', 'Hour', 'm', 's', 'x' are too many"):
        read(file, Reading(time="Date,Hour,m,s,x"))
    with pytest.raises(DataError, match="--time Date,Hour"):
        read(put(tmp_path, HOURS.date, column="Date", Hour=HOURS.hour))
