"""Further time columns: hours that follow a date, or months and days that follow a year."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forecaster.datasets.reader import stamps
from forecaster.datasets.reader.cells import to_numbers
from forecaster.datasets.reader.files import Rows, Table
from forecaster.datasets.reader.stamps import SECOND, as_words, different
from forecaster.errors import DataError

HOUR = 3600 * SECOND
DAY = 24 * HOUR


@dataclass(frozen=True)
class TimePart:
    """What a further time column counts: numbers from `first` to `last`, `unit` microseconds each.

    The time in the columns before it must be a multiple of `within`.
    """

    words: str
    first: int
    last: int
    unit: int = 0
    within: int = DAY


PARTS = {
    "month": TimePart("months", 1, 12),
    "quarter": TimePart("quarters", 1, 4),
    "day": TimePart("days", 1, 31),
    "hour": TimePart("hours, 24 being the next day's 0", 0, 24, HOUR),
    "minute": TimePart("minutes", 0, 59, 60 * SECOND, HOUR),
    "second": TimePart("seconds", 0, 59, SECOND, 60 * SECOND),
    "1..48": TimePart("half-hours, 1 beginning at 0:00", 1, 48, DAY // 48),
    "0..47": TimePart("half-hours, 0 beginning at 0:00", 0, 47, DAY // 48),
    "1..96": TimePart("quarter-hours, 1 beginning at 0:00", 1, 96, DAY // 96),
    "0..95": TimePart("quarter-hours, 0 beginning at 0:00", 0, 95, DAY // 96),
    "hhmm": TimePart("hours and minutes, such as 1330", 0, 2400),
    "minutes": TimePart("minutes of the day", 0, 1440, 60 * SECOND),
    "clock": TimePart("hours and minutes, such as 13:30", 0, 0),
}
"""What further time columns can count, by name."""

_CALLED = {
    "month": ("month", "mon", "mo", "mm"),
    "quarter": ("quarter", "qtr", "q"),
    "day": ("day", "dy", "dd", "dayofmonth"),
    "hour": ("hour", "hours", "hr", "hh", "he", "hourending"),
    "minute": ("minute", "minutes", "min", "mi"),
    "second": ("second", "seconds", "sec"),
}
_NUMBER = re.compile(r"^\d{1,4}(?:\.0*)?$")
_PERIODS = (
    "hhmm",
    "hrmn",
    "period",
    "settlementperiod",
    "interval",
    "halfhour",
    "quarterhour",
    "clock",
    "time",
)


class Column:
    """A column of some rows, with the names of its cells in messages."""

    def __init__(self, rows: Rows, table: Table, column: str) -> None:
        self.rows, self.column, self.name = rows, column, table.names[rows.file]
        self.cells = rows.cells[column]

    def wrong(self, row: int, what: str) -> NoReturn:
        raise self.complaint(row, what)

    def complaint(self, row: int, what: str) -> DataError:
        return DataError(
            f"{self.name}, row {self.rows.before + row + 1}, column '{self.column}': {what}."
        )


def counts_part(name: str, cells: pa.Array) -> bool:
    """Whether a column seems to continue the stamps of another column, as with the time of day."""
    words = different(cells)
    if not len(words):
        return False
    if stamps.are_clocks(words).all():
        return True
    called = _plain(name)
    if any(called in names for names in _CALLED.values()) or called in _PERIODS:
        return bool(pc.all(pc.match_substring_regex(words, _NUMBER.pattern)).as_py())
    return False


def in_order(names: Sequence[str], year: bool) -> list[tuple[str, ...]]:
    """The time columns that may follow a first one, a `year` or a date, from coarse to fine."""
    rank = {called: place for place, each in enumerate(_CALLED.values()) for called in each}
    names = [name for name in names if year or rank.get(_plain(name), 9) > 2]
    ordered = sorted(names, key=lambda name: rank.get(_plain(name), 9))
    single = [] if year else [(name,) for name in ordered]
    return single + [tuple(ordered[:count]) for count in range(1 + (not year), len(ordered) + 1)]


def fills_days(cells: pa.Array) -> bool:
    """Whether the numbers of a column are the hours, half-hours or quarter-hours of a day."""
    found = {*different(cells).to_pylist()}
    ranges = ((0, 23), (1, 24), (0, 47), (1, 48), (0, 95), (1, 96))
    return any(found == {str(n) for n in range(first, last + 1)} for first, last in ranges)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def find_parts(
    table: Table, form: str, columns: Sequence[str], told: Sequence[str], said: list[str]
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
        if part is None and (last := _longer_day(found)):
            raise DataError(
                f"{table.where}, column '{column}': it counts to {last}, as on the day on which "
                "daylight saving ends; in local time the repeated hour is ambiguous. Give stamps "
                "in UTC or with their offset."
            )
        if part is None:
            shown = ", ".join(sorted(found)[:3])
            raise DataError(
                f"{table.where}, column '{column}': values such as {shown} add nothing to the "
                f"time in the columns before it; expected hours (0 to 23, or 1 to 24), "
                "times such as 13:30, minutes, half-hours (1 to 48) or, after a column of years, "
                "months and days."
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
    for part, names in _CALLED.items():
        fits = PARTS[part].first <= low and high <= PARTS[part].last
        if _plain(column) in names and fits:
            calendar = part in ("month", "quarter", "day")
            return part if not calendar or form in ("year", "compact") else None
    if {"hour", "clock"} & {*before}:
        return "minute" if high <= 59 else None
    if _longer_day(found) or (_plain(column) in _CALLED["hour"] and high < 100):
        return None
    for part in ("hour", "1..48", "0..47", "1..96", "0..95"):
        if PARTS[part].first <= low and high <= PARTS[part].last:
            return part
    if high <= 2400 and (numbers % 100 < 60).all():
        return "hhmm"
    return "minutes" if high <= 1440 else None


def _longer_day(found: set[str]) -> int:
    """The last hour, half-hour or quarter-hour of a 25-hour day; 0 if there is no such day."""
    if not all(_NUMBER.match(word) for word in found):
        return 0
    numbers = {int(float(word)) for word in found}
    return max(numbers) if numbers in ({*range(1, n + 1)} for n in (25, 50, 100)) else 0


def later(times: NDArray[np.int64], at: Column, part: str) -> NDArray[np.int64]:
    """Add what a further column counts to the times."""
    known = PARTS[part]
    if known.unit or part in ("hhmm", "clock"):
        early = times % known.within != 0
        if early.any():
            at.wrong(
                int(early.argmax()),
                f"it counts {known.words}, but the columns before it already give "
                f"{pd.Timestamp(int(times[early.argmax()]), unit='us')}",
            )
    if part == "clock":
        spans, good = stamps.clocks(at.cells)
        if not good.all():
            row = int(good.argmin())
            at.wrong(row, f"expected a time such as 13:30, got '{at.cells[row]}'")
        return times + spans
    numbers = stamps.months(as_words(at.cells)) if part == "month" else np.zeros(0)
    if not (numbers > 0).all() or not len(numbers):
        numbers = to_numbers(at.cells, at.complaint)
    bad = ~((numbers >= known.first) & (numbers <= known.last) & (numbers % 1 == 0))
    if part == "hhmm":
        bad |= numbers % 100 >= 60
    if bad.any():
        row = int(bad.argmax())
        at.wrong(
            row,
            f"expected {known.words}, {known.first} to {known.last}, got '{at.cells[row]}'",
        )
    count = numbers.astype(np.int64)
    if part == "hhmm":
        return times + count // 100 * HOUR + count % 100 * (60 * SECOND)
    if known.unit:
        return times + (count - known.first) * known.unit
    stamp = times.view("M8[us]")
    if part == "day":
        days = stamp + (count - 1) * np.timedelta64(DAY, "us")
        other = days.astype("M8[M]") != stamp.astype("M8[M]")
        if other.any():
            row = int(other.argmax())
            at.wrong(row, f"{pd.Timestamp(stamp[row]):%B %Y} has no day {count[row]}")
        return days.astype(np.int64)
    months = stamp.astype("M8[M]") + (count - 1) * (3 if part == "quarter" else 1)
    return months.astype("M8[us]").astype(np.int64)
