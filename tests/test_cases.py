"""Ordinary files that are not quite what was expected: each is read, or the error says what to do.

The cases are exports of programs, each smaller than a real one; all numbers are made up.
"""

import json
import re
import zipfile

import holidays
import numpy as np
import pandas as pd
import pytest

from forecaster import Forecaster
from forecaster.base.errors import DataError


def wave(steps, cycle=24):
    """A cycle of so many steps with some noise."""
    noise = np.random.default_rng(steps).normal(0, 3, steps)
    return (100 + 20 * np.sin(2 * np.pi * np.arange(steps) / cycle) + noise).round(2)


def hours(steps=600):
    return pd.date_range("2024-01-01", periods=steps, freq="h")


@pytest.fixture
def check(run, tmp_path, monkeypatch):
    """Check a file, which is written from a frame or from lines; returns status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(table, *options, name="file.csv", horizon=6):
        if isinstance(table, pd.DataFrame):
            table.to_csv(name, index=False)
        elif table is not None:
            (tmp_path / name).write_text("\n".join(table) + "\n", encoding="utf-8")
        return run("data", "check", name, "--horizon", horizon, "--no-picture", *options)

    return call


@pytest.fixture
def read(check):
    """Check a file that can be read; returns what it holds and what was said."""

    def call(*arguments, **more):
        status, out, err = check(*arguments, **more)
        assert status == 0, err
        return out, err

    return call


@pytest.fixture
def refused(check):
    """Check a file that is refused; returns the error."""

    def call(*arguments, **more):
        status, _, err = check(*arguments, **more)
        assert status == 65, err
        return err

    return call


class TestNames:
    def test_a_name_with_a_comma(self, read):
        table = pd.DataFrame({"time": hours(), "Energy, kWh": wave(600), "temp": wave(600)})
        for target in ("Energy, kWh", '"Energy, kWh"'):
            out, _ = read(table, "--target", target)
            assert "\ncolumn      Energy, kWh: target\n" in out
            assert f" --target '{target}' " in out
        both = [
            read(table, *options)[0]
            for options in (
                ("--target", "temp, Energy, kWh"),
                ("--target", 'temp,"Energy, kWh"'),
                ("--target", "temp", "--target", "Energy, kWh"),
            )
        ]
        assert len({out.rpartition("to train")[0] for out in both}) == 1
        assert """ --target 'temp,"Energy, kWh"' """ in both[1]
        assert """ --target 'temp,"Energy, kWh"' """ in both[2]

    def test_a_name_with_a_comma_from_python(self):
        frame = pd.DataFrame({"time": hours(400), "a, b": np.arange(400) % 24, "a": 1.0})
        model = Forecaster(horizon=6, target=["a, b"], epochs=1, blend="cycle mean")
        assert [*model.fit(frame).predict()] == ["time", "a, b"]


def lines(stamps, values=None, header="time,y", form="{},{}"):
    """The lines of a file of stamps, and of a wave unless there are `values`."""
    values = wave(len(stamps), 7) if values is None else values
    return [header, *(form.format(*row) for row in zip(stamps, values, strict=True))]


class TestHeaders:
    DAYS = pd.date_range("2023-01-02", periods=200).strftime("%Y-%m-%d")

    @pytest.mark.parametrize(
        ("header", "names"),
        [
            (["Price,Close,High", "Ticker,AAA,AAA", "Date,,"], ["Close", "High"]),
            (["Price,Close,Close", "Ticker,AAA,BBB", "Date,,"], ["Close AAA", "Close BBB"]),
            (["Report,,", "Date,Sales,", ",Shop,Online"], ["Sales Shop", "Sales Online"]),
            (["Station;Harbour", "Unit;MW", "Zeitpunkt;Load"], ["Load"]),
        ],
        ids=["pandas", "two levels", "a name above two", "titles of two cells"],
    )
    def test_several_lines(self, read, header, names):
        mark = ";" if ";" in header[0] else ","
        rows = [mark.join([day, *("12.5", "7.25")[: len(names)]]) for day in self.DAYS]
        rows[::2] = [row.replace("12.5", "13.5").replace("7.25", "8.25") for row in rows[::2]]
        out, _ = read([*header, *rows])
        assert [line.split("  ")[-1] for line in out.splitlines() if line.startswith("column")][
            1:
        ] == [f"{name}: target" for name in names]

    def test_rows_that_end_with_a_separator(self, read):
        for mark in ",;":
            table = lines(self.DAYS, header=f"Date{mark}Load", form=f"{{}}{mark}{{}}{mark}")
            out, err = read(table)
            assert "column      Load: target\n" in out
            assert "Column 'column 3' (no value in the first rows) has no role" in err

    def test_a_header_with_fewer_names_than_fields(self, refused):
        table = lines(self.DAYS, header="Date,Load", form="{},{},3")
        assert "the rows have 3 fields, but the header, 'Date,Load', has 2" in refused(table)

    def test_a_second_table_below_the_first(self, refused):
        table = lines(self.DAYS)
        assert "row 201: the header is repeated" in refused([*table, *table])

    def test_a_header_that_holds_the_time(self, refused):
        for days in (self.DAYS, [f"d_{number}" for number in range(1, 201)]):
            rows = [f"{item},{item % 2}," + ",".join(map(str, range(200))) for item in range(5)]
            err = refused([f"item,shop,{','.join(days)}", *rows])
            assert f"The header holds them, from '{days[0]}' on" in err
            assert "frame.melt(['item', 'shop'], var_name='time')" in err


class TestStamps:
    """Cells that are no stamps: the first message explains one of them."""

    @pytest.mark.parametrize(
        ("written", "reason"),
        [
            ("%d.%m.%Y %H:%M - %d.%m.%Y %H:59", "it is an interval; keep its start"),
            ("%d.%m.%Y %H:%M:%S CET", "'CET' is the name of a zone; leave it out"),
            ("%Y-%m-%d %H:%M:%S Europe/Berlin", "'Europe/Berlin' is the name of a zone"),
            ("%a %b %d %Y %H:%M:%S GMT+0100 (Some Time)", "leave out the words in brackets"),
            ("FY%Y-Q1", "it is a fiscal year"),
            ("%d-gennaio-%Y %H:%M", "months are read in English, which 'gennaio' is not"),
        ],
    )
    def test_written_in_another_way(self, refused, written, reason):
        stamps = hours(100).strftime(written)
        err = refused(lines(stamps, header="Time,y"))
        assert f"Column 'Time' seems to be the time, but '{stamps[0]}' is not read: {reason}" in err
        assert reason in refused(lines(stamps, header="Time,y"), "--time", "Time")

    def test_the_named_remedies_work(self, read):
        times = hours(600)
        for stamps in (
            times.strftime("%d.%m.%Y %H:%M"),
            times.strftime("%d.%m.%Y %H:%M:%S+01:00"),
            times.strftime("%a %b %d %Y %H:%M:%S +0100"),
            times.strftime("%d-%m-%Y %H:%M"),
            [f"{year}-W{week:02}" for year in range(2016, 2020) for week in range(1, 53)],
        ):  # fmt: skip
            read(lines(stamps, wave(len(stamps))), horizon=2)

    def test_numbers_that_count_days_or_rows(self, refused):
        serial = 44927 + np.arange(600) / 24
        assert "it counts the days since 1900" in refused(lines([f"{n:.5f}" for n in serial]))
        days = refused(lines(range(44927, 45327)), "--time", "time")
        assert "it counts the days since 1900" in days
        assert "it counts, and is no time" in refused(lines(range(1, 400)))

    def test_numbers_that_lost_digits(self, refused):
        stamps = [f"{time.timestamp() * 1000:.5E}" for time in hours(600)]
        err = refused(lines(stamps, header="timestamp,y"))
        assert "were rounded when they were saved" in err

    def test_thai_years(self, refused, check):
        days = pd.date_range("2023-03-01", periods=500)
        thai = [f"{day.day}/{day.month}/{day.year + 543}" for day in days]
        assert "the year may be Thai" in refused(lines(thai))
        half = [f"{day.year + 543 * (i > 200)}-{day:%m-%d}" for i, day in enumerate(days)]
        assert "may be Thai: 2567 is 2024 elsewhere; subtract 543" in refused(lines(half))
        year = [f"{day.year + 543}-{day:%m-%d}" for day in days[:360]]
        assert "The years may be Thai: 2566 is 2023 elsewhere" in check(lines(year))[2]

    def test_weeks(self, refused, read):
        weeks = pd.date_range("2019-01-07", periods=260, freq="7D").isocalendar()
        pairs = [*zip(weeks.year, weeks.week, strict=True)]
        for form in ("{}{:02}", "{}/{:02}"):
            table = lines([form.format(*pair) for pair in pairs], wave(260, 52), "week,y")
            assert "there is no month 13; if it is a week, write it as '2019-W13'" in refused(table)
        table = pd.DataFrame(pairs, columns=["Year", "Week"]).assign(units=wave(260, 52))
        err = refused(table, "--target", "units")
        assert "--time Year,Week reads the time from both columns" in err
        assert "--id" not in err
        assert "--policy" not in err
        out, _ = read(table, "--target", "units", "--time", "Year,Week")
        assert "260 steps of W-MON" in out

    def test_months_by_their_names(self, refused, read):
        months = pd.date_range("2010-01-01", periods=168, freq="MS")
        table = pd.DataFrame({"year": months.year, "month": months.strftime("%b")})
        table["revenue"] = wave(168, 12)
        assert "--time year,month reads the time from both columns" in refused(table)
        out, _ = read(table, "--time", "year,month", "--target", "revenue")
        assert "168 steps of MS" in out

    def test_parts_of_a_day(self, refused, read):
        days = pd.date_range("2024-02-15", periods=60).strftime("%d-%b-%Y")
        table = pd.DataFrame({"DATE": np.repeat(days, 48), "PERIOD": np.tile(np.arange(1, 49), 60)})
        table["y"] = wave(len(table), 48)
        err = refused(table, "--target", "y")
        assert "Column 'PERIOD' seems to hold parts of the time beside 'DATE'" in err
        assert "--id" not in err
        assert "--policy" not in err
        both = refused(table, "--target", "y", "--time", "DATE,PERIOD")
        assert "if 'PERIOD' counts parts of a day, make one column of stamps of both" in both
        hourly = table[table["PERIOD"] <= 24].rename(columns={"PERIOD": "Hour"})
        hourly = hourly.assign(Hour=hourly["Hour"] - 1)
        assert "--time DATE,Hour reads the time" in refused(hourly, "--target", "y")
        read(hourly, "--target", "y", "--time", "DATE,Hour")

    def test_months_at_midnight_of_a_zone(self, refused):
        months = pd.date_range("2008-01-01", periods=180, freq="MS", tz="Europe/Berlin")
        table = lines([month.isoformat() for month in months])
        for policy in ("error", "sort", "resample"):
            assert "give the stamps in local time" in refused(table, "--policy", policy)


class TestCells:
    def test_a_number_with_a_unit(self, refused):
        for unit, shown in ((" °C", "°C"), (" kW", "kW"), ("%", "%")):
            table = [f"{value}{unit}" for value in wave(200)]
            err = refused(lines(hours(200), table))
            assert f"holds numbers with a unit; remove '{shown}' from its cells" in err
            assert "categories" not in err

    def test_an_error_of_a_spreadsheet_is_no_value(self, read):
        values = [*map(str, wave(400))]
        values[5::100] = ["#DIV/0!"] * 4
        assert "y: target, 4 values missing" in read(lines(hours(400), values))[0]

    def test_a_word_among_numbers(self, refused, read):
        values = [*map(str, wave(400))]
        values[7] = "gap"
        assert "--missing gap takes it for a missing value" in refused(lines(hours(400), values))
        read(lines(hours(400), values), "--missing", "gap")
        values[7] = "102.5-"
        assert "write the minus before the number" in refused(lines(hours(400), values))

    def test_columns_that_count_the_rows(self, read):
        table = pd.DataFrame({"ds": hours(), "y": wave(600), "index": np.arange(600)})
        out, err = read(table.assign(id=np.arange(1, 601)))
        assert "Targets: 'y'." in err
        assert "Column 'index' (counts the rows) has no role and is left out." in err
        assert "look here" not in out

    def test_words_that_look_like_numbers(self, refused, read):
        holiday = np.where(np.arange(600) % 90 == 0, "a", np.where(np.arange(600) % 91, "0", "b"))
        table = pd.DataFrame({"ds": hours(), "y": wave(600), "holiday": holiday})
        options = ("--target", "y", "--future-covariates", "holiday")
        assert "--categorical holiday reads the column as words" in refused(table, *options)
        out, _ = read(table, *options, "--categorical", "holiday")
        assert "holiday: future covariate, one of 0, a, b" in out
        assert " --categorical holiday " in out


class TestFormats:
    def test_what_is_no_table(self, refused, tmp_path):
        with zipfile.ZipFile(tmp_path / "load.csv.zip", "w") as archive:
            archive.writestr("load.csv", "\n".join(lines(hours(100))))
        err = refused(None, name="load.csv.zip")
        assert "a zip archive that holds 'load.csv'; unpack it" in err
        rows = [json.dumps({"time": str(hour), "y": 1.5}) for hour in hours(50)]
        assert "this is JSON" in refused([f"[{','.join(rows)}]"], name="records.json")
        assert "this is JSON" in refused(rows, name="lines.jsonl")


class TestSteps:
    def test_a_panel_of_several_steps(self, refused):
        parts = [
            pd.DataFrame({"ds": pd.date_range("2022-01-01", periods=count, freq=freq), "id": freq})
            for count, freq in ((700, "D"), (100, "W-MON"), (23, "MS"))
        ]
        table = pd.concat([part.assign(y=wave(len(part), 7)) for part in parts])
        for policy in ("error", "sort"):
            err = refused(table, "--policy", policy)
            assert "the step of the table is D, but that of 'MS' of MS and 'W-MON' of W-MON" in err
            assert "--policy" not in err

    def test_a_model_of_hours_refuses_days(self, tmp_path):
        frame = pd.DataFrame({"time": hours(), "y": wave(600)})
        model = Forecaster(horizon=6, target="y", epochs=1, blend="cycle mean").fit(frame)
        daily = frame.resample("D", on="time").mean().reset_index()
        for policy in (None, "sort"):
            with pytest.raises(
                DataError, match=r"the rows have steps of 'D', the model of h; give"
            ):
                model.predict(daily, policy=policy)


def shops(days):
    """Three shops by day, closed on Sundays and on public holidays; the last one is young."""
    random, parts = np.random.default_rng(0), []
    days = pd.date_range("2023-01-02", periods=days)
    off = np.isin(days.date, [*holidays.country_holidays("DE", years=[2023, 2024])])
    for shop in range(3):
        own = days[(days.day_of_week < 6) & ~off & (np.arange(len(days)) >= 300 * (shop == 2))]
        promo = (random.random(len(own)) < 0.15).astype(int)
        sales = (100 + 20 * shop) * (1 + 0.3 * promo) + random.normal(0, 5, len(own))
        parts.append(
            pd.DataFrame({"date": own, "shop": f"s{shop}", "sales": sales.round(1), "promo": promo})
        )
    return pd.concat(parts), off


class TestClosed:
    OPTIONS = ("--target", "sales", "--id", "shop", "--future-covariates", "promo")

    def test_holidays_without_rows_are_closed(self, refused, read):
        table, _ = shops(450)
        err = refused(table, *self.OPTIONS)
        assert "If they are public holidays, --holidays names the country or state" in err
        for policy in ("error", "sort"):
            _, err = read(table, *self.OPTIONS, "--holidays", "DE", "--policy", policy)
            assert "Open hours: rows from Mon to Sat" in err
            assert "Public holidays of DE are closed, and missing." in err

    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_no_forecast_of_a_closed_day(self):
        table, _ = shops(450)
        first = table["date"].max() + pd.Timedelta("1D")
        days = pd.date_range(first, periods=14)  # with Good Friday and Easter Monday
        assert {"2024-03-29", "2024-04-01"} <= {*days.astype(str)}
        off = [*holidays.country_holidays("DE", years=[2024])]
        open_ = [day for day in days if day.day_of_week < 6 and day.date() not in off]
        for policy in ("error", "sort"):
            model = Forecaster(
                horizon=14, target="sales", id="shop", future_covariates=["promo"], epochs=1,
                holidays="DE", policy=policy, blend="calendar ridge",
            ).fit(table)  # fmt: skip
            whole = pd.concat(
                [pd.DataFrame({"shop": f"s{shop}", "date": days, "promo": 0}) for shop in range(3)]
            )
            ahead = model.predict(future=whole)
            assert [*ahead.loc[ahead["shop"] == "s2", "date"]] == open_
            shorter = whole[whole["date"].isin(open_)]
            pd.testing.assert_frame_equal(model.predict(future=shorter), ahead)
            lost = shorter.drop(shorter.index[[3]])
            with pytest.raises(DataError, match=rf"no value of 'promo' at {open_[3]}"):
                model.predict(future=lost)

    def test_holidays_with_rows_are_open(self, read):
        days = pd.date_range("2023-01-01", periods=500)
        table = pd.DataFrame({"date": days, "y": wave(500, 7)}).drop(index=[100, 101])
        _, err = read(table, "--holidays", "DE", "--policy", "sort")
        assert "closed" not in err


class TestWords:
    def table(self, days=500):
        table = pd.DataFrame({"date": pd.date_range("2022-01-01", periods=days)})
        table = table.assign(y=wave(days, 7), event=None)
        table.loc[::90, "event"] = "Fair"
        table.loc[45::90, "event"] = "Strike"
        return table

    def test_mostly_empty_means_nothing(self, read, check):
        options = ("--target", "y", "--future-covariates", "event")
        for more in ((), ("--fill", "linear")):
            out, err = read(self.table(), *options, *more, horizon=14)
            assert "Column 'event' is mostly empty: there, no word holds." in err
            assert "one of Fair, Strike" in out

    def test_a_future_without_an_event(self):
        model = Forecaster(
            horizon=14, target="y", future_covariates=["event"], epochs=1, blend="calendar ridge"
        ).fit(self.table())
        days = pd.date_range(self.table()["date"].max(), periods=15)[1:]
        ahead = model.predict(future=pd.DataFrame({"date": days, "event": None}))
        assert len(ahead) == 14

    def test_words_with_some_gaps_name_the_column_of_the_user(self, refused):
        table = self.table().assign(event=["rain", "sun"] * 250)
        table.loc[7, "event"] = None
        err = refused(table, "--target", "y", "--future-covariates", "event")
        assert "the future covariate 'event' has no value at 2022-01-08" in err
        assert "--fill event=zero: zero takes an empty cell for no word" in err


class TestFewAndUnfinished:
    def months(self, last=1.0):
        table = pd.DataFrame({"month": pd.date_range("2019-01-01", periods=54, freq="MS")})
        table["sales"] = (10 * wave(54, 12)).round()
        table.loc[53, "sales"] *= last
        return table

    def test_54_months_are_enough_for_a_year(self, read, refused):
        _, err = read(self.months(), horizon=12)
        assert "Few rows for this horizon: 7 windows for training, 1 window for the test" in err
        err = refused(self.months().head(40), horizon=12)
        longest = int(err.split("--horizon ")[1].rstrip(".\n"))
        read(self.months().head(40), horizon=longest)

    def test_a_month_that_is_not_over(self, read):
        assert "look here" not in read(self.months(), horizon=6)[0]
        out, _ = read(self.months(0.6), horizon=6)
        assert "at 2023-06" not in out
        assert "far lower, against that of one cycle before, than any other; if its step" in out
        out, err = read(self.months(0.6), "--drop-last", horizon=6)
        assert "The last step, 2023-06-01 00:00:00, is left out." in err
        assert "look here" not in out
        assert "to 2023-05-01 00:00:00, 53 steps of MS" in out
        assert out.splitlines()[-1].count(" --drop-last ") == 1

    def test_a_forecast_from_it_says_so(self):
        model = Forecaster(horizon=6, target="sales", epochs=1, blend="seasonal naive")
        model.fit(self.months())
        for last in (1.0, 0.6):
            said = []
            model.predict(self.months(last), say=said.append)
            heard = any("'sales': the last value is far lower" in sentence for sentence in said)
            assert heard == (last < 1)

    def test_a_model_leaves_it_out_of_its_history_too(self):
        model = Forecaster(
            horizon=6, target="sales", epochs=1, blend="seasonal naive",
            options={"data.drop_last": True},
        ).fit(self.months(0.6))  # fmt: skip
        ahead = model.predict(self.months(0.6))
        assert str(ahead["month"][0].date()) == "2023-06-01"
        panel = pd.concat([self.months(0.6).assign(shop=shop) for shop in "ab"])
        panel = panel[(panel["shop"] == "a") | (panel["month"] < "2023-06-01")]
        own = Forecaster(
            horizon=6, target="sales", id="shop", epochs=1, blend="seasonal naive",
            options={"data.drop_last": True},
        ).fit(panel)  # fmt: skip
        assert {str(day.date()) for day in own.predict()["month"][::6]} == {"2023-06-01"}

    def test_rows_ahead_follow_the_step_that_is_left_out(self):
        months = self.months(0.6).assign(price=1.0)
        model = Forecaster(
            horizon=6, target="sales", epochs=1, blend="seasonal naive",
            future_covariates="price", options={"data.drop_last": True},
        ).fit(months)  # fmt: skip
        starts = pd.date_range(months["month"].iloc[-1], periods=6, freq="MS")
        ahead = pd.DataFrame({"month": starts, "price": 1.0})
        apart = model.predict(months, future=ahead)
        assert str(apart["month"][0].date()) == "2023-06-01"
        pd.testing.assert_frame_equal(model.predict(pd.concat([months, ahead[1:]])), apart)


REMEDY = re.compile(
    r"--(policy|id|time|fill|missing|categorical|horizon) (?!names|reads)('[^']*'|[^\s;:.]+)"
)


def daily(days=300):
    return pd.DataFrame({"day": pd.date_range("2023-01-01", periods=days), "y": wave(days, 7)})


def of_two(count=300):
    """Two series below each other, told apart by a column of numbers, or by none."""
    parts = [daily(count).assign(meter=number, y=wave(count, 7) * number) for number in (7, 9)]
    return pd.concat(parts)


REPAIRED = {
    "holes": (daily().drop(index=[20, 50]), "300 steps of D", "y: target, 2 values missing"),
    "repetitions": (pd.concat([daily(), daily()[40:44]]), "300 steps of D", "y: target\n"),
    "other values": (
        pd.concat([daily(), daily()[40:44].assign(y=1.0)]), "300 steps of D", "y: target\n",
    ),
    "out of order": (daily().sample(frac=1, random_state=0), "300 steps of D", "y: target\n"),
    "two series": (of_two(), "series      2, of 300 to 300 rows", "meter: id"),
    "date and hour": (
        pd.DataFrame({
            "day": np.repeat(daily(40)["day"], 24), "hour": np.tile(np.arange(24), 40),
            "y": wave(960),
        }), "960 steps of h", "hour: time",
    ),
    "a gap in what is known ahead": (
        daily().assign(price=[np.nan if i == 9 else 1.0 + i % 4 for i in range(300)]),
        "300 steps of D", "price: future covariate",
    ),
}  # fmt: skip
"""Files, and what the report of each says once it is repaired."""


class TestRemedies:
    """Whatever an error prints as a remedy is taken word by word, and leads to the right series."""

    @pytest.mark.parametrize("case", REPAIRED)
    def test_what_is_printed_is_right(self, case, refused, read):
        table, *expected = REPAIRED[case]
        options = ("--target", "y", *("--future-covariates", "price") * ("price" in table))
        offered = REMEDY.findall(refused(table, *options).replace("--time Date,Hour", ""))
        assert offered
        for name, value in offered:
            out, _ = read(table, *options, f"--{name}", value.strip("'"))
            for words in expected:
                assert words in out, (name, value)

    def test_two_mixed_series_are_never_averaged(self, refused):
        err = refused(of_two().drop(columns="meter"), "--target", "y")
        assert "If the file holds several series, --id names the columns" in err
        assert "--policy" not in err

    def test_a_shop_keeps_its_hours_with_the_remedy_for_a_hole(self, refused, read):
        days = daily()[daily()["day"].dt.day_of_week < 6].drop(index=[30, 31])
        assert "--policy sort" in refused(days)
        assert "Open hours: rows from Mon to Sat" in read(days, "--policy", "sort")[1]

    def test_a_step_that_changes_is_named(self, refused):
        months, days = (
            pd.date_range("2020-01-01", periods=36, freq="MS"),
            pd.date_range("2023", periods=200),
        )
        for policy in ("error", "sort"):
            table = pd.DataFrame({"day": [*months, *days], "y": wave(236, 7)})
            err = refused(table, "--policy", policy)
            assert "the step changes from about 30 days" in err
            assert "--policy" not in err

    def test_ids_slots_and_hours_are_told_apart(self, refused, read):
        days = pd.date_range("2024-01-01", periods=40)
        for name, count, remedy in (
            ("Hour Ending", 24, "--time 'day,Hour Ending'"),
            ("settlementPeriod", 48, "make one column of stamps of both"),
            ("slot", 8, "make one column of stamps of both"),
            ("store", 8, "--id store"),
        ):
            table = pd.DataFrame({
                "day": np.repeat(days, count), name: np.tile(np.arange(1, count + 1), 40),
                "y": wave(40 * count),
            })  # fmt: skip
            assert remedy in refused(table, "--target", "y"), name
        ids = pd.DataFrame({"day": np.repeat(days, 3), "who": ["April", "May", "June"] * 40})
        assert "series      3, of 40 to 40 rows" in read(ids.assign(y=wave(120)))[0]

    def test_a_flag_that_is_mostly_empty(self, refused, read):
        table = daily().assign(promo=[1.0 if i % 50 == 0 else np.nan for i in range(300)])
        options = ("--target", "y", "--future-covariates", "promo")
        assert "--fill promo=zero" in refused(table, *options)
        read(table, *options, "--fill", "promo=zero")

    def test_rows_are_no_header(self, read):
        months = pd.date_range("2015-01-01", periods=60, freq="MS").strftime("%b-%y")
        rows = [f"{month},{'NA' if i < 3 else i % 7},note" for i, month in enumerate(months)]
        out, _ = read(["Month,Load,", *rows])
        assert "60 steps of MS" in out
        assert "Load: target, 3 values missing" in out
