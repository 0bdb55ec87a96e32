"""Cells and headers that people take for the time, and what is said of them."""

import pandas as pd
import pytest

from forecaster.datasets.reader.unread import LIKELY, dates, is_rounded, why


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("01.10.2024 00:00 - 01.10.2024 01:00", "an interval; keep its start, '01.10.2024 00:00'"),
        ("2024-01-01 00:00 - 01:00", "an interval"),
        ("2024-01-01 00:00 CEST", "'CEST' is the name of a zone"),
        ("2019/13", "write it as '2019-W13'"),
        ("44927", "counts the days since 1900"),
        ("17", "it counts, and is no time"),
        ("2012/13", "a year over two calendar years"),
        ("2024-01-01T00:00/PT1H", "an interval"),
        ("Week 2, 2019", "'2019-W02'"),
        ("12 février 2024", "read in English, which 'février' is not"),
        ("29/2/2567", "2567 is 2024 elsewhere"),
    ],
)
def test_what_is_wrong_with_a_cell(cell, reason):
    assert reason in why(cell)


@pytest.mark.parametrize(
    "cell",
    [
        *("2024-01-01 10:00", "201902", "15-Feb-2024 25", "a poem", "20.02 °C", "", "9" * 300),
        *("1" * 10_000_000, "P1" * 5_000_000),  # at once, although Python reads no such number
    ],
)
def test_of_other_cells_nothing_is_said(cell):
    assert why(cell) == ""


def test_headers_that_hold_the_time():
    days = [str(day.date()) for day in pd.date_range("2024-01-01", periods=30)]
    assert dates(["id", "name", *days]) == range(2, 32)
    assert dates(["id", *days, "Total"]) == range(1, 31)
    assert dates(["id", *(f"d_{number}" for number in range(30))]) == range(1, 31)
    assert dates(["country", *map(str, range(1990, 2020))]) == range(1, 31)
    for names in (
        ["id", *(f"d_{number * 2}" for number in range(30))],
        ["time", "load", *days[:5]],
        ["time", *(f"s{number % 7}" for number in range(30))],
        ["time", *("9" * 5000 for _ in range(30))],
    ):
        assert not dates(names)


def test_likely_names_and_numbers_that_lost_digits():
    assert all(LIKELY.fullmatch(name) for name in ("ds", "Time (CET/CEST)", "SETTLEMENT_DATE"))
    assert not any(LIKELY.fullmatch(name) for name in ("load", "y", "store"))
    assert is_rounded("1.67253E+12")
    assert not is_rounded("1672531200000")
    assert not is_rounded("1.672531200000E+12")
