import contextlib
import gzip
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.base.errors import DataError, UsageError
from forecaster.datasets.reader import history, read, read_frame
from forecaster.datasets.reading import Reading, Stamps

ROWS = 60


def wide(rows=ROWS, freq="h", start="2020-01-01"):
    steps = np.arange(rows)
    times = pd.date_range(start, periods=rows, freq=freq)
    return pd.DataFrame({"when": times, "a": np.sin(steps * np.pi / 12), "b": steps / 7})


def long(lengths=(20, 30, 25), starts=(0, 5, 3)):
    times = pd.date_range("2020-01-01", periods=60, freq="h")
    parts = [
        pd.DataFrame(
            {
                "unique_id": f"s{item}",
                "ds": times[start : start + length],
                "y": 100 * item + np.arange(length) / 3,
                "promo": np.arange(length) % 2,
                "shop": ["north", "south"][item % 2],
            }
        )
        for item, (length, start) in enumerate(zip(lengths, starts, strict=True))
    ]
    return pd.concat(parts, ignore_index=True)


def put(folder, table, name="sales.csv"):
    file = folder / name
    (table.to_parquet if name.endswith(".parquet") else table.to_csv)(file, index=False)
    return str(file)


def same(one, other):
    assert one.series.digest == other.series.digest
    assert (one.freq, one.seasons, one.targets) == (other.freq, other.seasons, other.targets)


def told(source, reading, timezone="naive"):
    """Read as a model does that also knows the time zone."""
    return history(source, replace(reading, timezone=timezone))


class TestWide:
    def test_everything_is_inferred_and_said(self, tmp_path):
        own = read(put(tmp_path, wide().assign(note="fine", c=5, flag=True)))
        assert (own.name, own.time, own.freq, own.timezone) == ("sales", "when", "h", "naive")
        assert own.series.columns == own.targets == ("a", "b", "c")
        assert (own.reading.id, own.series.items) == ((), None)
        assert own.seasons == (1,), "60 rows hold not two days before the last 30 %"
        assert (own.series.values[:, :2] == wide()[["a", "b"]].to_numpy()).all()
        assert list(own.series.times) == list(wide()["when"])
        assert own.counts["constant"] == ["c"]
        assert own.said == (
            "The time is column 'when'.",
            "Targets: 'a', 'b', 'c'.",
            "Column 'note' (such as 'fine') has no role and is left out.",
            "Column 'flag' (true or false) has no role and is left out.",
            "The time step is h.",
            "No season was found.",
            "Constant: 'c'.",
        )

    def test_what_is_told_is_not_inferred(self, tmp_path):
        reading = Reading(
            time="when", targets=("b",), past_covariates=("a",), freq="60min", seasons=(24, 168)
        )
        own = read(put(tmp_path, wide()), reading)
        assert own.series.columns == ("b", "a")
        assert (own.targets, own.freq, own.seasons, own.said) == (("b",), "h", (24, 168), ())
        wide().to_csv(tmp_path / "sales.csv")
        assert read(str(tmp_path / "sales.csv")).targets == ("a", "b"), "the index is none"


class TestLong:
    READING = Reading(future_covariates=("promo",), static=("shop",))

    def test_a_panel_of_series_of_different_lengths(self, tmp_path):
        own = read(put(tmp_path, long()), self.READING)
        items = own.series.items
        assert (own.reading.id, own.time, own.series.columns) == (("unique_id",), "ds", ("y",))
        assert list(items.names) == ["s0", "s1", "s2"]
        assert (items.bounds.tolist(), items.places.tolist()) == ([0, 20, 50, 75], [0, 5, 3])
        assert len(own.series.times) == 35
        assert (own.series.values[:, 0] == long()["y"]).all()
        assert (own.series.known[:, 0] == long()["promo"]).all()
        assert own.series.static["shop"].tolist() == ["north", "south", "north"]

    def test_the_id_may_have_any_name_and_type(self, tmp_path):
        named = long()[["unique_id", "ds", "y"]].rename(columns={"unique_id": "code"})
        for name in ("s", "STORE0", "Shop 202"):
            renamed = named.assign(code=named["code"].str.replace("s", name))
            assert read(put(tmp_path, renamed)).reading.id == ("code",)
        numbered = named.replace({"s0": 10, "s1": 9, "s2": 100})
        own = read(put(tmp_path, numbered, "x.parquet"), Reading(id=("code",)))
        assert list(own.series.items.names) == ["9", "10", "100"]

    def test_the_parts_of_an_id_of_several_columns_make_its_name(self, tmp_path):
        table = long().assign(state=long()["unique_id"].map({"s0": "N", "s1": "N", "s2": "S"}))
        reading = Reading(id=("state", "shop"), targets=("y",))
        names = read(put(tmp_path, table), reading).series.items.names
        assert names == ("N / north", "N / south", "S / north")
        for word in ("fun / games", "/ fun"):
            marked = table.replace({"shop": {"north": word}, "state": {"N": "N /"}})
            with pytest.raises(DataError, match=r"'state', 'shop': 'N / .* split again"):
                read(put(tmp_path, marked), reading)

    def test_the_series_of_a_wide_panel_begin_and_end_with_their_values(self, tmp_path):
        table = wide()
        table.loc[:2, "a"] = table.loc[50:, "a"] = table.loc[30, "b"] = np.nan
        items = read(put(tmp_path, table), Reading(panel=True)).series.items
        assert (items.bounds.tolist(), items.places.tolist()) == ([0, 47, 107], [3, 0])
        ahead = Reading(panel=True, targets=("a", "b"), future_covariates=("c",))
        own = read(put(tmp_path, table.assign(c=wide()["a"] + 1)), ahead)
        assert own.series.items.bounds.tolist() == [0, 57, 117], "to the end of what is known ahead"
        assert (own.series.known[57:, 0] == wide()["a"] + 1).all()

    def test_cells_that_do_not_fit_their_role(self, tmp_path):
        for column, cell, message in (
            ("shop", "south", "row 3, column 'shop': south"),
            ("shop", "", "row 3, column 'shop': no value"),
            ("unique_id", None, "row 3, column 'unique_id': no value"),
            ("promo", None, "covariate 'promo' has no value at 2020-01-01 02:00:00 of 's0'"),
        ):
            table = long().astype({column: object})
            table.loc[2, column] = cell
            with pytest.raises(DataError, match=message):
                read(put(tmp_path, table, "x.parquet"), replace(self.READING, id=("unique_id",)))


class TestFiles:
    def test_files_of_overlapping_times_are_a_panel(self, tmp_path):
        for name, shift in (("tokyo", 0), ("oslo", 10)):
            put(tmp_path, wide().assign(a=shift), f"{name}.csv")
        own = read(str(tmp_path))
        assert list(own.series.items.names) == ["oslo", "tokyo"]
        assert own.series.values[:, 0].tolist() == [10] * ROWS + [0] * ROWS
        assert (own.name, own.reading.id) == (tmp_path.name, ("file",))
        facts = Reading(time="when", id=("file",), targets=("a", "b"), freq="h")
        assert told(tmp_path, facts).series.digest == own.series.digest
        assert list(told(tmp_path / "tokyo.csv", facts).series.items.names) == ["tokyo"]
        frame = pd.concat([wide().assign(a=i, file=n) for i, n in ((0, "tokyo"), (10, "oslo"))])
        assert told(frame, facts).series.digest == own.series.digest
        with pytest.raises(DataError, match="column 'file' not found"):
            told(wide(), facts)
        with pytest.raises(UsageError, match="2 files with overlapping times"):
            read(str(tmp_path), Reading(panel=True))
        put(tmp_path, wide(0), "zagreb.csv")
        assert read(str(tmp_path)).series.digest == own.series.digest, "it has no rows"

    def test_files_of_consecutive_times_are_parts_of_one_series(self, tmp_path):
        put(tmp_path, wide().iloc[40:], "a.csv")
        put(tmp_path, wide().iloc[:40], "b.csv")
        put(tmp_path, wide(), ".hidden.csv")
        own = read(str(tmp_path / "*.csv"))
        assert own.series.items is None
        assert (own.series.values == wide()[["a", "b"]].to_numpy()).all()
        put(tmp_path, wide().iloc[:41], "b.csv")
        with pytest.raises(DataError, match=r"repeated stamps: 1 \(the first is b.csv, row 41:"):
            read(str(tmp_path))
        assert len(read(str(tmp_path), Reading(policy="sort")).series.times) == ROWS


class TestPolicy:
    def test_an_error_counts_everything_and_sort_repairs_it(self, tmp_path):
        file = put(tmp_path, wide(12).drop(index=[5, 6]).iloc[[0, 1, 3, 2, *range(4, 10), 9]])
        with pytest.raises(DataError) as caught:
            read(file)
        for part in (
            "rows out of order: 1 (the first is row 4)",
            "missing steps of h: 2 (the first is 2020-01-01 05:00:00)",
            "repeated stamps: 1 (the first is row 11: Wed 2020-01-01 11:00:00)",
            "--policy sort", "--id", "daylight saving",
        ):  # fmt: skip
            assert part in str(caught.value)
        own = read(file, Reading(policy="sort"))
        expected = wide(12)[["a", "b"]].to_numpy(copy=True)
        expected[5:7] = np.nan
        assert np.array_equal(own.series.values, expected, equal_nan=True)
        assert [own.counts[kind] for kind in ("unsorted", "duplicates", "gaps")] == [1, 1, 2]
        assert "Steps without a row, whose values are missing: 2." in own.said

    def test_repetitions_that_differ_are_averaged_only_by_resample(self, tmp_path):
        table = pd.concat([wide(12), wide(12).iloc[[3]].assign(a=5.0)])
        file = put(tmp_path, table.sort_values("when"))
        with pytest.raises(DataError, match=r"with other values: 1 .*--policy resample"):
            read(file, Reading(policy="sort"))
        own = read(file, Reading(policy="resample"))
        assert own.series.values[3].tolist() == [(wide()["a"][3] + 5) / 2, wide()["b"][3]]
        assert own.counts["differing"] == 1

    def test_jittered_stamps_snap_to_their_step(self, tmp_path):
        late = np.random.default_rng(0).integers(-300, 300, ROWS)
        table = wide().assign(when=wide()["when"] + pd.to_timedelta(late, "s"))
        own = read(put(tmp_path, table), Reading(freq="h"))
        assert list(own.series.times) == list(wide()["when"])
        assert own.counts["snapped"] == (late != 0).sum()
        table.loc[7, "when"] = table.loc[7, "when"] + pd.Timedelta("20min")
        with pytest.raises(DataError, match=r"do not fit a step of h: 1 .*row 8.*--policy resamp"):
            read(put(tmp_path, table), Reading(freq="h"))

    def test_a_stamp_far_off_is_told_before_the_memory_is_filled(self, tmp_path):
        for table, row, time in ((wide(30, "s"), 29, "when"), (long(), 19, "ds")):
            table.loc[row, time] = pd.Timestamp("2290-01-01")
            with pytest.raises(DataError, match="is a stamp wrong, or the step"):
                read(put(tmp_path, table), Reading(policy="sort"))

    def test_days_that_begin_at_two_times_in_utc_are_refused(self, tmp_path):
        hours = pd.date_range("2024-03-30", periods=72, freq="h", tz="Europe/Berlin")
        for name in ("hours.csv", "hours.parquet"):
            own = read(put(tmp_path, wide(72).assign(when=hours), name))
            assert (own.timezone, own.freq, own.counts["gaps"]) == ("UTC", "h", 0)
            assert own.series.times[0] == pd.Timestamp("2024-03-29 23:00")
        frame = wide(72).assign(when=pd.date_range("2024-02-01", periods=72, tz="Europe/Berlin"))
        fixed = frame.assign(when=pd.date_range("2024-02-01", periods=72, tz="Asia/Kolkata"))
        assert read_frame(frame, where="it").timezone == "naive", "days of a clock that changes"
        for name in ("sales.csv", "sales.parquet"):
            with pytest.raises(DataError, match="begin at 22:00 and at 23:00"):
                read(put(tmp_path, frame, name))
            assert read(put(tmp_path, fixed, name)).timezone == "UTC"


GOOD = [f"2020-01-01 {hour:02}:00,{hour}" for hour in range(6)]


def test_any_number_of_holes_is_filled():
    table = wide(400)
    for count in range(10):
        holes = np.linspace(20, 380, count).astype(int)[:, None] + np.arange(3)
        read = read_frame(table.drop(index=holes.ravel()), Reading(policy="sort"), where="here")
        assert len(read.series.times) == 400


def changed(row, line):
    """A good file, except for one row, counted from 1."""
    return "\n".join(["t,a", *GOOD[: row - 1], line, *GOOD[row:], ""])


class TestWrong:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("t,a\n", "no rows"),
            (changed(3, "2020-01-01 02:00,x"), "row 3 (2020-01-01 02:00), column 'a': expected"),
            (changed(6, "2020-01-01 05:00"), "row 6: expected 2 fields as in the header, got 1"),
            (changed(3, "2020-01-01 02:00,2,5"), "row 3: expected 2 fields as in the header, got"),
            (changed(3, "2020-13-01 02:00,2"), "row 3, column 't'"),
            (
                changed(5, "2020-01-01 04:00Z,2"),
                "row 5, column 't': '2020-01-01 04:00Z' is a stamp",
            ),
            ("t,u,a\n2020-01-01,2020-01-01,2\n", "'t', 'u' all hold stamps"),
            ("t,a\n2020-01-01,x\n2020-01-02,y\n", "no column of numbers is left to forecast"),
        ],
    )
    def test_files_that_do_not_fit(self, tmp_path, text, message):
        (tmp_path / "sales.csv").write_text(text)
        with pytest.raises(DataError, match=re.escape(message)) as caught:
            read(str(tmp_path / "sales.csv"))
        assert str(tmp_path / "sales.csv") in str(caught.value)

    def test_what_is_told_wrongly(self, tmp_path):
        file = put(tmp_path, wide().assign(c=np.nan))
        assert read(file).targets == ("a", "b")
        for reading, error, message in (
            (Reading(freq="hourly"), DataError, "'hourly'"),
            (Reading(targets=("a",), past_covariates=("a",)), UsageError, "'a' is given two roles"),
            (Reading(id=("a",), panel=True), UsageError, "--id and --static"),
            (Reading(targets=("c",)), DataError, "column 'c' has no value at all"),
        ):
            with pytest.raises(error, match=message):
                read(file, reading)


class TestHistory:
    def test_few_rows_are_enough(self):
        facts = Reading(time="when", targets=("a",), past_covariates=("b",), freq="h")
        assert told(wide(1), facts).series.values.tolist() == [[0, 0]]
        assert len(told(wide(3).set_index("when"), facts).series.times) == 3

    def test_stamps_without_a_zone_are_utc_where_those_of_the_model_were(self):
        zoned = long().assign(ds=long()["ds"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
        facts = Reading(time="ds", id=("unique_id",), targets=("y",), freq="h")
        same(*(told(frame, facts, "UTC") for frame in (long(), zoned)))
        with pytest.raises(DataError, match="with a time zone"):
            told(zoned, facts)


@settings(max_examples=40, deadline=None)
@given(
    freq=st.sampled_from(
        ["5min", "h", "6h", "D", "B", "W-TUE", "2W-SUN", "MS", "ME", "2MS", "QS-FEB", "YE-APR"]
    ),
    form=st.sampled_from(
        ["", "%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d-%b-%Y %H:%M", "%Y%m%d%H%M"]
    ),
    rows=st.integers(12, 90),
    zone=st.sampled_from([None, "UTC", "Asia/Tokyo"]),
    kind=st.sampled_from(["float64", "float32", "int16", "Int64", "float64[pyarrow]"]),
    separator=st.sampled_from([",", ";", "\t"]),
    pack=st.sampled_from(["csv", "csv.gz"]),
    gone=st.lists(st.integers(1, 10**6), max_size=2),
    seed=st.integers(0, 2**20),
)  # fmt: skip
def test_a_table_is_the_same_series_however_it_is_written(
    tmp_path_factory, freq, form, rows, zone, kind, separator, pack, gone, seed
):
    random = np.random.default_rng(seed)
    if freq == "B" and rows < 24:
        gone = []  # among so few days, gaps may look like weekends
    times = pd.date_range("2021-02-03", periods=rows, freq=freq)
    table = pd.DataFrame({c: random.integers(0, 99, rows) for c in "äb"}).astype(kind)
    table.insert(0, "ds", times)
    if zone is not None and freq in ("5min", "h", "6h"):
        table["ds"] = times.tz_localize("UTC").tz_convert(zone)
    kept = table.drop(index=sorted({row % (rows - 2) + 1 for row in gone} - {0, rows - 1}))
    folder = tmp_path_factory.mktemp("generated")
    own = read(put(folder, kept, "a.parquet"), Reading(policy="sort"))
    assert own.freq == freq
    assert list(own.series.times) == list(times)
    there = ~np.isnan(own.series.values).all(axis=1)
    assert own.counts["gaps"] == rows - len(kept) == (~there).sum()
    assert (own.series.values[there] == kept[["ä", "b"]].to_numpy(dtype=float)).all()
    assert own.timezone == ("naive" if kept["ds"].dt.tz is None else "UTC")
    same(history(kept, own.reading), own)

    written, again = kept, None
    if form and kept["ds"].dt.tz is None:
        written = kept.assign(ds=kept["ds"].dt.strftime(form))
    halves = written.assign(b=kept["b"].astype(float) + 0.5)  # so that the decimal sign shows
    decimal = "." if separator == "," else ","
    data = halves.to_csv(index=False, sep=separator, decimal=decimal).encode()
    (folder / f"a.{pack}").write_bytes(gzip.compress(data) if pack == "csv.gz" else data)
    reading = Reading(policy="sort")
    with contextlib.suppress(DataError):
        again = read(str(folder / f"a.{pack}"), reading)
    if again is None:
        with pytest.raises(DataError, match="no stamp of the file shows which"):
            read(str(folder / f"a.{pack}"), reading)
        told = {"%d": "day-first", "%m": "month-first", "%Y": "compact"}[form[:2]]
        again = read(str(folder / f"a.{pack}"), replace(reading, stamps=Stamps(told)))
    assert (again.freq, list(again.series.times)) == (freq, list(times))
    half = np.array([0, 0.5])
    assert np.array_equal(again.series.values, own.series.values + half, equal_nan=True)

    panel = read(put(folder, kept, "b.csv"), Reading(policy="sort", panel=True))
    melted = kept.melt("ds", var_name="unique_id", value_name="y")
    shuffled = melted.sample(frac=1, random_state=seed)
    (folder / "parts").mkdir()
    put(folder / "parts", shuffled[:rows], "1.csv")
    coded = shuffled.astype({"unique_id": "category"})
    put(folder / "parts", coded[rows:], "2.parquet")
    same(read(str(folder / "parts"), reading), panel)
    long = read_frame(coded, reading, where="it")
    same(long, panel)
    same(history(shuffled, long.reading), panel)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.sampled_from(
        [("10min", "h"), ("D", "B"), ("D", "W-SUN"), ("D", "W-WED"), ("D", "MS"), ("D", "ME"),
         ("D", "QS-JAN"), ("D", "YE-DEC")]
    ),
    seed=st.integers(0, 2**20),
    series=st.integers(1, 4),
    kept=st.floats(0.6, 1),
    repeated=st.integers(0, 9),
    holes=st.floats(0, 0.4),
    batch=st.sampled_from([5, 64, 2**18]),
)  # fmt: skip
def test_resampling_is_that_of_pandas(
    tmp_path_factory, steps, seed, series, kept, repeated, holes, batch
):
    random = np.random.default_rng(seed)
    fine = pd.date_range("2021-02-03", periods=120, freq=steps[0])
    index = pd.MultiIndex.from_product([[f"s{i}" for i in range(series)], fine])
    table = index.to_frame(index=False, name=["unique_id", "ds"])
    table["y"] = random.normal(size=len(table))
    table = table.sample(frac=kept, random_state=seed)
    table = pd.concat([table, table.iloc[:repeated].assign(y=1.0)])
    table.loc[random.random(len(table)) < holes, "y"] = np.nan
    table.iloc[0, 2] = 1.0  # the first rows show that the column has numbers
    file = put(tmp_path_factory.mktemp("generated"), table, "long.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forecaster.datasets.reader.formats.ROWS", batch)
        own = read(file, Reading(id=("unique_id",), freq=steps[1], policy="resample"))
    items = own.series.items
    for item, (name, rows) in enumerate(table.groupby("unique_id")):
        assert items.names[item] == name
        expected = rows.set_index("ds")["y"].resample(steps[1]).mean()
        begin, end = items.bounds[item], items.bounds[item + 1]
        np.testing.assert_allclose(own.series.values[begin:end, 0], expected, rtol=1e-9)
        times = own.series.times[items.places[item] :][: end - begin]
        assert list(times) == list(expected.index)


class TestNameless:
    """A time column without a name, as pandas writes an index."""

    def test_it_gets_a_name_that_a_history_has_too(self, tmp_path):
        file = tmp_path / "load.csv"
        wide().set_index("when").rename_axis(None).to_csv(file)
        found = read(str(file))
        assert (found.time, found.targets) == ("time", ("a", "b"))
        assert "The time column has no name, and is called 'time'." in found.said
        for other in (str(file), wide().rename(columns={"when": "time"})):
            again = history(other, found.reading)
            assert np.array_equal(again.series.values, found.series.values)
        assert read(str(file), Reading(time="time")).reading == found.reading

    def test_another_column_may_not_have_that_name(self, tmp_path):
        file = tmp_path / "load.csv"
        wide().set_index("when").rename_axis(None).rename(columns={"a": "time"}).to_csv(file)
        with pytest.raises(DataError, match="the time column has no name; give it one"):
            read(str(file))
