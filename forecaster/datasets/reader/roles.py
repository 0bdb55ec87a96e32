"""The roles of the columns of a table: the time, the series id, the targets."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

import pyarrow as pa

from forecaster.datasets.reader.clock import (
    COUNTED,
    USUAL,
    Clock,
    counts_time,
    time_columns,
)
from forecaster.datasets.reader.files import Table
from forecaster.datasets.reader.formats import ROWS
from forecaster.datasets.reader.kinds import Kind, kinds
from forecaster.datasets.reader.parts import counts_part, in_order
from forecaster.datasets.reading import Reading
from forecaster.datasets.series import missing_columns, quoted
from forecaster.errors import DataError, UsageError
from forecaster.flags import spelled

_IDS = ("unique_id", "item_id", "series_id", "id", "series")
MOST_WORDY = 8
"""The most columns of words that are tried in pairs."""


class Roles:
    """The roles of the columns of a table; `said` gets sentences about those that were found.

    `file_id` is the id that stands for the files themselves, None if a column has that name.
    """

    def __init__(self, table: Table, file_id: str | None, said: list[str]) -> None:
        self.table = table
        self.where = table.where
        self.file_id = file_id
        self.said = said

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        return kinds(self.table)

    def find(self, said: Reading, told: bool) -> Reading:
        """`said` with the roles that it leaves open; unchanged if a model has `told` all of them.

        Raises DataError for columns that do not exist or cannot be found, UsageError for a column
        with two roles.
        """
        table = self.table
        named = [
            *time_columns(said, table.columns),
            *(name for name in said.id if name != self.file_id),
            *said.targets, *said.past_covariates, *said.future_covariates, *said.static,
        ]  # fmt: skip
        missing = [name for name in named if name not in table.columns]
        if missing:
            raise DataError(missing_columns(self.where, missing, named, table.columns))
        twice = [name for name in named if named.count(name) > 1]
        if twice:
            raise UsageError(f"column '{twice[0]}' is given two roles; expected one.")
        if said.panel and (said.id or said.static):
            raise UsageError(
                "with data.panel=true each column of a wide file is a series, so "
                f"{spelled('id')} and {spelled('static')} cannot be used"
            )
        if told:
            return said
        wordy = [name for name in said.targets if self.kinds[name] == "text"]
        if wordy:
            raise DataError(
                f"{self.where}: column {self._described(wordy[0])} holds words, but only numbers "
                f"can be forecast. {spelled('past_covariates')} reads it as categories."
            )
        times = time_columns(said, table.columns) or (self._time(named),)
        found = said.id or (() if said.panel else self._id(named, times))
        filled = replace(said, time=said.time or times[0], id=found)
        if not said.targets:
            return replace(filled, targets=self._targets(filled, times))
        left_out = [name for name in table.columns if name not in {*named, *times, *found}]
        if left_out:
            self.said.append(
                f"Left out, without a role: {quoted(left_out)}. "
                f"{spelled('past_covariates')} reads a column."
            )
        return filled

    def _time(self, named: Sequence[str]) -> str:
        table = self.table
        found = [n for n in table.columns if self.kinds[n] == "stamp" and n not in named]
        usual = [name for name in USUAL for column in found if column.lower() == name]
        if not found:
            numbers = [n for n in table.columns if self.kinds[n] == "number" and n not in named]
            found = [name for name in numbers if counts_time(name, table.sample[name])]
            usual = [name for name in COUNTED for column in found if column.lower() == name]
        if len(found) > 1 and usual:
            found = [column for column in found if column.lower() == usual[0]]
        if len(found) != 1:
            listed = f"{quoted(found)} all hold stamps" if found else "no column holds stamps"
            raise DataError(
                f"{self.where}: {listed} such as 2016-07-01 00:00:00; name the time column with "
                f"{spelled('time')}. Columns: {quoted(table.columns)}."
            )
        self.said.append(f"The time is column '{found[0]}'.")
        return found[0]

    def _id(self, named: Sequence[str], times: Sequence[str]) -> tuple[str, ...]:
        table = self.table
        free = [name for name in table.columns if name not in {*named, *times}]
        for usual in _IDS:
            for name in free:
                if name.lower() == usual and self._repeats([name]):
                    self.said.append(f"The rows of a series share column '{name}'.")
                    return (name,)
        words = [name for name in free if self.kinds[name] == "text"]
        if len(table.parts) > 1 or len(words) != 1:
            return ()
        if self._repeats(times) and not self._repeats([*times, words[0]]):
            self.said.append(
                f"Stamps repeat, once for each '{words[0]}': the rows of a series share it."
            )
            return (words[0],)
        return ()

    def wordy(self, reading: Reading) -> list[str]:
        """The covariates that hold words not known yet."""
        covariates = (*reading.past_covariates, *reading.future_covariates)
        unknown = [] if reading.timezone else [n for n in covariates if n not in reading.categories]
        return [name for name in unknown if self.kinds[name] == "text"]

    def ways_apart(self, clock: Clock, ids: Sequence[str]) -> tuple[str, bool]:
        """A sentence about the columns that distinguish the rows of one stamp, "" without any, and
        whether one of them is the time of day.

        They are as few as possible: times of day, words or, if they name most of their series at
        most of the stamps, numbers. The first rows decide.
        """
        times = clock.columns
        free = [name for name in self.table.columns if name not in {*times, *ids}]
        clocks = [name for name in free if counts_part(name, self.table.sample[name])]
        finer = in_order(clocks, clock.stamps.form == "year")
        others = [n for n in free if self.kinds[n] in ("text", "number") and n not in clocks]
        taken = [*times, *(name for name in ids if name in self.table.columns)]
        rows = self._first_rows([*taken, *clocks, *others])
        stamps = rows.select(taken).group_by(taken).aggregate([]).num_rows
        counts = {name: len(rows[name].unique()) for name in others}
        most = {"text": len(rows) // 2, "number": 2 * len(rows) // stamps}
        single = [name for name in others if 1 < counts[name] <= most[self.kinds[name]]]
        words = [name for name in single if self.kinds[name] == "text"][:MOST_WORDY]
        tries = [*finer, *((name,) for name in single), *combinations(words, 2)]
        tries += [(*parts, name) for parts in finer for name in single]
        for columns in tries:
            if not _repeats(rows, [*taken, *columns]):
                parts = [name for name in columns if name in clocks]
                names = [name for name in columns if name not in clocks]
                ways = [f"{spelled('time', [*times, *parts])} reads the whole time"] * bool(parts)
                if names:
                    ways.append(f"{spelled('id', [*ids, *names])} makes each a series")
                verb = "together distinguish" if columns[1:] else "distinguishes"
                return (
                    f" {quoted(columns)} {verb} the rows with the same stamp: {', '.join(ways)}."
                ), bool(parts)
        return "", False

    def _first_rows(self, columns: Sequence[str]) -> pa.Table:
        """About ROWS rows of some columns."""
        batches: list[pa.RecordBatch] = []
        for rows in self.table.rows(columns):
            cells = rows.cells.select(list(columns))
            if sum(map(len, batches)) >= ROWS or (batches and cells.schema != batches[0].schema):
                break
            batches.append(cells)
        return pa.Table.from_batches(batches)

    def _repeats(self, columns: Sequence[str]) -> bool:
        """Whether the same values of these columns occur in several of the first rows."""
        return _repeats(self.table.sample, columns)

    def _targets(self, said: Reading, times: Sequence[str]) -> tuple[str, ...]:
        table = self.table
        taken = {
            *times, *said.id, *said.past_covariates, *said.future_covariates, *said.static,
        }  # fmt: skip
        free = [name for name in table.columns if name not in taken]
        index = [n for n in free if n in ("", "Unnamed: 0") or n.startswith("__index_level_")]
        numbers = [n for n in free if self.kinds[n] == "number" and n not in index]
        if said.id and "y" in numbers:
            numbers = ["y"]
        left_out = [self._described(n) for n in free if n not in numbers]
        if not numbers:
            raise DataError(
                f"{self.where}: no column of numbers is left to forecast. Other columns: "
                f"{', '.join(left_out) or 'none'}. "
                f"{spelled('target')} names what to forecast."
            )
        self.said.append(f"Targets: {quoted(numbers)}.")
        self.said += [f"Column {name} has no role and is left out." for name in left_out]
        return tuple(numbers)

    def _described(self, name: str) -> str:
        """A column and what it holds in the first rows."""
        kind = self.kinds[name]
        what = {"number": "numbers", "flag": "true or false", "empty": "no value in the first rows"}
        example = self.table.sample[name].drop_null()[:1].to_pylist()
        return f"'{name}' ({what.get(kind) or f'such as {example[0]!r:.40}'})"


def _repeats(table: pa.Table, columns: Sequence[str]) -> bool:
    """Whether the same values of these columns occur in several rows."""
    rows = table.select(list(columns))
    return bool(rows.group_by(list(columns)).aggregate([]).num_rows < rows.num_rows)
