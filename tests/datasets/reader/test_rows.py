import gzip
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.base.errors import DataError, UnavailableError, UsageError
from forecaster.datasets.reader import history, read
from forecaster.datasets.reading import Reading

ROWS = 60


def wide(rows=ROWS, freq="h", start="2020-01-01"):
    steps = np.arange(rows)
    return pd.DataFrame(
        {
            "when": pd.date_range(start, periods=rows, freq=freq),
            "a": np.sin(steps * np.pi / 12),
            "b": steps / 7,
        }
    )


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


def regions():
    """Four series of 20 days, identified by two text columns together."""
    parts = [
        pd.DataFrame(
            {
                "day": pd.date_range("2020-01-01", periods=20),
                "state": state,
                "purpose": purpose,
                "trips": 100 * number + np.arange(20),
            }
        )
        for number, (state, purpose) in enumerate(
            [("N", "fun"), ("N", "work"), ("S", "fun"), ("S", "work")]
        )
    ]
    return pd.concat(parts, ignore_index=True)


def put(folder, table, name="sales.csv"):
    file = folder / name
    if name.endswith(".parquet"):
        table.to_parquet(file, index=False)
    else:
        table.to_csv(file, index=False)
    return str(file)


def text_file(folder, text):
    (folder / "sales.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / "sales.csv")


def same(one, other):
    assert one.series.digest == other.series.digest
    assert (one.freq, one.seasons, one.targets) == (other.freq, other.seasons, other.targets)


def told(source, reading, timezone):
    """Read as a model does that also knows the time zone."""
    return history(source, replace(reading, timezone=timezone))


class TestWide:
    def test_everything_is_inferred_and_said(self, tmp_path):
        own = read(put(tmp_path, wide().assign(note="fine")))
        assert (own.name, own.time, own.freq, own.timezone) == ("sales", "when", "h", "naive")
        assert own.columns == own.targets == ("a", "b")
        assert (own.id, own.series.items) == ((), None)
        assert own.seasons == (1,), "60 rows hold not two days before the last 30 %"
        assert (own.series.values == wide()[["a", "b"]].to_numpy()).all()
        assert list(own.series.times) == list(wide()["when"])
        assert own.said == (
            "The time is column 'when'.",
            "Targets: 'a', 'b'.",
            "Column 'note' (such as 'fine') has no role and is left out.",
            "The time step is h.",
            "No season was found.",
        )

    def test_what_is_told_is_not_inferred(self, tmp_path):
        reading = Reading(
            time="when", targets=("b",), past_covariates=("a",), freq="60min", seasons=(24, 168)
        )
        own = read(put(tmp_path, wide()), reading)
        assert own.columns == ("b", "a")
        assert (own.targets, own.freq, own.seasons, own.said) == (("b",), "h", (24, 168), ())

    @pytest.mark.parametrize("name", ["sales.csv.gz", "sales.parquet", "sales.pq"])
    def test_every_kind_of_file_is_the_same_series(self, tmp_path, name):
        file = tmp_path / name
        if name.endswith("gz"):
            file.write_bytes(gzip.compress(wide().to_csv(index=False).encode()))
        else:
            wide().to_parquet(file)
        same(read(str(file)), read(put(tmp_path, wide())))

    def test_a_byte_order_mark_and_other_line_ends_are_accepted(self, tmp_path):
        expected = read(put(tmp_path, wide()))
        text = wide().to_csv(index=False).replace("\n", "\r\n")
        same(read(text_file(tmp_path, b"\xef\xbb\xbf" + text.encode())), expected)

    def test_an_index_that_was_written_along_is_no_target(self, tmp_path):
        wide().to_csv(tmp_path / "sales.csv")
        own = read(str(tmp_path / "sales.csv"))
        assert own.targets == ("a", "b")
        assert "Column '' (numbers) has no role and is left out." in own.said

    def test_missing_cells_stay_missing_and_are_counted(self, tmp_path):
        cells = ["", "NaN", "null", "NA", " ", "nan"]
        lines = [f"2020-01-01 {hour:02}:00,{cell},1" for hour, cell in enumerate(cells)]
        own = read(text_file(tmp_path, "\n".join(["t,a,b", "2019-12-31 23:00, 7 ,2", *lines])))
        assert own.series.values[0].tolist() == [7, 2]
        assert np.isnan(own.series.values[1:, 0]).all()
        assert own.counts["missing"] == {"a": 6, "b": 0}
        assert "Missing values: 'a' 6." in own.said

    def test_flags_are_numbers_where_they_have_a_role(self, tmp_path):
        table = wide().assign(holiday=np.arange(ROWS) % 7 == 0)
        for name in ("sales.csv", "sales.parquet"):
            own = read(put(tmp_path, table, name), Reading(future_covariates=("holiday",)))
            assert own.series.known is not None
            assert own.series.known[:, 0].tolist() == (np.arange(ROWS) % 7 == 0).tolist()
            assert own.series.known_columns == ("holiday",)
            assert read(put(tmp_path, table, name)).targets == ("a", "b")

    def test_constant_columns_are_told(self, tmp_path):
        own = read(put(tmp_path, wide().assign(c=5)))
        assert own.counts["constant"] == ["c"]
        assert own.said[-1] == "Constant: 'c'."


class TestLong:
    def test_a_panel_of_series_of_different_lengths(self, tmp_path):
        own = read(put(tmp_path, long()), Reading(future_covariates=("promo",), static=("shop",)))
        items = own.series.items
        assert items is not None
        assert (own.id, own.time, own.columns) == (("unique_id",), "ds", ("y",))
        assert list(items.names) == ["s0", "s1", "s2"]
        assert items.bounds.tolist() == [0, 20, 50, 75]
        assert items.places.tolist() == [0, 5, 3]
        assert len(own.series.times) == 35
        assert (own.series.values[:, 0] == long()["y"]).all()
        assert own.series.known is not None
        assert (own.series.known[:, 0] == long()["promo"]).all()
        assert own.series.static["shop"].tolist() == ["north", "south", "north"]

    def test_the_order_of_the_rows_does_not_matter(self, tmp_path):
        reading = Reading(policy="sort", static=("shop",), future_covariates=("promo",))
        sorted_rows = read(put(tmp_path, long()), reading)
        for seed in range(3):
            shuffled = read(put(tmp_path, long().sample(frac=1, random_state=seed)), reading)
            same(shuffled, sorted_rows)
            assert shuffled.counts["unsorted"] > 0
        by_time = put(tmp_path, long().sort_values("ds", kind="stable"))
        same(read(by_time, Reading(static=("shop",), future_covariates=("promo",))), sorted_rows)

    def test_batches_do_not_matter(self, tmp_path, monkeypatch):
        reading = Reading(policy="resample")
        rows = pd.concat([long().sample(frac=1, random_state=1), long().iloc[:5]])
        file = put(tmp_path, rows, "sales.parquet")
        whole = read(file, reading)
        monkeypatch.setattr("forecaster.datasets.reader.formats.ROWS", 7)
        same(read(file, reading), whole)

    def test_the_id_may_have_any_name_and_type(self, tmp_path):
        named = long().rename(columns={"unique_id": "shop_name"}).drop(columns="shop")
        own = read(put(tmp_path, named))
        assert own.id == ("shop_name",)
        assert own.said[1] == (
            "Stamps repeat, once for each 'shop_name': the rows of a series share it."
        )
        numbered = long()[["unique_id", "ds", "y"]].replace({"s0": 10, "s1": 9, "s2": 100})
        own = read(put(tmp_path, numbered, "sales.parquet"), Reading(id=("unique_id",)))
        assert own.series.items is not None
        assert list(own.series.items.names) == ["9", "10", "100"]

    @pytest.mark.parametrize("name", ["STORE0", "ABC0", "Shop 202"])
    def test_ids_of_letters_and_digits_are_no_stamps(self, tmp_path, name):
        table = long().drop(columns="shop").rename(columns={"unique_id": "code", "ds": "when"})
        own = read(put(tmp_path, table.assign(code=table["code"].str.replace("s", name))))
        assert (own.time, own.id) == ("when", ("code",))

    def test_words_may_be_kept_as_categories(self, tmp_path):
        reading = Reading(static=("shop",))
        plain = read(put(tmp_path, long(), "plain.parquet"), reading)
        coded = long().astype({"unique_id": "category", "shop": "category"})
        same(read(put(tmp_path, coded, "coded.parquet"), reading), plain)
        facts = Reading(time="ds", id=("unique_id",), targets=("y",), static=("shop",), freq="h")
        again = told(coded, facts, "naive")
        assert again.series.digest == plain.series.digest
        some = told(coded[coded["unique_id"] != "s1"], facts, "naive").series
        assert some.items is not None
        assert list(some.items.names) == ["s0", "s2"]
        assert some.static["shop"].tolist() == ["north", "north"]

    @pytest.mark.parametrize(
        ("shops", "expected"), [(["7", "08"], [7, 8, 7]), (["7", "b"], ["7", "b", "7"])]
    )
    def test_attributes_are_numbers_where_all_of_them_are(self, tmp_path, shops, expected):
        table = long().replace({"shop": {"north": shops[0], "south": shops[1]}})
        for name in ("long.csv", "long.parquet"):
            own = read(put(tmp_path, table, name), Reading(static=("shop",)))
            assert own.series.static["shop"].tolist() == expected

    def test_without_an_id_the_message_says_how_to_name_it(self, tmp_path):
        table = long()[["unique_id", "ds", "y"]].replace({"s0": 10, "s1": 9, "s2": 100})
        file = put(tmp_path, table.rename(columns={"unique_id": "number"}))
        with pytest.raises(DataError, match=r"repeated stamps.*--id names the columns"):
            read(file)
        same = [f"2020-01-01 {hour:02}:00,{hour % 3}" for hour in (*range(9), 8)]
        with pytest.raises(DataError, match=r"--policy resample.*--id names the columns"):
            read(text_file(tmp_path, "\n".join(["t,a", *same, "2020-01-01 08:00,77"])))

    def test_the_parts_of_an_id_of_several_columns_make_its_name(self, tmp_path):
        table = regions()
        own = read(put(tmp_path, table), Reading(id=("state", "purpose")))
        assert own.series.items is not None
        assert own.id == ("state", "purpose")
        assert own.series.items.names == ("N / fun", "N / work", "S / fun", "S / work")
        assert own.series.values[:, 0].tolist() == sorted(table["trips"])
        with pytest.raises(DataError, match=r"repeated stamps.*--id names the columns"):
            read(put(tmp_path, table), Reading(targets=("trips",)))

    @pytest.mark.parametrize("word", ["fun / games", "/ fun"])
    def test_a_part_of_an_id_that_holds_the_mark_is_refused(self, tmp_path, word):
        table = regions().replace({"purpose": {"fun": word}, "state": {"N": "N /"}})
        with pytest.raises(DataError, match=r"'state', 'purpose': 'N / .* split again"):
            read(put(tmp_path, table), Reading(id=("state", "purpose")))

    def test_the_same_as_its_wide_form(self, tmp_path):
        table = wide()
        melted = table.melt("when", var_name="unique_id", value_name="y")
        pair = (
            read(put(tmp_path, table), Reading(panel=True)),
            read(put(tmp_path, melted, "long.csv")),
        )
        same(*pair)
        assert pair[0].reading.panel
        assert pair[0].columns == ("y",)

    def test_the_series_of_a_wide_panel_begin_and_end_with_their_values(self, tmp_path):
        table = wide()
        table.loc[:2, "a"] = table.loc[50:, "a"] = table.loc[30, "b"] = np.nan
        items = read(put(tmp_path, table), Reading(panel=True)).series.items
        assert items is not None
        assert (items.bounds.tolist(), items.places.tolist()) == ([0, 47, 107], [3, 0])
        ahead = Reading(panel=True, targets=("a", "b"), future_covariates=("c",))
        own = read(put(tmp_path, table.assign(c=wide()["a"] + 1)), ahead)
        assert own.series.items is not None
        assert own.series.items.bounds.tolist() == [0, 57, 117]
        assert own.series.known is not None
        assert (own.series.known[57:, 0] == wide()["a"] + 1).all()

    @pytest.mark.parametrize(
        ("column", "cell", "message"),
        [
            ("shop", "south", "row 3, column 'shop': south, but earlier rows have another value"),
            ("shop", None, "row 3, column 'shop': no value of a static attribute"),
            ("shop", "", "row 3, column 'shop': no value of a static attribute"),
            ("unique_id", None, "row 3, column 'unique_id': no value"),
            ("promo", None, "the future covariate 'promo' has no value at 2020-01-01 02:00:00 of "
             "'s0' (1 are missing)"),
        ],
    )  # fmt: skip
    def test_cells_that_do_not_fit_their_role(self, tmp_path, column, cell, message):
        table = long()
        table[column] = table[column].astype(object)
        table.loc[2, column] = cell
        reading = Reading(id=("unique_id",), future_covariates=("promo",), static=("shop",))
        with pytest.raises(DataError, match=re.escape(message)):
            read(put(tmp_path, table, "sales.parquet"), reading)


class TestFiles:
    def test_files_of_overlapping_times_are_a_panel(self, tmp_path):
        for name, shift in (("tokyo", 0), ("oslo", 10)):
            put(tmp_path, wide().assign(a=shift), f"{name}.csv")
        own = read(str(tmp_path))
        assert own.series.items is not None
        assert list(own.series.items.names) == ["oslo", "tokyo"]
        assert own.series.values[:, 0].tolist() == [10] * ROWS + [0] * ROWS
        assert (own.name, own.id) == (tmp_path.name, ("file",))
        facts = Reading(time="when", id=("file",), targets=("a", "b"), freq="h")
        assert told(tmp_path, facts, "naive").series.digest == own.series.digest
        alone = told(tmp_path / "tokyo.csv", facts, "naive").series
        assert alone.items is not None
        assert list(alone.items.names) == ["tokyo"]
        frame = pd.concat([wide().assign(a=i, file=n) for i, n in ((0, "tokyo"), (10, "oslo"))])
        assert told(frame, facts, "naive").series.digest == own.series.digest
        with pytest.raises(DataError, match="column 'file' not found"):
            told(wide(), facts, "naive")
        said = "2 files with overlapping times: each is a series, named by its file."
        assert said in own.said

    def test_files_of_consecutive_times_are_parts_of_one_series(self, tmp_path):
        put(tmp_path, wide().iloc[40:], "a.csv")
        put(tmp_path, wide().iloc[:40], "b.csv")
        own = read(str(tmp_path / "*.csv"))
        assert own.series.items is None
        assert own.name == tmp_path.name
        assert (own.series.values == wide()[["a", "b"]].to_numpy()).all()

    def test_columns_of_files_that_are_series_are_no_series_again(self, tmp_path):
        for name in ("tokyo", "oslo"):
            put(tmp_path, wide(), f"{name}.csv")
        with pytest.raises(UsageError, match="2 files with overlapping times are one series each"):
            read(str(tmp_path), Reading(panel=True))

    def test_a_row_that_two_parts_share_is_a_repetition(self, tmp_path):
        put(tmp_path, wide().iloc[:41], "a.csv")
        put(tmp_path, wide().iloc[40:], "b.csv")
        put(tmp_path, wide(), ".hidden.csv")
        with pytest.raises(DataError, match=r"repeated stamps: 1 \(the first is b.csv, row 1:"):
            read(str(tmp_path))
        own = read(str(tmp_path), Reading(policy="sort"))
        assert own.series.items is None
        assert len(own.series.times) == ROWS

    def test_files_with_an_id_are_one_table(self, tmp_path):
        expected = read(put(tmp_path, long(), "whole.parquet"), Reading(id=("unique_id",)))
        folder = tmp_path / "parts"
        folder.mkdir()
        put(folder, long().iloc[:33], "1.csv")
        put(folder, long().iloc[33:], "2.csv")
        same(read(str(folder), Reading(id=("unique_id",))), expected)
        same(read(str(folder)), expected)

    def test_files_of_other_columns_are_refused(self, tmp_path):
        put(tmp_path, wide(), "a.csv")
        put(tmp_path, wide().rename(columns={"b": "c"}), "b.csv")
        with pytest.raises(DataError, match=r"b\.csv has other columns than .*'b', 'c' are in"):
            read(str(tmp_path))

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("none.csv", "none.csv does not exist"),
            ("*.csv", "matches no file"),
            ("", "holds no data file"),
        ],
    )
    def test_nothing_to_read(self, tmp_path, path, message):
        with pytest.raises(UnavailableError, match=re.escape(message)):
            read(str(tmp_path / path))


class TestPolicy:
    def irregular(self, folder, **more):
        table = wide(12).drop(index=[5, 6]).iloc[[0, 1, 3, 2, *range(4, 10), 9]]
        return put(folder, table.assign(**more))

    def test_an_error_counts_everything_and_names_the_flag(self, tmp_path):
        with pytest.raises(DataError) as caught:
            read(self.irregular(tmp_path))
        text = str(caught.value)
        assert "rows out of order: 1 (the first is row 4: 2020-01-01 02:00:00)" in text
        assert "missing steps of h: 2 (the first is 2020-01-01 05:00:00)" in text
        assert "repeated stamps: 1 (the first is row 11: Wed 2020-01-01 11:00:00)" in text
        assert "--policy sort" in text
        assert "daylight saving" in text

    def test_sort_repairs_the_order_and_leaves_gaps_missing(self, tmp_path):
        own = read(self.irregular(tmp_path), Reading(policy="sort"))
        expected = wide(12)[["a", "b"]].to_numpy(copy=True)
        expected[5:7] = np.nan
        assert np.array_equal(own.series.values, expected, equal_nan=True)
        assert {kind: own.counts[kind] for kind in ("unsorted", "duplicates", "gaps")} == {
            "unsorted": 1, "duplicates": 1, "gaps": 2,
        }  # fmt: skip
        assert "Steps without a row, whose values are missing: 2." in own.said

    def test_repetitions_that_differ_are_averaged_only_by_resample(self, tmp_path):
        table = pd.concat([wide(12), wide(12).iloc[[3]].assign(a=5.0)])
        file = put(tmp_path, table.sort_values("when"))
        with pytest.raises(DataError, match=r"repeated stamps with other values: 1 .*--policy res"):
            read(file, Reading(policy="sort"))
        own = read(file, Reading(policy="resample"))
        assert own.series.values[3, 0] == (wide()["a"][3] + 5) / 2
        assert own.series.values[3, 1] == wide()["b"][3]
        assert own.counts["differing"] == 1

    def test_resample_averages_what_is_there(self, tmp_path):
        fine = wide(24 * 4, "15min")
        fine.loc[[0, 1, 2, 3, 9], "a"] = np.nan
        file = put(tmp_path, fine)
        with pytest.raises(DataError, match="stamps that do not fit a step of h: 72 "):
            read(file, Reading(freq="h"))
        own = read(file, Reading(freq="h", policy="resample"))
        expected = fine.set_index("when").resample("h").mean()
        np.testing.assert_allclose(own.series.values, expected, rtol=1e-14)
        assert list(own.series.times) == list(expected.index)

    @pytest.mark.parametrize("freq", ["B", "W-SUN", "W-WED", "MS", "ME", "QS-JAN", "YE-DEC"])
    def test_resample_to_steps_of_the_calendar(self, tmp_path, freq):
        days = wide(800, "D")
        own = read(put(tmp_path, days), Reading(freq=freq, policy="resample"))
        expected = days.set_index("when").resample(freq).mean()
        np.testing.assert_allclose(own.series.values, expected, rtol=1e-12, atol=1e-12)
        assert list(own.series.times) == list(expected.index)

    def test_jittered_stamps_snap_to_their_step(self, tmp_path):
        late = np.random.default_rng(0).integers(-300, 300, ROWS)
        table = wide().assign(when=wide()["when"] + pd.to_timedelta(late, "s"))
        own = read(put(tmp_path, table), Reading(freq="h"))
        assert list(own.series.times) == list(wide()["when"])
        assert own.counts["snapped"] == (late != 0).sum()
        table.loc[7, "when"] = table.loc[7, "when"] + pd.Timedelta("20min")
        with pytest.raises(
            DataError, match=r"stamps that do not fit a step of h: 1 .*row 8.*--policy resample"
        ):
            read(put(tmp_path, table), Reading(freq="h"))

    def test_a_stamp_far_off_is_told_before_the_memory_is_filled(self, tmp_path):
        table = wide(30, "s")
        table.loc[29, "when"] = pd.Timestamp("2170-01-01")
        with pytest.raises(DataError, match="is a stamp wrong, or the step"):
            read(put(tmp_path, table), Reading(policy="sort"))

    def test_a_series_of_a_panel_that_is_far_off(self, tmp_path):
        table = long()
        table.loc[19, "ds"] = pd.Timestamp("2290-01-01")
        with pytest.raises(DataError, match="is a stamp wrong, or the step"):
            read(put(tmp_path, table), Reading(policy="sort"))


class TestZones:
    def local(self, zone="Europe/Berlin", rows=72, start="2024-03-30"):
        return wide(rows).assign(when=pd.date_range(start, periods=rows, freq="h", tz=zone))

    def test_stamps_with_an_offset_are_utc(self, tmp_path):
        table = self.local()
        for name in ("sales.csv", "sales.parquet"):
            own = read(put(tmp_path, table, name))
            assert (own.timezone, own.freq, own.counts["gaps"]) == ("UTC", "h", 0)
            assert own.series.times[0] == pd.Timestamp("2024-03-29 23:00")

    @pytest.mark.parametrize(
        ("start", "message"),
        [
            ("2024-03-30", "missing steps of h: 1 (the first is 2024-03-31 02:00:00)"),
            ("2024-10-26", "repeated stamps: 1 (the first is row 28: Sun 2024-10-27 02:00:00)"),
        ],
    )
    def test_the_local_clock_leaves_gaps_and_repeats(self, tmp_path, start, message):
        table = self.local(start=start)
        table["when"] = table["when"].dt.tz_localize(None)
        with pytest.raises(DataError, match=re.escape(message)) as caught:
            read(put(tmp_path, table))
        assert "daylight saving" in str(caught.value)

    @pytest.mark.parametrize("name", ["sales.csv", "sales.parquet"])
    def test_days_that_begin_at_two_times_in_utc_are_refused(self, tmp_path, name):
        days = pd.date_range("2024-02-01", periods=72, tz="Europe/Berlin")
        with pytest.raises(DataError, match=r"begin at 22:00 and at 23:00 .* in local time"):
            read(put(tmp_path, wide(72).assign(when=days), name))
        same = wide(72).assign(when=days.tz_localize(None).tz_localize("Asia/Kolkata"))
        assert read(put(tmp_path, same, name)).timezone == "UTC"

    @pytest.mark.parametrize("row", [3, 50])
    def test_both_kinds_of_stamps_are_refused(self, tmp_path, row):
        table = wide()
        table["when"] = table["when"].astype(str)
        table.loc[row, "when"] += "Z"
        with pytest.raises(DataError, match=rf"row {row + 1}, column 'when'.*either all stamps"):
            read(put(tmp_path, table))


class TestWrong:
    @pytest.mark.parametrize(
        ("cell", "message"),
        [
            ("x", "expected a number, got 'x'"),
            ("1_0", "expected a number, got '1_0'"),
            ("true", "expected a number, got 'true'"),
            ("inf", "expected a finite number, got inf"),
            ("1e400", "expected a finite number, got 1e400"),
        ],
    )
    def test_cells_are_named_by_file_row_column_and_value(self, tmp_path, cell, message):
        table = wide().astype({"b": object})
        table.loc[40, "b"] = cell
        with pytest.raises(DataError) as caught:
            read(put(tmp_path, table))
        where = tmp_path / "sales.csv"
        assert str(caught.value) == f"{where}, row 41 (2020-01-02 16:00:00), column 'b': {message}"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the file is empty"),
            ("t,a\n", "no rows below the header"),
            ("t;a\n2020-01-01;1,5\n", "no series has two stamps"),
            ("2020-01-01,1\n2020-01-02,2\n", "the first line holds a stamp, '2020-01-01'"),
            ("t,p\n2020-01-01,x1\n2020-01-02,x\n", "Other columns: 'p' (such as 'x1'). --target"),
            ("ds,unique_id,y\n2020-01-01,,1\n2020-01-01,,2\n", "row 1, column 'unique_id': no val"),
            (
                "t,a\n2020-01-01,1\n2020-01-02,1,5\n",
                "A field that holds the separator needs quotes",
            ),
            ("t,a\n2020-01-01,1\n2020-01-02\n", "row 2: expected 2 fields as in the header, got 1"),
            ("t,ä\n".encode() + b"2020-01-01,\xe9\n" * 9999, "line 2: byte 0xe9 is not UTF-8, as"),
            (b"\0\1\2\3" * 99, "the bytes are not a text"),
            ("t,a,a\n2020-01-01,1,2\n", "column 'a' appears twice"),
            ("a,b\n1,2\n", "no column holds stamps such as 2016-07-01 00:00:00; name the time"),
            ("t,u,a\n2020-01-01,2020-01-01,2\n", "'t', 'u' all hold stamps"),
            ("t,a\n2020-01-01,x\n2020-01-02,y\n", "no column of numbers is left to forecast"),
            ("t,a\n2020-01-01,1\n", "no series has two stamps"),
            ("t,a\n2020-01-01,1\n,2\n2020-01-03,1\n", "column 't': an empty stamp"),
            ("t,a\n2020-01-01,1\nsoon,2\n2020-01-03,1\n", "row 2, column 't': expected a stamp"),
            (
                "t,a\n01/02/2020,1\n02/02/2020,2\n",
                "'01/02/2020' is 1 February 2020 or 2 January 2020, and no",
            ),
            (
                "t,a\n13/02/2020,1\n02/14/2020,2\n",
                "'02/14/2020' is no date with the day first, '13/02/2020' none with the month",
            ),
        ],
    )
    def test_files_that_do_not_fit(self, tmp_path, text, message):
        with pytest.raises(DataError, match=re.escape(message)):
            read(text_file(tmp_path, text))

    @pytest.mark.parametrize(
        ("reading", "message"),
        [
            (Reading(targets=("c",)), "column 'c' not found. Expected 'c'; got 'when', 'a', 'b'"),
            (Reading(freq="hourly"), "unknown time step 'hourly'"),
        ],
    )
    def test_what_is_told_wrongly(self, tmp_path, reading, message):
        with pytest.raises(DataError, match=re.escape(message)):
            read(put(tmp_path, wide()), reading)

    def test_roles_exclude_one_another(self, tmp_path):
        with pytest.raises(UsageError, match="column 'a' is given two roles"):
            read(put(tmp_path, wide()), Reading(targets=("a",), past_covariates=("a",)))
        with pytest.raises(UsageError, match="--id and --static cannot be used"):
            read(put(tmp_path, long()), Reading(id=("unique_id",), panel=True))

    def test_a_column_without_a_value_is_named(self, tmp_path):
        file = put(tmp_path, wide().assign(c=np.nan))
        assert (
            "Column 'c' (no value in the first rows) has no role and is left out."
            in read(file).said
        )
        with pytest.raises(DataError, match="column 'c' has no value at all"):
            read(file, Reading(targets=("a", "c")))

    @pytest.mark.parametrize("name", ["sales.parquet", "sales.csv.gz"])
    def test_half_a_file(self, tmp_path, name):
        table = pd.DataFrame(
            {"t": pd.date_range("2020", periods=999), "a": np.random.default_rng(0).random(999)}
        )
        file = Path(put(tmp_path, table, name))
        file.write_bytes(file.read_bytes()[:-999])
        with pytest.raises(DataError, match=r"not a complete (Parquet|gzip) file"):
            read(str(file))


class TestStamps:
    @pytest.mark.parametrize("pattern", ["%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M", "%Y/%m/%d %H:%M"])
    def test_forms_that_the_stamps_decide(self, tmp_path, pattern):
        table = wide(24 * 20)
        written = table.assign(when=table["when"].dt.strftime(pattern))
        same(read(put(tmp_path, written, "b.csv")), read(put(tmp_path, table)))

    def test_months_need_no_day(self, tmp_path):
        table = wide(30, "MS")
        written = table.assign(when=table["when"].dt.strftime("%Y-%m"))
        same(read(put(tmp_path, written, "b.csv")), read(put(tmp_path, table)))


class TestHistory:
    FACTS = Reading(time="ds", id=("unique_id",), targets=("y",), freq="h")

    def test_a_frame_and_a_file_are_read_alike(self, tmp_path):
        trained = read(put(tmp_path, long()))
        for source in (long(), put(tmp_path, long()), tmp_path / "sales.csv"):
            again = told(source, self.FACTS, "naive")
            assert again.series.digest == trained.series.digest
            assert again.said == ()

    def test_few_rows_are_enough(self):
        facts = Reading(time="when", targets=("a",), past_covariates=("b",), freq="h")
        own = told(wide(1), facts, "naive")
        assert own.series.values.tolist() == [[0, 0]]
        assert own.columns == ("a", "b")
        indexed = told(wide(3).set_index("when"), facts, "naive")
        assert len(indexed.series.times) == 3

    def test_stamps_of_another_kind_are_refused(self):
        frame = long().assign(ds=long()["ds"].dt.tz_localize("UTC"))
        with pytest.raises(DataError, match="with a time zone"):
            told(frame, self.FACTS, "naive")

    def test_stamps_without_a_zone_are_utc_where_those_of_the_model_were(self):
        zoned = long().assign(ds=long()["ds"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
        both = [told(frame, self.FACTS, "UTC") for frame in (long(), zoned)]
        same(*both)
        assert [own.timezone for own in both] == ["UTC", "UTC"]

    def test_cells_of_a_frame_are_named(self):
        frame = long().astype({"y": object})
        frame.loc[4, "y"] = "x"
        with pytest.raises(DataError, match=r"the history, row 5 .*expected a number, got 'x'"):
            told(frame, self.FACTS, "naive")

    def test_facts_must_be_whole(self):
        with pytest.raises(ValueError, match="leaves out"):
            told(long(), Reading(), "naive")


@settings(max_examples=60, deadline=None)
@given(
    freq=st.sampled_from(
        ["5min", "h", "6h", "D", "B", "W-TUE", "2W-SUN", "MS", "ME", "2MS", "QS-FEB", "YE-APR"]
    ),
    rows=st.integers(12, 90),
    zone=st.sampled_from([None, "UTC", "Asia/Tokyo"]),
    kind=st.sampled_from(["float64", "float32", "int16", "Int64", "float64[pyarrow]"]),
    gone=st.lists(st.integers(1, 10**6), max_size=2),
    seed=st.integers(0, 2**20),
)  # fmt: skip
def test_generated_frames(tmp_path_factory, freq, rows, zone, kind, gone, seed):
    """Step, stamps, gaps and values are found; long rows in any order equal the wide panel."""
    random = np.random.default_rng(seed)
    if freq == "B" and rows < 24:
        gone = []  # among so few days, gaps may look like weekends
    times = pd.date_range("2021-02-03", periods=rows, freq=freq)
    table = pd.DataFrame({c: random.integers(0, 99, rows) for c in "ab"}).astype(kind)
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
    assert (own.series.values[there] == kept[["a", "b"]].to_numpy(dtype=float)).all()
    assert own.timezone == ("naive" if kept["ds"].dt.tz is None else "UTC")
    same(read(put(folder, kept, "a.csv"), Reading(policy="sort")), own)
    panel = read(put(folder, kept, "a.csv"), Reading(policy="sort", panel=True))
    melted = kept.melt("ds", var_name="unique_id", value_name="y")
    shuffled = melted.sample(frac=1, random_state=seed)
    same(read(put(folder, shuffled, "long.parquet"), Reading(policy="sort")), panel)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    series=st.integers(1, 4),
    kept=st.floats(0.6, 1),
    repeated=st.integers(0, 9),
    holes=st.floats(0, 0.4),
    batch=st.sampled_from([5, 64, 2**18]),
)
def test_resampling_is_that_of_pandas(tmp_path_factory, seed, series, kept, repeated, holes, batch):
    """Rows of a panel in any order, with gaps, repetitions and missing values, against pandas."""
    random = np.random.default_rng(seed)
    fine = pd.date_range("2021-02-03", periods=120, freq="10min")
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
        own = read(file, Reading(id=("unique_id",), freq="h", policy="resample"))
    items = own.series.items
    assert items is not None
    for item, (name, rows) in enumerate(table.groupby("unique_id")):
        assert items.names[item] == name
        expected = rows.set_index("ds")["y"].resample("h").mean()
        begin, end = items.bounds[item], items.bounds[item + 1]
        np.testing.assert_allclose(own.series.values[begin:end, 0], expected, rtol=1e-9)
        times = own.series.times[items.places[item] :][: end - begin]
        assert list(times) == list(expected.index)


@pytest.mark.data
def test_the_electricity_columns_in_both_forms_are_the_same_panel(tmp_path):
    file = Path(os.environ["FORECASTER_DATA"]) / (
        "electricity/electricity_203clients_first1000rows.csv"
    )
    wide_form = read(str(file), Reading(panel=True))
    melted = pd.read_csv(file).melt("date", var_name="unique_id", value_name="y")
    same(read(put(tmp_path, melted, "long.csv")), wide_form)
    same(read(put(tmp_path, melted, "long.parquet")), wide_form)
    assert wide_form.series.items is not None
    assert len(wide_form.series.items) == 203
    assert wide_form.seasons == (24, 168)


def test_columns_without_a_role_are_said(tmp_path):
    table = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=50, freq="h"), "a": 1.5, "b": 2})
    table["a"] += np.arange(50)
    table.to_csv(tmp_path / "x.csv", index=False)
    said = read(str(tmp_path / "x.csv"), Reading(targets=("a",))).said
    assert "Left out, without a role: 'b'. --past-covariates reads a column." in said
    own = read(str(tmp_path / "x.csv"), Reading(targets=("a",), past_covariates=("b",)))
    assert not [sentence for sentence in own.said if "Left out" in sentence]
