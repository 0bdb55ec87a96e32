import gzip
import os
import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.base.errors import DataError, UsageError
from forecaster.datasets import Windows, load_card, locate
from forecaster.datasets.calendar import normalise_freq
from forecaster.datasets.card import Bare, Source
from forecaster.datasets.reader import history, read_card
from forecaster.datasets.reader.cards import card_reading
from forecaster.datasets.reading import Reading

STAMPS = [f"2020-01-01 {hour:02}:00:00" for hour in range(6)]
ROWS = [f"{row},{row}.5" for row in range(6)]
VALUES = np.array([[row, row + 0.5] for row in range(6)])


def card_of(columns=("a", "b"), freq="h", **facts):
    card = load_card("ETTh1")
    own = {"columns": tuple(columns), "target": columns[0], "freq": freq, "timezone": "UTC"}
    return card.model_copy(update={**own, **facts})


def read(tmp_path, text, columns=("a", "b"), freq="h", **facts):
    file = tmp_path / "some.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_card(card_of(columns, normalise_freq(freq), **facts), file).series


def table(stamps, rows):
    lines = [f"{stamp},{row}" for stamp, row in zip(stamps, rows, strict=True)]
    return "\n".join(["date,a,b", *lines, ""])


def cells(row, text):
    """A good file, except for the cells of one row, counted from 1."""
    return table(STAMPS, [*ROWS[: row - 1], text, *ROWS[row:]])


def stamp(row, text):
    """A good file, except for the stamp of one row, counted from 1."""
    return table([*STAMPS[: row - 1], text, *STAMPS[row:]], ROWS)


GOOD = table(STAMPS, ROWS)


def test_a_good_file(tmp_path):
    series = read(tmp_path, GOOD)
    assert (series.values == VALUES).all()
    assert series.values.dtype == np.float64
    assert list(series.times) == [pd.Timestamp(stamp) for stamp in STAMPS]
    assert series.columns == ("a", "b")
    assert series.freq == "h"
    assert series.source.endswith("some.csv")


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace("\n", "\r\n"),
        GOOD.rstrip("\n"),
        GOOD + "\n\n",
        GOOD.replace("2020-01-01 ", "2020/1/1 "),
        GOOD.replace("2020-01-01 ", "2020-01-01T"),
        GOOD.replace(":00,", ":00Z,"),
        GOOD.replace(":00,", ":00+00:00,"),
        GOOD.replace(",0,", ", 0 ,"),
        GOOD.replace("\n", ",x\n"),
        GOOD.replace(",", ";"),
        GOOD.encode("utf-16"),
    ],
    ids=[
        "bom",
        "crlf",
        "no-last-newline",
        "blank-lines",
        "slashes",
        "T",
        "Z",
        "+00",
        "spaces",
        "more",
        "semicolons",
        "utf-16",
    ],
)
def test_the_same_series_in_other_clothes(tmp_path, text):
    series = read(tmp_path, text)
    assert series.digest == read(tmp_path, GOOD).digest


def test_columns_in_any_order_come_back_in_the_order_asked(tmp_path):
    text = "\n".join(",".join(reversed(line.split(","))) for line in GOOD.splitlines())
    assert read(tmp_path, text).digest == read(tmp_path, GOOD).digest
    assert (read(tmp_path, GOOD, columns=("b", "a")).values == VALUES[:, ::-1]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (b"\xef\xbb\xbf\r\n", "the file is empty"),
        ("date,a,b\n", "no rows below the header"),
        (cells(3, "12a,2.5"), f"row 3 ({STAMPS[2]}), column 'a': expected a number, got '12a'"),
        (cells(2, "TRUE,1"), f"row 2 ({STAMPS[1]}), column 'a': expected a number, got 'TRUE'"),
        (cells(2, "1_0,1"), f"row 2 ({STAMPS[1]}), column 'a': expected a number, got '1_0'"),
        (cells(5, "inf,1"), f"row 5 ({STAMPS[4]}), column 'a': expected a finite number, got inf"),
        (cells(5, "1e400,1"), f"row 5 ({STAMPS[4]}), column 'a': expected a finite number, got"),
        (
            cells(6, "5"),
            "row 6: expected 3 fields as in the header, got 2: '2020-01-01 05:00:00,5'",
        ),
        (cells(3, "2,2,5"), "row 3: expected 3 fields as in the header, got 4"),
        (stamp(3, STAMPS[1]), f"repeated stamps: 1 (the first is row 3: Wed {STAMPS[1]})"),
        (
            stamp(3, STAMPS[4]),
            f"rows out of order: 1 (the first is row 4: {STAMPS[3]})",
        ),
        (
            stamp(6, "2020-01-01 07:00:00"),
            f"missing steps of h: 2 (the first is {STAMPS[5]})",
        ),
        (
            stamp(3, "2020-01-01 02:20:00"),
            "stamps that do not fit a step of h: 1 (the first is row 3: Wed 2020-01-01 02:20:00)",
        ),
        (stamp(3, ""), "row 3, column 'date': an empty stamp"),
        (
            stamp(3, "yesterday"),
            "row 3, column 'date': expected a stamp with the year first, such as "
            "2016-07-01 00:00:00, got 'yesterday'",
        ),
        (stamp(1, "now"), "row 1, column 'date': expected a stamp"),
        (stamp(3, "2020-13-01 02:00:00"), "row 3, column 'date': the date or time '2020-13"),
        (GOOD.replace("2020-01-01", "01/02/2020"), "is 1 February 2020 or 2 January 2020"),
        (
            stamp(2, STAMPS[1] + "Z"),
            f"row 2, column 'date': '{STAMPS[1]}Z' is a stamp with a time zone, but the others",
        ),
        (GOOD.replace("a,b", "a,c"), "column 'b' not found. Expected 'date', 'a', 'b'; got 'date'"),
        ("date,a,a,b\n2020-01-01,1,2,3\n", "column 'a' appears twice"),
        ("date,a,b\n2020-01-01 00:00,1,é\n".encode("latin-1"), "expected a number, got 'é'"),
    ],
)
def test_what_does_not_fit_is_named_by_file_row_column_and_value(tmp_path, text, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "some.csv") in str(caught.value)


def irregular(tmp_path, hours, **facts):
    rows = [f"{STAMPS[hour]},{row}" for row, hour in enumerate(hours)]
    return read(tmp_path, "\n".join(["date,a", *rows, ""]), ["a"], **facts)


def test_the_rows_of_an_irregular_card_count_as_evenly_spaced(tmp_path):
    series = irregular(tmp_path, (0, 1, 1, 2, 5), irregular=True)
    assert [str(time) for time in series.times] == [STAMPS[hour] for hour in (0, 1, 1, 2, 5)]
    assert series.values[:, 0].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="repeated stamps"):
        irregular(tmp_path, (0, 1, 1, 2, 5))
    with pytest.raises(DataError, match="rows out of order: 1"):
        irregular(tmp_path, (0, 1, 0, 2), irregular=True)


def test_a_stretch_of_an_irregular_file_is_read_row_by_row(tmp_path):
    card = card_of(["a"], irregular=True)
    stretch = pd.DataFrame({"date": [STAMPS[hour] for hour in (1, 1, 2, 5)], "a": range(4)})
    found = history(stretch, card_reading(card, Path("some.csv")))
    assert found.series.values[:, 0].tolist() == [0, 1, 2, 3]
    assert str(found.series.times[-1]) == STAMPS[5]


def test_an_empty_cell_is_a_missing_value(tmp_path):
    series = read(tmp_path, cells(2, ",NaN"))
    assert np.isnan(series.values).tolist() == [[row == 1] * 2 for row in range(6)]


def test_the_roles_choose_among_the_columns_of_a_card(tmp_path):
    file = tmp_path / "some.csv"
    file.write_text(GOOD)
    card = card_of()
    found = read_card(card, file, Reading(targets=("b",)))
    assert (found.targets, found.columns, found.features) == (("b",), ("a", "b"), "MS")
    alone = read_card(card, file, Reading(targets=("b",), future_covariates=("a",)), "S")
    assert (alone.columns, alone.series.known_columns) == (("b",), ("a",))
    assert found.digest == alone.digest == read_card(card, file).digest
    with pytest.raises(UsageError, match=r"ETTh1 has no column 'c'\. It has a, b\."):
        read_card(card, file, Reading(targets=("c",)))


@pytest.mark.parametrize(
    ("said", "features", "columns", "known"),
    [
        ({}, None, ("c",), ("a", "b")),
        ({}, "MS", ("c",), ("a", "b")),
        ({}, "S", ("c",), ()),
        ({}, "M", ("a", "b", "c"), ()),
        ({"future_covariates": ("a",)}, "S", ("c",), ("a",)),
        ({"future_covariates": ("a",)}, None, ("b", "c"), ("a",)),
        ({"past_covariates": ("a",)}, None, ("a", "c"), ("b",)),
        ({"past_covariates": ("a", "b")}, None, ("a", "b", "c"), ()),
        ({"targets": ("a",)}, None, ("a", "c"), ("b",)),
    ],
)
def test_the_future_covariates_of_a_card(tmp_path, said, features, columns, known):
    lines = ["date, a, b,c", *(f"{stamp},{row},1" for stamp, row in zip(STAMPS, ROWS, strict=True))]
    file = tmp_path / "some.csv"
    file.write_text("\n".join(lines))
    card = card_of(("a", "b", "c"), target="c", future_covariates=("a", "b"))
    found = read_card(card, file, Reading(**said), features)
    assert (found.columns, found.series.known_columns) == (columns, known)
    assert found.features == (features or "MS")
    if found.features != "M":
        assert found.targets == said.get("targets", ("c",))
    again = read_card(card, file, Reading(**{**said, "targets": found.targets}), found.features)
    if found.features != "M":
        assert (again.columns, again.series.known_columns) == (columns, known)
    assert found.digest == again.digest == read_card(card, file).digest


def test_a_card_may_predict_several_columns_from_what_is_known_ahead(tmp_path):
    lines = ["date,a,b,c", *(f"{stamp},{row},1" for stamp, row in zip(STAMPS, ROWS, strict=True))]
    (tmp_path / "some.csv").write_text("\n".join(lines))
    facts = {"target": "c", "targets": ("b", "c"), "future_covariates": ("a",)}
    card = card_of(("a", "b", "c"), **facts)
    found = read_card(card, tmp_path / "some.csv")
    assert (found.targets, found.columns, found.main_target) == (("b", "c"), ("b", "c"), "c")
    assert found.series.known_columns == ("a",)
    alone = read_card(card, tmp_path / "some.csv", Reading(targets=("b",)))
    assert (alone.targets, alone.columns) == (("b",), ("b", "c"))


def test_days_without_a_time(tmp_path):
    series = read(tmp_path, "date,a\n2020-02-28,1\n2020-02-29,2\n2020-03-01,3\n", ["a"], "D")
    assert list(series.times) == list(pd.date_range("2020-02-28", periods=3, freq="D"))


def test_a_daylight_saving_gap_is_explained_and_offsets_close_it(tmp_path):
    local = ["2024-03-31 01:00", "2024-03-31 03:00", "2024-03-31 04:00"]
    text = "date,a\n" + "".join(f"{stamp},1\n" for stamp in local)
    with pytest.raises(DataError, match=r"missing steps of h: 1 .*2024-03-31 02:00:00.*daylight"):
        read(tmp_path, text, ["a"], timezone="naive")
    zoned = [local[0] + "+01:00", local[1] + "+02:00", local[2] + "+02:00"]
    series = read(tmp_path, "date,a\n" + "".join(f"{stamp},1\n" for stamp in zoned), ["a"])
    assert list(series.times) == list(pd.date_range("2024-03-31", periods=3, freq="h"))


@pytest.mark.parametrize(
    ("stamps", "freq", "message"),
    [
        (["2021-01-01", "2021-01-04", "2021-01-05"], "B", None),
        (["2021-01-01", "2021-01-04", "2021-01-05"], "D", "missing steps of D: 2 "),
        (["2021-01-01", "2021-01-05"], "B", "missing steps of B: 1 .*first is 2021-01-04"),
        (["2021-01-01", "2021-01-02"], "B", "not fit a step of B: 1 .*row 2: Sat 2021"),
        (["2021-01-04", "2021-01-11"], "W-MON", None),
        (["2021-01-04", "2021-01-11"], "W", "not fit a step of W-SUN: 2 .*row 1: Mon 2021"),
        (["2020-01-31", "2020-02-29", "2020-03-31"], "ME", None),
        (["2020-01-31", "2020-03-31"], "ME", "missing steps of ME: 1 .*first is 2020-02-29"),
        (["2020-01-01", "2020-02-01"], "ME", "not fit a step of ME: 2 "),
    ],
)
def test_steps_that_the_calendar_decides(tmp_path, stamps, freq, message):
    text = "date,a\n" + "".join(f"{stamp},{row}\n" for row, stamp in enumerate(stamps))
    if message is None:
        assert len(read(tmp_path, text, ["a"], freq).times) == len(stamps)
    else:
        with pytest.raises(DataError, match=message):
            read(tmp_path, text, ["a"], freq)


def frame():
    return pd.DataFrame({"date": pd.to_datetime(STAMPS), "a": VALUES[:, 0], "b": VALUES[:, 1]})


def series_of(table):
    reading = card_reading(card_of(), Path("some.csv"))
    return history(table, reading, where="the history").series


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.set_index("date"),
        lambda f: f.set_index("date").rename_axis(None),
        lambda f: f.assign(date=f["date"].dt.as_unit("ns")),
        lambda f: f.assign(date=f["date"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")),
        lambda f: f.assign(date=f["date"].astype(object)),
        lambda f: f.assign(date=STAMPS),
        lambda f: f.assign(a=f["a"].astype(int)),
        lambda f: f.assign(a=f["a"].astype("Int64")),
        lambda f: f.assign(a=f["a"].astype("float32")),
        lambda f: f.assign(a=f["a"].astype(object)),
        lambda f: f.assign(a=f["a"].astype(str)),
        lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
        lambda f: f.set_axis(range(10, 16)),
    ],
)
def test_frames_of_many_kinds_give_the_same_series(change):
    table = change(frame())
    before = table.copy()
    assert series_of(table).digest == series_of(frame()).digest
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(a=1j), r"the history, row 1 .*column 'a': expected a number"),
        (lambda f: f.assign(a=f["date"]), r"row 1 .*column 'a': expected a number"),
        (
            lambda f: f.assign(a=[1, "x", None, 4, 5, 6]),
            r"row 2 .*column 'a': expected a number, got 'x'",
        ),
        (lambda f: f.assign(date=range(6)), "expected a stamp"),
        (lambda f: f.iloc[:0], "no rows"),
    ],
)
def test_frames_that_do_not_fit(change, message):
    with pytest.raises(DataError, match=message):
        series_of(change(frame()))


def test_parquet_equals_csv(tmp_path):
    file = tmp_path / "some.parquet"
    frame().to_parquet(file)
    assert read_card(card_of(), file).digest == series_of(frame()).digest
    frame().set_index("date").to_parquet(file)
    assert read_card(card_of(), file).digest == series_of(frame()).digest


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b[: len(b) // 2], lambda b: b"x"])
def test_half_a_parquet_file(tmp_path, damage):
    file = tmp_path / "some.parquet"
    frame().to_parquet(file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=r"some\.parquet: not a complete Parquet file"):
        read_card(card_of(), file)


def bare_card(columns=None):
    bare = Bare(first=datetime(2020, 1, 1), columns=columns)
    source = Source(files=("bare.txt.gz",), sha256="0" * 64, bare=bare)
    facts = {"sources": (source,), "columns": ("a", "b"), "target": "b"}
    return load_card("ETTh1").model_copy(update=facts)


def packed(tmp_path, text):
    file = tmp_path / "bare.txt.gz"
    file.write_bytes(gzip.compress(text.encode()))
    return file


def test_a_file_of_values_alone_takes_names_and_stamps_from_its_card(tmp_path):
    file = packed(tmp_path, "\n".join(ROWS) + "\n")
    assert read_card(bare_card(), file).series.digest == series_of(frame()).digest
    swapped = packed(tmp_path, "\n".join(",".join(row.split(",")[::-1]) for row in ROWS))
    assert read_card(bare_card(("b", "a")), swapped).series.digest == series_of(frame()).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("0,0.5\n1\n2,2.5\n", "row 2: expected 2 fields as in the card, got 1: '1'"),
        ("0,0.5,1\n1,1.5,1\n", "row 1: expected 2 fields as in the card, got 3"),
        ("0,0.5\nx,1.5\n", "row 2 (2020-01-01 01:00:00), column 'a': expected a number, got 'x'"),
        ("a,b\n1,1.5\n", "column 'date' not found. Expected 'date', 'a', 'b'; got 'a', 'b'"),
    ],
)
def test_a_file_of_values_alone_that_does_not_fit(tmp_path, text, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read_card(bare_card(), packed(tmp_path, text))
    assert "bare.txt.gz" in str(caught.value)


def test_a_file_with_a_header_and_no_stamps_takes_these_from_its_card(tmp_path):
    card = bare_card()
    bare = card.sources[0].bare.model_copy(update={"header": True})
    card = card.model_copy(update={"sources": (card.sources[0].model_copy(update={"bare": bare}),)})
    text = "\n".join(["b,a", *(",".join(row.split(",")[::-1]) for row in ROWS)])
    assert read_card(card, packed(tmp_path, text)).series.digest == series_of(frame()).digest


def test_a_packed_csv_file_with_a_header_equals_the_plain_one(tmp_path):
    (tmp_path / "some.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert read_card(card_of(), tmp_path / "some.csv.gz").digest == read(tmp_path, GOOD).digest


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-4], lambda b: b[: len(b) // 2], lambda b: b[::-1], lambda b: b[:15] + b[20:]],
    ids=["no-length", "half", "reversed", "hole"],
)
def test_half_a_gzip_file(tmp_path, damage):
    file = packed(tmp_path, GOOD)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=r"bare\.txt\.gz: not a complete gzip file: "):
        read_card(bare_card(), file)


@pytest.mark.parametrize("stamp", ["2016/7/1 2:00", "2016-07-01 02:00", "2016/07/01 02:00:00"])
def test_stamps_as_the_benchmarks_write_them(tmp_path, stamp):
    series = read(tmp_path, f"date,a\n{stamp},1\n{stamp.replace('2:00', '3:00', 1)},2\n", ["a"])
    assert str(series.times[0]) == "2016-07-01 02:00:00"


def test_numbers_are_read_to_the_last_bit(tmp_path):
    numbers = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
    times = pd.date_range("2020-01-01", periods=200, freq="h")
    pd.DataFrame({"date": times, "a": numbers}).to_csv(tmp_path / "some.csv", index=False)
    series = read(tmp_path, (tmp_path / "some.csv").read_bytes(), ["a"])
    assert (series.values[:, 0] == numbers).all()


def test_the_packaged_sample_is_the_same_everywhere():
    card = load_card("vic_elec")
    series = read_card(card).series
    assert series.values.shape == (52_608, 2)
    assert series.columns == ("Demand", "Temperature")
    assert series.values[0].tolist() == [4382.825174, 21.4]
    assert str(series.times[0]) == "2011-12-31 13:00:00"
    assert str(series.times[-1]) == "2014-12-31 12:30:00"
    assert series.freq == "30min"
    assert (
        series.digest == "sha256:90d0180b33d8498dbc9322a35f688efd903341e9cca6c907536965d3ebecee32"
    )


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "last"),
    [
        ("ETTh1", 17_420, "2018-06-26 19:00:00"),
        ("ETTh2", 17_420, "2018-06-26 19:00:00"),
        ("ETTm1", 69_680, "2018-06-26 19:45:00"),
        ("ETTm2", 69_680, "2018-06-26 19:45:00"),
    ],
)
def test_the_public_files_are_those_of_the_cards(name, rows, last):
    series = read_card(load_card(name)).series
    assert series.values.shape == (rows, 7)
    assert str(series.times[0]) == "2016-07-01 00:00:00"
    assert str(series.times[-1]) == last


@pytest.mark.data
@pytest.mark.parametrize(
    ("market", "first", "last", "digest"),
    [
        (
            "NP",
            "2013-01-01 00:00:00",
            "2018-12-24 23:00:00",
            "e09ab9a9cbb505f95702121eb4a88eb4ee7adedd75a791355fe7369e7578d56f",
        ),
        (
            "PJM",
            "2013-01-01 00:00:00",
            "2018-12-24 23:00:00",
            "8b843f2d0afc893ea02e3acb6667301a1299734a7bb67836ee083a41e996d82c",
        ),
        (
            "BE",
            "2011-01-09 00:00:00",
            "2016-12-31 23:00:00",
            "d0943a252a5fccf07790680de8d6acf0422911596484c9cbdd331c63582b2419",
        ),
        (
            "FR",
            "2011-01-09 00:00:00",
            "2016-12-31 23:00:00",
            "d7cd9c517be5e03199bab9859968b2f128ce54ad25e59e59217ddb9c5a0a5fb7",
        ),
        (
            "DE",
            "2012-01-09 00:00:00",
            "2017-12-31 23:00:00",
            "8fa88b52965fc32132419e22e765909b3ade470e40d9bc86643f5c8642f95109",
        ),
    ],
)
def test_prices_and_what_is_known_ahead_of_them(market, first, last, digest):
    found = read_card(load_card(f"epf-{market}"))
    assert (found.columns, found.features, len(found.series.times)) == (("OT",), "MS", 52_416)
    assert (str(found.series.times[0]), str(found.series.times[-1])) == (first, last)
    known = found.series.known
    assert known is not None
    assert known.shape == (52_416, 2)
    assert np.isfinite(known).all()
    assert found.digest == f"sha256:{digest}"
    borders = load_card(f"epf-{market}").split.borders(52_416, "it")
    values = torch.zeros(52_416, 1)
    assert len(Windows(values, values, 168, 24, borders.validation, borders.test, (0,))) == 10_460


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "shape", "missing", "known", "first", "last"),
    [
        ("europe-loads", (26_304, 38), 5_309, 0, "2021-12-31 23:00:00", "2024-12-31 22:00:00"),
        ("europe-prices", (26_304, 38), 0, 38, "2021-12-31 23:00:00", "2024-12-31 22:00:00"),
        ("nn5", (731, 111), 0, 0, "1996-03-18 00:00:00", "1998-03-18 00:00:00"),
    ],
)
def test_sets_of_many_columns(name, shape, missing, known, first, last):
    found = read_card(load_card(name))
    assert found.series.values.shape == shape
    assert len(found.targets) == shape[1]
    assert len(found.series.known_columns) == known
    assert int(np.isnan(found.series.values).sum()) == missing
    assert (str(found.series.times[0]), str(found.series.times[-1])) == (first, last)


@pytest.mark.data
def test_weather_is_used_as_it_is():
    card = load_card("weather")
    series = read_card(card).series
    assert series.values.shape == (52_696, 21)
    assert str(series.times[0]) == "2020-01-01 00:10:00"
    assert str(series.times[-1]) == "2021-01-01 00:00:00"
    assert (series.times[19_044] - series.times[19_043]).total_seconds() == 0
    assert (series.times[21_514] - series.times[21_513]).total_seconds() == 6000
    missing = dict(zip(series.columns, (series.values == -9999).sum(axis=0), strict=True))
    assert {name: count for name, count in missing.items() if count} == {
        "wv (m/s)": 1, "max. PAR (\ufffdmol/m\ufffd/s)": 30, "OT": 50,
    }  # fmt: skip
    borders = card.split.borders(len(series.values), "it")
    assert (borders.train, borders.validation, borders.test) == (36_887, 42_157, 52_696)


@pytest.mark.data
def test_both_forms_of_the_exchange_rates_are_one_series():
    card = load_card("exchange_rate")
    folder = Path(os.environ["FORECASTER_DATA"])
    both = [read_card(card, folder / source.files[0]).series for source in card.sources]
    assert both[0].digest == both[1].digest
    assert both[0].values.shape == (7_588, 8)
    assert str(both[1].times[-1]) == "2010-10-10 00:00:00"
    assert both[1].values[0, 6:].tolist() == [0.525486, 0.593]


@pytest.mark.data
@pytest.mark.parametrize("form", [0, 1])
def test_each_form_of_the_exchange_rates_has_its_checksums(form):
    card = load_card("exchange_rate")
    alone = card.model_copy(update={"sources": (card.sources[form],)})
    assert locate(alone) == Path(os.environ["FORECASTER_DATA"]) / card.sources[form].files[0]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "shape", "first", "last"),
    [
        ("electricity-client0-OT", (26_304, 2), "2016-07-01 02:00:00", "2019-07-02 01:00:00"),
        ("electricity-mean", (26_304, 1), "2012-01-01 00:00:00", "2014-12-31 23:00:00"),
        ("traffic-sensor0", (17_544, 1), "2015-01-01 00:00:00", "2016-12-31 23:00:00"),
    ],
)
def test_parts_of_the_wide_sets(name, shape, first, last):
    series = read_card(load_card(name)).series
    assert series.values.shape == shape
    assert (str(series.times[0]), str(series.times[-1])) == (first, last)
    whole = load_card(name.split("-")[0])
    bare = whole.sources[1].bare
    assert bare is not None
    covered = pd.date_range(bare.first, periods=shape[0], freq=whole.freq)
    assert name == "electricity-client0-OT" or series.times.equals(covered)
