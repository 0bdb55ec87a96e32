"""What the columns of a table hold, and their roles: the time, the series id, the targets."""

import re
from calendar import day_name
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.dataset import missing_columns
from forecaster.datasets.reader import clock
from forecaster.datasets.reader.cells import FLAG, LIKE_NUMBER, is_text, plain, trimmed
from forecaster.datasets.reader.files import RawTable
from forecaster.datasets.reader.stamps import FORMS, WORDS, are_clocks, different, exist
from forecaster.datasets.reader.unread import LIKELY, dates, why
from forecaster.datasets.reading import Reading

Kind: TypeAlias = Literal["number", "flag", "stamp", "clock", "text", "empty", "other"]

UNIT = rf"^(?:{LIKE_NUMBER})\s*(?P<unit>[^\d\s.,;:][^\d\s]{{0,9}})$"
"""A number and the unit behind it."""

HOURS = frozenset(["hour", "hours", "hr", "hh", "he", "stunde", "hora", "heure", "uhr", "hrs"])
PART = HOURS | frozenset([
    "year", "quarter", "qtr", "month", "week", "wk", "day", "minute", "minutes", "min", "period",
    "interval", "slot", "mtu", "jahr", "monat", "woche", "kw", "mes", "dia", "mois",
])  # fmt: skip
"""Words in the names of columns of numbers that are hours, or any part of a time, never ids."""

PARTS = r"(?i)^(?:[qmhw]\d{1,2}|he\d{1,2}|\d{1,2}(?::\d{2})? ?[-–] ?\d{1,2}(?::\d{2})?)$"
"""Words that are parts of a time: Q1, M01, HE07, 00:00-01:00."""

SCALES = frozenset(["k", "m", "mn", "mio", "mrd", "b", "bn"])
"""Units that multiply a number."""

WEEKDAYS = tuple(word for day in (name.lower() for name in day_name) for word in (day, day[:3]))

MOST_PARTS = 4
"""The most columns that give a time together: of a date, hours, minutes and seconds."""

FILE = "file"
"""The name of the series id if each series has its own file and no column holds the id."""

_IDS = ("unique_id", "item_id", "series_id", "id", "series")


def check_roles(named: Sequence[str]) -> None:
    """Raise UsageError for a column that is named twice."""
    for name in named:
        if named.count(name) > 1:
            raise UsageError(f"column '{name}' is given two roles; expected one.")


def whole(names: tuple[str, ...], columns: Sequence[str]) -> tuple[str, ...]:
    """`names`, of which neighbours that only together are a column are one: 'Energy, kWh'."""
    for column in columns:
        parts = tuple(part.strip() for part in column.split(","))
        for first in range(len(names)):
            if len(parts) > 1 and names[first : first + len(parts)] == parts:
                names = (*names[:first], column, *names[first + len(parts) :])
    return names


class Roles:
    """The roles of the columns of a table; `messages` gets sentences about those that were found.

    `file_id` is the id that stands for the files themselves, None if a column has that name.
    """

    def __init__(self, table: RawTable, messages: list[str]) -> None:
        self.table = table
        self.where = table.where
        self.file_id = FILE if table.in_files and FILE not in table.columns else None
        self.said = messages

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each column, from the first rows; `empty` if they have no value in it."""
        sample, missing = self.table.sample, self.table.reading.missing
        return {name: _kind(plain(sample[name]), missing) for name in self.table.columns}

    def find(self, reading: Reading) -> Reading:
        """`reading` with the roles that it leaves open; unchanged if it is complete.

        Raises DataError for columns that do not exist or cannot be found, UsageError for a column
        with two roles.
        """
        table = self.table
        roles = ("id", "targets", "past_covariates", "future_covariates", "static")
        columns: dict[str, Any] = {r: whole(getattr(reading, r), table.columns) for r in roles}
        reading = replace(reading, **columns)
        named = [
            *clock.time_columns(reading, table.columns),
            *(name for name in reading.id if name != self.file_id),
            *reading.value_columns,
            *reading.static,
        ]
        if odd := [name for name in reading.categorical if name not in named]:
            raise UsageError(
                f"{spelled('categorical')}: '{odd[0]}' is not a covariate; "
                f"{spelled('past_covariates')} or {spelled('future_covariates')} names it, too"
            )
        missing = [name for name in named if name not in table.columns]
        if missing:
            raise DataError(missing_columns(self.where, missing, named, table.columns))
        check_roles(named)
        if reading.panel and (reading.id or reading.static):
            raise UsageError(
                "with data.panel=true each column of a wide file is a series, so "
                f"{spelled('id')} and {spelled('static')} cannot be used"
            )
        if reading.complete:
            return reading
        wordy = [name for name in reading.targets if self.kinds[name] == "text"]
        if wordy:
            self._check_unit(wordy[0])
            raise DataError(
                f"{self.where}: column {self._described(wordy[0])} holds words, but only numbers "
                f"can be forecast. {spelled('past_covariates')} reads it as categories."
            )
        times = clock.time_columns(reading, table.columns) or (self._time(named),)
        ids = reading.id or (() if reading.panel else self._id(named, times))
        filled = replace(reading, time=reading.time or times[0], id=ids)
        if not reading.targets:
            return replace(filled, targets=self._targets(filled, times))
        left_out = [name for name in table.columns if name not in {*named, *times, *ids}]
        if left_out:
            self.said.append(
                f"Left out, without a role: {quoted(left_out)}. "
                f"{spelled('past_covariates')} reads a column, {spelled('future_covariates')} one "
                "that is known ahead."
            )
        return filled

    def _time(self, named: Sequence[str]) -> str:
        table = self.table
        candidates = [n for n in table.columns if self.kinds[n] == "stamp" and n not in named]
        usual = [name for name in clock.USUAL for column in candidates if column.lower() == name]
        if not candidates:
            numbers = [n for n in table.columns if self.kinds[n] == "number" and n not in named]
            candidates = [name for name in numbers if clock.counts_time(name, table.sample[name])]
            usual = [
                name for name in clock.COUNTED for column in candidates if column.lower() == name
            ]
        if len(candidates) > 1 and usual:
            candidates = [column for column in candidates if column.lower() == usual[0]]
        if not candidates:
            raise DataError(f"{self.where}: no column holds stamps that are read. {self._unread()}")
        if len(candidates) > 1:
            raise DataError(
                f"{self.where}: {quoted(candidates)} all hold stamps; name the time column with "
                f"{spelled('time')}."
            )
        self.said.append(f"The time is column '{candidates[0]}'.")
        return candidates[0]

    def _unread(self) -> str:
        """Why the likely time column is not read; or that the header holds the stamps."""
        columns = self.table.columns
        if labels := dates(columns):
            first, behind = labels[0], [*columns[labels[-1] + 1 :]]
            drop = f".drop(columns={behind})" if behind else ""
            return (
                f"The header holds them, from '{columns[first]}' on, and each row is a series: "
                "turn the table, so that each row has one stamp and one value (in pandas: "
                f"frame{drop}.melt({[*columns[:first]]}, var_name='time'))."
            )
        likely = [name for name in columns if LIKELY.fullmatch(name.strip())]
        for name in [*likely, *(name for name in columns if self.kinds[name] == "text")]:
            words = different(self.table.sample[name])[: clock.SHOWN].to_pylist()
            if word := next((word for word in words if why(word)), ""):
                return (
                    f"Column '{name}' seems to be the time, but '{word}' is not read: {why(word)}. "
                    f"Or name another column with {spelled('time')}."
                )
        example = ""
        if likely and len(words := different(self.table.sample[likely[0]])):
            example = f"the cells of '{likely[0]}', such as '{words[0].as_py():.80}', are not; "
        return (
            f"Expected some such as YYYY-MM-DD hh:mm:ss; {example}{spelled('time')} names the "
            f"column. Columns: {quoted(columns)}."
        )

    def _id(self, named: Sequence[str], times: Sequence[str]) -> tuple[str, ...]:
        table = self.table
        free = [name for name in table.columns if name not in {*named, *times}]
        for usual in _IDS:
            for name in free:
                if name.lower() == usual and self._repeats([name]):
                    self.said.append(f"The rows of a series share column '{name}'.")
                    return (name,)
        words = [name for name in free if self.kinds[name] == "text" and not self._is_part(name)]
        if len(table.parts) > 1 or len(words) != 1:
            return ()
        if self._repeats(times) and not self._repeats([*times, words[0]]):
            self.said.append(
                f"Stamps repeat, once for each '{words[0]}': the rows of a series share it."
            )
            return (words[0],)
        return ()

    def distinguishing(self, reading: Reading) -> tuple[str, ...]:
        """A column, or two, that tell apart the rows of one stamp, words before whole numbers.

        It has no role yet, and its values occur in several of the first rows.
        """
        times = clock.time_columns(reading, self.table.columns)
        taken = {*times, *reading.value_columns, *reading.static}
        free = [name for name in self.table.columns if name not in taken]
        kinds = ("text", "stamp", "number")
        likely = [name for kind in kinds for name in free if self.kinds[name] == kind]
        candidates = (
            name
            for name in likely
            if not self._is_part(name)
            and self._repeats([name])
            and not self._repeats([*times, name])
        )
        pairs = combinations([name for name in likely if self.kinds[name] == "text"], 2)
        both = (pair for pair in pairs if not self._repeats([*times, *pair]))
        return next(((name,) for name in candidates), next(both, ()))

    def other_parts(self, reading: Reading) -> str:
        """What to do about columns with further parts of the time, such as hours; "" if none is."""
        times = clock.time_columns(reading, self.table.columns)
        taken = {*times, *reading.id, *reading.value_columns}
        parts = [n for n in self.table.columns if n not in taken and self._is_part(n)]
        for names in [*((*times, part) for part in parts), (*times, *parts)]:
            if names != times and len(names) <= MOST_PARTS:
                joined = clock.TimeColumns(names, self.table.sample)
                hours = names[len(times) :]
                if not joined.year and not all(
                    self.kinds[name] == "clock" or HOURS & {*_words(name)} for name in hours
                ):
                    continue
                words = different(joined.cells(self.table.sample))
                good = any(exist(words, form).all() for form in FORMS)
                if good and not self._repeats([*reading.id, *names]):
                    return f"{spelled('time', [*names])} reads the time from both columns"
        if not parts:
            return ""
        return (
            f"Column '{parts[0]}' seems to hold parts of the time beside {quoted(times)}: make one "
            "column of stamps of both"
        )

    def _is_part(self, name: str) -> bool:
        """Whether a column holds parts of a time: the names of months or days, times of day, or
        small whole numbers under a name such as hour."""
        if self.kinds[name] == "clock":
            return True
        words = different(self.table.sample[name])
        if self.kinds[name] == "text":
            cells = {word.lower().rstrip(".") for word in words.to_pylist()}
            months, days = ({word[:3] for word in cells & {*known}} for known in (WORDS, WEEKDAYS))
            if cells <= {*WORDS, *WEEKDAYS}:
                return len(months) > 6 or len(days) > 4
            return bool(pc.all(pc.match_substring_regex(words, PARTS)).as_py())
        numbers = pc.match_substring_regex(words, r"^\d{1,4}(\.0*)?$")
        return bool(PART & {*_words(name)}) and bool(pc.all(numbers).as_py())

    def wordy(self, reading: Reading) -> list[str]:
        """The covariates that hold words not known yet."""
        if reading.complete:
            return []
        return [
            name
            for name in reading.covariates
            if name not in reading.categories
            and (name in reading.categorical or self.kinds[name] == "text")
        ]

    def _repeats(self, columns: Sequence[str]) -> bool:
        """Whether the same values of these columns occur in several of the first rows."""
        rows = self.table.sample.select(list(columns))
        return bool(rows.group_by(list(columns)).aggregate([]).num_rows < rows.num_rows)

    def _targets(self, reading: Reading, times: Sequence[str]) -> tuple[str, ...]:
        table = self.table
        taken = {*times, *reading.id, *reading.covariates, *reading.static}
        free = [name for name in table.columns if name not in taken]
        index = [n for n in free if n in ("", "Unnamed: 0") or n.startswith("__index_level_")]
        numbers = [n for n in free if self.kinds[n] == "number" and n not in index]
        if reading.id and "y" in numbers:
            numbers = ["y"]
        counters = [n for n in numbers if self._counts(n)]
        if counters and len(counters) < len(numbers):
            numbers = [n for n in numbers if n not in counters]
        rest = [n for n in free if n not in numbers]
        left_out = [
            f"'{n}' (counts the rows)" if n in counters else self._described(n) for n in rest
        ]
        if not numbers:
            for name in free:
                if self.kinds[name] == "text":
                    self._check_unit(name)
            raise DataError(
                f"{self.where}: no column of numbers is left to forecast. Other columns: "
                f"{', '.join(left_out) or 'none'}. "
                f"{spelled('target')} names what to forecast."
            )
        self.said.append(f"Targets: {quoted(numbers)}.")
        self.said += [f"Column {name} has no role and is left out." for name in left_out]
        return tuple(numbers)

    def _check_unit(self, name: str) -> None:
        """Raise DataError for a column of numbers with a unit behind most of them."""
        words = different(self.table.sample[name])
        units = pc.struct_field(pc.extract_regex(words, UNIT), "unit")
        common = units.value_counts().to_pylist()
        most = max(common, key=lambda row: int(row["counts"]), default={"counts": 0})
        unit = str(most["values"] or "")
        if not unit or 2 * int(most["counts"]) <= len(words):
            return
        others = [row["values"] for row in common if row["values"] not in (None, unit)]
        remedy = f"remove '{unit}' from its cells"
        if others:
            remedy = f"write all with one, without '{unit}', {quoted(others)}"
        if {unit.lower(), *map(str.lower, others)} & SCALES:
            remedy = f"write the numbers in full, without '{unit}'"
        raise DataError(
            f"{self.where}: column {self._described(name)} holds numbers with a unit; {remedy}."
        )

    def _counts(self, name: str) -> bool:
        """Whether a column only counts the rows, as an index that was written out does."""
        cells = self.table.sample[name]
        try:
            numbers = pc.cast(cells, pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            return False
        counts = len(numbers) > 2 and not cells.null_count and numbers[0] in (0, 1)
        return bool(counts and (np.diff(numbers) == 1).all())

    def _described(self, name: str) -> str:
        """A column and what it holds in the first rows."""
        kind = self.kinds[name]
        what = {"number": "numbers", "flag": "true or false", "empty": "no value in the first rows"}
        example = self.table.sample[name].drop_null()[:1].to_pylist()
        return f"'{name}' ({what.get(kind) or f'such as {example[0]!r:.40}'})"


def _words(name: str) -> list[str]:
    """The words of a name, in lower case: hour, ending for HourEnding or hour_ending."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-zäöü]+|[A-ZÄÖÜ]+", name)]


def _kind(cells: pa.Array, missing: tuple[str, ...]) -> Kind:
    kind = cells.type
    if cells.null_count == len(cells):
        return "empty"
    if pa.types.is_boolean(kind):
        return "flag"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "stamp"
    if pa.types.is_time(kind):
        return "clock"
    if not is_text(kind):
        return "other"
    text = trimmed(cells, missing).drop_null()
    if len(text) == 0:
        return "empty"
    try:
        pc.cast(text, pa.float64())
        return "number"
    except pa.ArrowInvalid:
        pass

    def share(pattern: str) -> float:
        return float(pc.mean(pc.match_substring_regex(text, pattern)).as_py())

    if share(f"^{LIKE_NUMBER}$") >= 0.5:
        return "number"
    if share(FLAG) == 1:
        return "flag"
    if clock.stamp_share(text) >= 0.5:
        return "stamp"
    if are_clocks(text).mean() >= 0.5:
        return "clock"
    return "text"
