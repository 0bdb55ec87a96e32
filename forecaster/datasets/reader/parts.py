"""Further time columns: hours that follow a date, or months and days that follow a year."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.datasets.reader import stamps
from forecaster.datasets.reader.cells import to_numbers
from forecaster.datasets.reader.files import RawTable, Rows
from forecaster.datasets.reader.stamps import SECOND, as_words, different

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass(frozen=True)
class TimePart:
    """What a further time column counts: numbers from `first` to `last`, `unit` microseconds each.

    A column whose name is one of `called` counts this if its numbers fit. The time in the columns
    before it must be a multiple of `within`.
    """

    words: str
    first: int
    last: int
    unit: int = 0
    called: tuple[str, ...] = ()
    within: int = DAY


PARTS = {
    "month": TimePart("months", 1, 12, called=("month", "mon", "mo", "mm")),
    "quarter": TimePart("quarters", 1, 4, called=("quarter", "qtr", "q")),
    "day": TimePart("days", 1, 31, called=("day", "dy", "dd", "dayofmonth")),
    "hour": TimePart(
        "hours, 24 being the next day's 0", 0, 24, HOUR,
        ("hour", "hours", "hr", "hh", "he", "hourending"),
    ),
    "minute": TimePart("minutes", 0, 59, MINUTE, ("minute", "minutes", "min", "mi"), HOUR),
    "second": TimePart("seconds", 0, 59, SECOND, ("second", "seconds", "sec"), MINUTE),
    "1..48": TimePart("half-hours, 1 beginning at 0:00", 1, 48, DAY // 48),
    "0..47": TimePart("half-hours, 0 beginning at 0:00", 0, 47, DAY // 48),
    "1..96": TimePart("quarter-hours, 1 beginning at 0:00", 1, 96, DAY // 96),
    "0..95": TimePart("quarter-hours, 0 beginning at 0:00", 0, 95, DAY // 96),
    "hhmm": TimePart("hours and minutes, such as 1330", 0, 2400),
    "minutes": TimePart("minutes of the day", 0, 1440, MINUTE),
    "clock": TimePart("hours and minutes, such as 13:30", 0, 0),
}  # fmt: skip
"""What further time columns can count, by name, the coarser ones first."""

_CALENDAR = ("month", "quarter", "day")
_NUMBER = re.compile(r"^\d{1,4}(?:\.0*)?$")


class Column:
    """A column of some rows, with the names of its cells in messages."""

    def __init__(self, rows: Rows, table: RawTable, column: str) -> None:
        self.rows, self.column, self.name = rows, column, table.names[rows.file]
        self.cells = rows.cells[column]

    def wrong(self, row: int, what: str) -> DataError:
        """The error about a row."""
        return DataError(
            f"{self.name}, row {self.rows.before + row + 1}, column '{self.column}': {what}."
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def find_parts(
    table: RawTable, form: str, columns: Sequence[str], told: Sequence[str], said: list[str]
) -> tuple[str, ...]:
    """Find what each further time column counts, from its name and all of its values.

    What a model was `told` holds if the values fit it. Raises DataError for other values.
    """
    values: dict[str, set[str]] = {column: set() for column in columns}
    for rows in table.rows(columns):
        for column, found in values.items():
            if len(found) < 10_000:
                found |= {*different(rows.cells[column]).to_pylist()}
    parts: list[str] = []
    for place, (column, found) in enumerate(values.items()):
        if told[place:] and _fits(told[place], found):
            parts.append(told[place])
            continue
        part = _part(column, found, form, parts)
        if part is None:
            shown = ", ".join(sorted(found)[:3])
            raise DataError(
                f"{table.where}, column '{column}': values such as {shown} add nothing to the "
                "time in the columns before it; expected hours (0 to 23, or 1 to 24), "
                "times such as 13:30, minutes, half-hours (1 to 48) or, after a column of years, "
                "months and days. For days of 25 hours, on which daylight saving ends, give "
                "stamps in UTC or with their offset."
            )
        said.append(f"Column '{column}' counts {PARTS[part].words}.")
        parts.append(part)
    return tuple(parts)


def _fits(part: str, found: set[str]) -> bool:
    words, known = pa.array(sorted(found), pa.string()), PARTS[part]
    if part == "clock":
        return bool(stamps.are_clocks(words).all())
    if part == "month" and (stamps.months(words) > 0).all():
        return True
    return all(_NUMBER.match(word) and known.first <= float(word) <= known.last for word in found)


def _part(column: str, found: set[str], form: str, before: Sequence[str]) -> str | None:
    words = pa.array(sorted(found), pa.string())
    if len(words) and stamps.are_clocks(words).all():
        return "clock"
    if form == "year" and not before and (stamps.months(words) > 0).all():
        return "month"
    if not all(_NUMBER.match(word) for word in found) or not found:
        return None
    numbers = np.array([int(float(word)) for word in found])
    low, high = int(numbers.min()), int(numbers.max())
    fitting = [part for part, each in PARTS.items() if each.first <= low and high <= each.last]
    called = next((part for part in fitting if _plain(column) in PARTS[part].called), None)
    if called:
        return called if called not in _CALENDAR or form in ("year", "compact") else None
    if {"hour", "clock"} & {*before}:
        return "minute" if high <= 59 else None
    if "hour" in fitting:
        return "hour"
    for part in fitting:
        if ".." in part and high >= PARTS[part].last - 1:
            return part
    if high >= 100 and "hhmm" in fitting and (numbers % 100 < 60).all():
        return "hhmm"
    return "minutes" if high >= 100 and low == 0 and "minutes" in fitting else None


def later(times: NDArray[np.int64], at: Column, part: str) -> NDArray[np.int64]:
    """Add what a further column counts to the times."""
    known, expected = PARTS[part], "a time such as 13:30"
    if part == "clock":
        spans, good = stamps.clocks(at.cells)
    else:
        expected = f"{known.words}, {known.first} to {known.last}"
        numbers = stamps.months(as_words(at.cells)) if part == "month" else np.zeros(0)
        if not (numbers > 0).all() or not len(numbers):
            numbers = to_numbers(at.cells, at.wrong)
        good = (numbers >= known.first) & (numbers <= known.last) & (numbers % 1 == 0)
        if part == "hhmm":
            good &= numbers % 100 < 60
        counts = np.where(good, numbers, 0).astype(np.int64)
        spans = (counts - known.first) * known.unit
        if part == "hhmm":
            spans = counts // 100 * HOUR + counts % 100 * MINUTE
    if not good.all():
        row = int(good.argmin())
        raise at.wrong(row, f"expected {expected}, got '{at.cells[row]}'")
    if part in _CALENDAR:
        return _in_year(times, counts, at, part)
    early = times % known.within != 0
    if early.any():
        row = int(early.argmax())
        raise at.wrong(
            row,
            f"it counts {known.words}, but the columns before it already give "
            f"{pd.Timestamp(int(times[row]), unit='us')}",
        )
    return times + spans


def _in_year(
    times: NDArray[np.int64], counts: NDArray[np.int64], at: Column, part: str
) -> NDArray[np.int64]:
    """Add months, quarters or days, counted from 1, to the beginnings of years or months."""
    stamp = times.view("M8[us]")
    months = stamp.astype("M8[M]")
    if part != "day":
        months += (counts - 1) * (3 if part == "quarter" else 1)
        return months.astype("M8[us]").astype(np.int64)
    days = stamp + (counts - 1) * np.timedelta64(DAY, "us")
    other = days.astype("M8[M]") != months
    if other.any():
        row = int(other.argmax())
        raise at.wrong(row, f"{pd.Timestamp(stamp[row]):%B %Y} has no day {counts[row]}")
    return days.astype(np.int64)
