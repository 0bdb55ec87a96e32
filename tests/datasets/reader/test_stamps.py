import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from forecaster.datasets.reader.stamps import FORMS, as_words, evenly, exist, matches, moments

MEANS = [
    ("iso", "2020-1-5 7:00", "2020-01-05 07:00"),
    ("iso", "2020/01/31T05", "2020-01-31 05:00"),
    ("iso", "2020-01-31 05:06:07,123456789", "2020-01-31 05:06:07.123456"),
    ("iso", "2020-01-31 12:30 AM", "2020-01-31 00:30"),
    ("iso", "2020-01-31 24:00", "2020-02-01"),
    ("iso", "2020-01-01 05:00 UTC", "2020-01-01 05:00"),
    ("iso", "2020-01-01 05:00:00-0230", "2020-01-01 07:30"),
    ("day-first", "31/01/2020, 05:00:00", "2020-01-31 05:00"),
    ("month-first", "1/7/20 1:05 PM", "2020-01-07 13:05"),
    ("month-first", "1/7/69 12 p.m.", "1969-01-07 12:00"),
    ("month-first", "1/7/68 05:00 +01:00", "2068-01-07 04:00"),
    ("year-first", "20-01-31 05:00", "2020-01-31 05:00"),
    ("day-name-year", "Fri, 31 Jan 2020 05:00:00 GMT", "2020-01-31 05:00"),
    ("day-name-year", "05Sept20", "2020-09-05"),
    ("name-day-year", "January 5, 2020", "2020-01-05"),
    ("year-name-day", "2020-Jan", "2020-01-01"),
    ("name-year", "Dec-20", "2020-12-01"),
    ("year-quarter", "1998Q4", "1998-10-01"),
    ("quarter-year", "Q2 1998", "1998-04-01"),
    ("year-week", "2020-W53", "2020-12-28"),
    ("year-month", "2020M07", "2020-07-01"),
    ("compact", "20200131T050607Z", "2020-01-31 05:06:07"),
    ("year", "1821", "1821-01-01"),
    ("epoch-s", "1577836800.5", "2020-01-01 00:00:00.5"),
    ("epoch-ms", "1577836800001", "2020-01-01 00:00:00.001"),
    ("epoch-us", "1577836800000001", "2020-01-01 00:00:00.000001"),
    ("epoch-ns", "1577836800000001000", "2020-01-01 00:00:00.000001"),
]


@pytest.mark.parametrize(("form", "word", "stamp"), MEANS)
def test_what_stamps_mean(form, word, stamp):
    times, zoned = moments(pa.array([word, "x"]), form)
    assert np.isnat(times).tolist() == [False, True]
    assert pd.Timestamp(times[0]) == pd.Timestamp(stamp)
    zone = re.search(r"(UTC|GMT|Z|:\d\d ?[+-][\d:]+)$", word)
    assert zoned[0] == (form.startswith("epoch") or bool(zone))


def test_every_form_has_an_example():
    assert {form for form, _, _ in MEANS} == set(FORMS)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("iso", ["2020-02-30", "2020-13-01", "2020-01-01 24:01", "2020-01-01 05:60"]),
        ("iso", ["2020-01-01 13:00 PM"]),
        ("day-first", ["01/13/2020"]),
        ("day-name-year", ["5 mai 2020"]),
        ("year-quarter", ["1998 Q5"]),
        ("year-week", ["2021 W53"]),
        ("compact", ["20200231", "12345678"]),
        ("year", ["12"]),
        ("epoch-s", ["12", "9999999999"]),
        ("epoch-ms", ["1577836800"]),
    ],
)
def test_what_no_stamp_is(form, words):
    assert not exist(pa.array(words), form).any()


def test_stamps_of_one_column_are_told_one_by_one():
    times, zoned = moments(pa.array(["2020-01-01 05:00", "2020-01-01T05:00Z", "2020-1-32"]), "iso")
    assert np.isnat(times).tolist() == [False, False, True]
    assert zoned.tolist() == [False, True, False]
    assert matches(pa.array(["13/13/2020", "2020-01-01"]), "day-first").tolist() == [True, False]


def test_words_and_numbers_are_alike():
    assert as_words(pa.array([20200101, None])).to_pylist() == ["20200101", None]
    assert as_words(pa.array([20200101.0, np.nan], from_pandas=True)).to_pylist()[0] == "20200101"
    for kind in ("string", "large_string"):
        assert as_words(pa.array([" 1 ", "NA"], kind)).to_pylist() == ["1", None]
    assert as_words(pa.array([[1], None])).to_pylist() == ["[1]", None]


def test_even_stamps_are_one_step_or_whole_months_apart():
    def even(*stamps):
        return evenly(np.array(stamps, "M8[us]"))

    assert even("2020-01-01", "2020-01-02", "2020-01-03")
    assert even("2020-01-01", "2020-02-01", "2020-03-01")
    assert even("2020-01-15T05", "2020-04-15T05", "2020-07-15T05")
    assert not even("2020-01-01", "2020-01-02")
    assert not even("2020-01-01", "2020-01-02", "2020-01-04")
    assert not even("2020-01-01", "2020-02-02", "2020-03-01")
