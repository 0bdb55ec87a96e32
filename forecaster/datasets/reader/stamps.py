"""The forms in which stamps are written, and the times they mean, in microseconds since 1970.

A form is a pattern whose named groups are the parts of a stamp (year, month, ..., zone). All cells
of one form are converted together, and nothing is guessed here: `clock` decides the form of a file.
"""

from calendar import month_name
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forecaster.datasets.reader.cells import is_text, plain, trimmed

SECOND = 1_000_000
_EPOCHS = {"s": 1, "ms": 1000, "us": SECOND, "ns": 1000 * SECOND}  # how many make a second
_SECONDS = 100_000_000, 4_102_444_800
"""The plausible seconds since 1970, from 1973 to 2100; in another unit the numbers would differ."""

_NAMES = [name.lower() for name in month_name[1:]]
WORDS = (*_NAMES, *(name[:3] for name in _NAMES), "sept")
"""The names of months."""
_MONTHS = pa.array(WORDS)
_MONTH_OF = np.array([*range(1, 13), *range(1, 13), 9])
_CLOCK = (
    r"(?P<hour>\d{1,2})"
    r"(?:[:h](?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?)?"
    r"(?:\s*(?P<half>[ap])\.?m\.?)?"
)
_ZONE = r"(?:\s*(?P<zone>z|utc|gmt|[+-]\d{2}(?::?\d{2})?))?"
_TIME = rf"(?:(?:\s*t|,?\s+){_CLOCK}{_ZONE})?"
_DIGITS = r"[t ]?(?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{2}))?)?"
_YEAR = r"(?P<year>(?:1[5-9]|2[0-2])\d{2})"
_SHORT = r"(?P<year>\d{4}|\d{2})"
_MONTH = r"(?P<month>\d{1,2})"
_DAY = r"(?P<day>\d{1,2})"
_NAME = rf"(?P<name>{'|'.join(WORDS)})\.?"
_NTH = rf"{_DAY}(?:st|nd|rd|th)?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
_GAP = r"[-/ .,]*"
_COUNT = r"\d+(?:\.\d*)?(?:e\+?\d+)?"


@dataclass(frozen=True)
class StampForm:
    """A form of stamps: its description in messages, and its pattern, in lower case."""

    words: str
    pattern: str
    number: bool = False
    """Whether a number that is not a stamp may be written in this form."""


FORMS = {
    "iso": StampForm(
        "with the year first", rf"(?P<year>\d{{4}})[-/]{_MONTH}(?:[-/]{_DAY}{_TIME})?"
    ),
    "day-first": StampForm("with the day first", rf"{_DAY}[-/.]{_MONTH}[-/.]{_SHORT}{_TIME}"),
    "month-first": StampForm("with the month first", rf"{_MONTH}[-/.]{_DAY}[-/.]{_SHORT}{_TIME}"),
    "year-first": StampForm("with the year first", rf"{_SHORT}[-/.]{_MONTH}[-/.]{_DAY}{_TIME}"),
    "day-name-year": StampForm(
        "as day, month's name and year", rf"{_WEEKDAY}{_NTH}{_GAP}{_NAME}{_GAP}{_SHORT}{_TIME}"
    ),
    "name-day-year": StampForm(
        "as month's name, day and year",
        rf"{_WEEKDAY}{_NAME}{_GAP}{_NTH}(?:,\s*|[-/ ]+)(?P<year>\d{{4}}){_TIME}",
    ),
    "year-name-day": StampForm(
        "as year, month's name and day", rf"(?P<year>\d{{4}}){_GAP}{_NAME}(?:{_GAP}{_DAY}{_TIME})?"
    ),
    "name-year": StampForm("as month's name and year", rf"{_NAME}{_GAP}{_SHORT}"),
    "year-quarter": StampForm("as year and quarter", rf"{_YEAR}[-/:_ ]*q(?P<quarter>\d)"),
    "quarter-year": StampForm("as quarter and year", rf"q(?P<quarter>\d)[-/:_, ]*{_YEAR}"),
    "year-week": StampForm("as year and ISO week", rf"{_YEAR}[-/:_ ]*w(?P<week>\d{{1,2}})"),
    "year-month": StampForm("as year and month", rf"{_YEAR}[-/:_ ]*m{_MONTH}"),
    "compact": StampForm(
        "as digits, the year first",
        rf"{_YEAR}(?P<month>\d{{2}})(?:(?P<day>\d{{2}})(?:{_DIGITS}{_ZONE})?)?",
        number=True,
    ),
    "year": StampForm("as years", _YEAR, number=True),
    "epoch-s": StampForm("as seconds since 1970, in UTC", _COUNT, number=True),
    "epoch-ms": StampForm("as milliseconds since 1970, in UTC", _COUNT, number=True),
    "epoch-us": StampForm("as microseconds since 1970, in UTC", _COUNT, number=True),
    "epoch-ns": StampForm("as nanoseconds since 1970, in UTC", _COUNT, number=True),
}
"""Every supported form by its name, the more usual ones first."""


Times: TypeAlias = NDArray[np.datetime64]


def as_words(cells: pa.Array) -> pa.Array:
    """Cells that are not of a type for stamps as text; null where there is no value."""
    if pa.types.is_floating(cells.type):
        whole = pc.all(pc.equal(pc.fill_null(cells, 0), pc.floor(pc.fill_null(cells, 0)))).as_py()
        cells = cells.cast(pa.int64()) if whole else cells
    if is_text(cells.type):
        return trimmed(cells)
    try:
        return trimmed(cells.cast(pa.string()))
    except pa.ArrowNotImplementedError:  # lists and similar types, to be shown in messages
        return pa.array([None if cell is None else str(cell) for cell in cells.to_pylist()])


def as_text(cells: pa.Array) -> pa.Array:
    """Cells of any type as text; null where there is no value."""
    return as_words(plain(cells)).cast(pa.string())


def different(cells: pa.Array) -> pa.Array:
    """The different cells of a column as text, without empty ones."""
    return as_words(plain(cells).unique()).drop_null()


def matches(words: pa.Array, form: str) -> NDArray[np.bool_]:
    """Which words (N,), none of them null, are written in a form, even if they are no dates."""
    pattern = f"^(?:{FORMS[form].pattern})$"
    hits = pc.match_substring_regex(pc.utf8_lower(words), pattern)
    return hits.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def exist(words: pa.Array, form: str) -> NDArray[np.bool_]:
    """Which words (N,), none of them null, are stamps of a form whose time exists."""
    times, _ = moments(words, form)
    return ~np.isnat(times)


def moments(words: pa.Array, form: str) -> tuple[Times, NDArray[np.bool_]]:
    """The times (N,) of words, none of them null, as stamps of a form, and which have a zone.

    They are in microseconds, in UTC for a stamp with a zone; NaT for another word, and where the
    time does not exist.
    """
    if form.startswith("epoch-"):
        return _epoch(words, form)
    if form == "iso" and (quick := _quick(words)) is not None:
        return quick
    fields = pc.extract_regex(pc.utf8_lower(words), f"^(?:{FORMS[form].pattern})$")
    return _Parts(fields).moments()


def _quick(words: pa.Array) -> tuple[Times, NDArray[np.bool_]] | None:
    """The times of usual ISO stamps, all with a zone or all without; None for others."""
    for zone in (None, "UTC"):
        try:
            times = pc.cast(words, pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            continue
        quick: Times = times.cast(pa.int64()).to_numpy().astype("M8[us]")
        return quick, np.full(len(words), zone is not None)
    return None


def _epoch(words: pa.Array, form: str) -> tuple[Times, NDArray[np.bool_]]:
    known = matches(words, form)
    numbers = pc.if_else(pa.array(known), words, "0")
    try:
        counts = numbers.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        counts = numbers.cast(pa.float64()).to_numpy()
    every = _EPOCHS[form.removeprefix("epoch-")]
    low, high = _SECONDS
    good = known & (counts >= low * every) & (counts < high * every)
    counts = np.where(good, counts, 0)
    times = np.round(counts * (SECOND / every)) if every <= SECOND else counts // (every // SECOND)
    return _existing(times.astype(np.int64), good), np.ones(len(words), bool)


def _existing(times: NDArray[np.int64], good: NDArray[np.bool_]) -> Times:
    return np.where(good, times.astype("M8[us]"), np.datetime64("NaT"))


class _Parts:
    """The parts of stamps as numbers, from the groups of a pattern."""

    def __init__(self, fields: pa.StructArray) -> None:
        self.fields = fields
        self.there = {field.name for field in fields.type}

    def moments(self) -> tuple[Times, NDArray[np.bool_]]:
        years, month, day = self._years(), self._month(), self.number("day", 1)
        good = np.asarray(self.fields.is_valid()) & (month >= 1) & (month <= 12) & (years >= 1)
        months = (years - 1970) * 12 + np.clip(month, 1, 12) - 1
        starts = months.astype("M8[M]").astype("M8[D]")
        days = starts + (day - 1)
        good &= days.astype("M8[M]").astype(np.int64) == months  # the month has this day
        if "week" in self.there:
            first, after = _first_monday(years), _first_monday(years + 1)
            days = first + (7 * (self.number("week", 1) - 1)).astype("m8[D]")
            good &= (days >= first) & (days < after)
        times, valid = self._clock()
        shift, zoned = self._zone()
        times += days.astype("M8[us]").astype(np.int64) - shift
        return _existing(times, good & valid), zoned

    def _years(self) -> NDArray[np.int64]:
        years = self.number("year", 1970)
        if "year" not in self.there:
            return years
        short = np.asarray(pc.equal(pc.utf8_length(self.text("year")), 2).fill_null(False))
        return np.where(short, years + np.where(years < 69, 2000, 1900), years)

    def _month(self) -> NDArray[np.int64]:
        if "name" in self.there:
            place = pc.index_in(self.text("name"), _MONTHS).fill_null(-1).to_numpy()
            return np.where(place < 0, 0, _MONTH_OF[place])
        if "quarter" in self.there:
            quarter = self.number("quarter", 1)
            return np.where((quarter >= 1) & (quarter <= 4), quarter * 3 - 2, 0)
        return self.number("month", 1)

    def _clock(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Microseconds since midnight, and whether the time exists; 24:00 ends a day."""
        hour, minute, second = (self.number(name, 0) for name in ("hour", "minute", "second"))
        good = (minute < 60) & (second < 60)
        if "half" in self.there:
            half = self.text("half")
            twelve = np.asarray(pc.greater(pc.utf8_length(half), 0).fill_null(False))
            good &= ~twelve | ((hour >= 1) & (hour <= 12))
            later = np.asarray(pc.equal(half, "p").fill_null(False))
            hour = np.where(twelve, hour % 12 + 12 * later, hour)
        times = ((hour * 60 + minute) * 60 + second) * SECOND
        if "fraction" in self.there:
            fraction = self.text("fraction").cast(pa.string())
            padded = pc.binary_join_element_wise(fraction, "000000", "")
            digits = pc.utf8_slice_codeunits(padded, 0, 6).fill_null("0")
            times = times + digits.cast(pa.int64()).to_numpy()
        return times, good & (times <= 86_400 * SECOND)

    def _zone(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Microseconds by which the clocks are ahead of UTC, and whether the stamp has a zone."""
        if "zone" not in self.there:
            size = len(self.fields)
            return np.zeros(size, np.int64), np.zeros(size, bool)
        coded = self.text("zone").fill_null("").dictionary_encode()
        places = coded.indices.to_numpy()
        names = coded.dictionary.to_pylist()
        shifts = np.array([_ahead(name) for name in names], np.int64)
        return shifts[places], np.array([name != "" for name in names], bool)[places]

    def text(self, name: str) -> pa.Array:
        return pc.struct_field(self.fields, name)

    def number(self, name: str, default: int) -> NDArray[np.int64]:
        """A part of each stamp, `default` if it is left out."""
        if name not in self.there:
            return np.full(len(self.fields), default, np.int64)
        text = self.text(name)
        text = pc.if_else(pc.equal(text, ""), str(default), text).fill_null(str(default))
        return text.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def _first_monday(years: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """The Mondays of the first ISO weeks of years, the weeks with 4 January."""
    fourth = (years - 1970).astype("M8[Y]").astype("M8[D]") + 3
    weekday = (fourth.astype(np.int64) + 3) % 7  # day 0 was a Thursday
    mondays: NDArray[np.datetime64] = fourth - weekday.astype("m8[D]")
    return mondays


def _ahead(zone: str) -> int:
    """Microseconds by which a clock in this zone is ahead of UTC."""
    if not zone or zone[0] not in "+-":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
    return (hours * 60 + minutes) * 60 * SECOND * (1 if zone[0] == "+" else -1)


def are_clocks(words: pa.Array) -> NDArray[np.bool_]:
    """Which words, none of them null, are a time of day such as 13:30, without a date."""
    small = pc.utf8_lower(words)
    parts = (pc.match_substring_regex(small, part) for part in (f"^{_CLOCK}$", "[:hm]"))
    return pc.and_(*parts).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def evenly(times: Times) -> bool:
    """Whether sorted stamps without repetitions, at least three, are one step apart.

    A step is a fixed length or a number of whole months.
    """
    if len(times) < 3:
        return False
    if np.ptp(np.diff(times).astype(np.int64)) == 0:
        return True
    months = times.astype("M8[M]")
    rest = times - months.astype("M8[us]")
    return bool(np.ptp(np.diff(months.astype(np.int64))) == 0 and (rest == rest[0]).all())


def date(time: np.datetime64) -> str:
    """The date of a time in words: 1 July 2016."""
    stamp = pd.Timestamp(time)
    return f"{stamp.day} {stamp:%B} {stamp.year}"
