"""Cells that people take for stamps and the reader does not read: what is wrong, and what to do.

A remedy is named only where it leads to the right series.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forecaster.datasets.reader.cells import LONGEST
from forecaster.datasets.reader.stamps import FORMS, WORDS, matches

LIKELY = re.compile(
    r"(?i).*(?:date|time|stamp|period|week|month|quarter|year|hour|datum|zeit|fecha|hora|data).*"
    r"|ds|ts|t|day|dia|jour|tag|index|when"
)
"""The names of columns that people give the time."""

_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_WEEKS, THAI = range(13, 54), range(2400, 2700)
"""The numbers of weeks that are no months; Thai years, which are 543 ahead of others."""
_SERIAL = 20_000, 80_000
"""Days since 1900 that are dates from 1954 to 2119."""
LABELS = 8
"""The fewest names that are stamps in a header that holds the time: fewer may be columns such as
2019 and 2020."""
_FOREIGN = re.compile(r"[^\W\d_]{3,}\.?")


def why(word: str) -> str:
    """What is wrong with a cell (trimmed) that should be a stamp, and the remedy; "" if unknown."""
    word = word.strip()
    if len(word) > LONGEST:
        return ""
    for mark in (" - ", " – ", "–", " to ", "/"):
        begin, dash, end = word.partition(mark)
        if dash and _is_stamp(begin) and (_is_stamp(end) or re.fullmatch(rf"{_CLOCK}|P.*", end)):
            return f"it is an interval; keep its start, '{begin}'"
    if match := re.fullmatch(rf"(?i)(.*{_CLOCK}) ?(gmt)?([+-]\d{{4}})? ?[(\[].*[)\]]", word):
        rest = f"{match[1]} {match[3] or ''}".strip()
        return f"leave out the words in brackets: '{rest}'"
    if match := re.fullmatch(rf"(.*{_CLOCK}) ?([A-Z]{{2,5}}|[A-Z][A-Za-z_]+/[A-Za-z_/]+)", word):
        return (
            f"'{match[2]}' is the name of a zone; leave it out, which gives local time, or write "
            f"the offset of each stamp, such as '{match[1]}+01:00'"
        )
    if re.match(r"(?i)fy", word):
        return "it is a fiscal year; write the quarter or the month of the calendar, as in 2010-Q1"
    if over_two_years([word]) and int(word[-2:]) > 12:
        return "it is a year over two calendar years; keep the first"
    if match := re.fullmatch(r"((?:19|20)\d{2})[-/ ]?(\d{2})", word):
        if int(match[2]) in _WEEKS:
            return (
                f"there is no month {match[2]}; if it is a week, write it as '{match[1]}-W"
                f"{match[2]}', for every row"
            )
    elif (years := re.findall(r"\b\d{4}\b", word)) and int(years[0]) in THAI:
        return f"the year may be Thai: {years[0]} is {int(years[0]) - 543} elsewhere; subtract 543"
    if re.fullmatch(r"\d+", word) and int(word) < _SERIAL[0]:
        return (
            "it counts, and is no time; make a column of stamps from a start and a step, such as "
            "pandas.date_range"
        )
    if re.fullmatch(r"\d{5}(?:[.,]\d+)?", word) and int(word[:5]) < _SERIAL[1]:
        return (
            "it counts the days since 1900, as spreadsheets do; format the column as date and time "
            "and export it again"
        )
    names = [name for name in _FOREIGN.findall(word) if name.lower() not in WORDS]
    if names and names[0].lower() in ("quarter", "week"):
        return "write it as '2008-Q1', or '2019-W02' for a week"
    if names and _is_stamp(_FOREIGN.sub("may", word, count=1)):
        return f"months are read in English, which '{names[0]}' is not; write them as numbers"
    return ""


def _is_stamp(word: str) -> bool:
    cell = pa.array([word.strip()])
    return any(bool(matches(cell, name)[0]) for name, form in FORMS.items() if not form.number)


def dates(names: Sequence[str]) -> range:
    """The places of the columns of a table whose names are stamps or years, or count as d_1, d_2,
    ... do, side by side; empty for another header."""
    words = pa.array([name.strip() for name in names])
    forms = [name for name, form in FORMS.items() if not form.number]
    patterns = (r"^(19|20)\d{2}$", r"^[A-Za-z]+_?\d+$")
    likely = [matches(words, form) for form in forms]
    likely += [pc.match_substring_regex(words, pattern).to_numpy(False) for pattern in patterns]
    for number, hits in enumerate(likely):
        there = np.flatnonzero(hits)
        if len(there) < LABELS or hits[there[0] : there[-1] + 1].mean() <= 0.9:
            continue
        counts = number >= len(forms)
        numbers = [re.sub(r"\D", "", names[at])[-LONGEST:] for at in there.tolist() if counts]
        if not counts or (np.diff([int(digits) for digits in numbers]) == 1).all():
            return range(int(there[0]), int(there[-1]) + 1)
    return range(0)


def over_two_years(words: Sequence[str]) -> bool:
    """Whether all words are years such as 2012/13, which begin in one and end in the next."""
    pairs = [re.fullmatch(r"(\d{4})[-/](\d{2})", word) for word in words]
    return bool(pairs) and all(pair and (int(pair[1]) + 1) % 100 == int(pair[2]) for pair in pairs)


def is_rounded(word: str) -> bool:
    """Whether a stamp is a number that was saved with an exponent and too few digits."""
    match = re.fullmatch(r"([\d.]+)e\+?\d+", word.lower())
    return match is not None and len(match[1]) < 11
