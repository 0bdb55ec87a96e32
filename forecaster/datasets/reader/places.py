"""The series of a table, their time grid, and the place of each row on it."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.calendar import DAY, step_length
from forecaster.datasets.dataset import MARK, Items
from forecaster.datasets.reader.cells import categories, to_numbers, to_words
from forecaster.datasets.reader.clock import Clock
from forecaster.datasets.reader.files import RawTable, Rows
from forecaster.datasets.reader.grid import TimeGrid, find_step
from forecaster.datasets.reader.unread import THAI
from forecaster.datasets.reading import Reading

SAMPLE = 64, 2**20
"""The most series and stamps from which the time step is found, since they are sorted."""

KINDS = ("duplicates", "differing", "snapped", "off")
"""What may be irregular about a row besides its order."""

Numbers: TypeAlias = NDArray[np.int64]
Irregular: TypeAlias = dict[str, Numbers]
"""The rows of each kind of irregularity; of `gaps` those of the values."""


class Places:
    """The series of a table, and the place of each of its rows on their time grid.

    `codes` are the numbers of the series of the rows, `names` the names of these series, `stamps`
    those of the rows, in microseconds. `items` are the series of the data set: the parts of one
    series in several files are one item. `owners` are the items of the rows.
    Raises DataError if there is no grid, or one with more than `most` values.
    """

    def __init__(
        self,
        clock: Clock,
        reading: Reading,
        codes: Sequence[Numbers],
        names: Sequence[str],
        stamps: Sequence[Numbers],
        most: int | None,
    ) -> None:
        self.clock, self.reading, self.stamps = clock, reading, stamps
        self.table, self.rows, self.where = clock.table, clock.rows, clock.table.where
        first, last, self.unsorted = survey(codes, stamps, len(names))
        chosen = [np.flatnonzero(part < SAMPLE[0]) for part in codes]
        owner, sample = (
            np.concatenate([part[rows] for part, rows in zip(parts, chosen, strict=True)])
            for parts in (codes, stamps)
        )
        owner, sample = self.sample = owner[: SAMPLE[1]], sample[: SAMPLE[1]]
        self.freq, usual = find_step(sample, owner, self.where, reading.freq)
        self.step = step_length(self.freq)
        if reading.freq is None:
            clock.said.append(f"The time step is {self.freq}.")
        self.several, self.grid, self.count = bool(reading.id), None, sum(map(len, stamps))
        item_of = np.zeros(len(names), np.int64)
        if reading.policy == "rows":
            self.times = pd.DatetimeIndex(np.concatenate(stamps).view("datetime64[us]"))
            self.items = Items.single(self.count)
        else:
            ends = int(first.min()), int(last.max())
            self.grid = TimeGrid(self.freq, usual, *ends, sample, self.count, self.where, most)
            self.times = self.grid.times
            if (year := self.times[0].year) in THAI and not reading.complete:
                clock.said.append(f"The years may be Thai: {year} is {year - 543} elsewhere.")
            self._check_days(sample)
            self.several = bool(reading.id) or self._files_overlap(first, last)
            item_names = [""]
            if self.several:
                order = in_order(names)
                item_of[order] = np.arange(len(names))
                item_names = [names[place] for place in order]
            self.items = self._items(item_names, item_of, first, last, most)
        self.owners = [item_of[part] for part in codes]

    def _files_overlap(self, first: Numbers, last: Numbers) -> bool:
        """Whether files without an id column are separate series, not parts of one."""
        if len(first) == 1:
            return False
        order = np.argsort(first, kind="stable")
        overlap = bool((first[order][1:] < last[order][:-1]).any())
        if overlap and self.reading.panel:
            raise UsageError(
                f"{self.where}: {len(order)} files with overlapping times are one series each; "
                "data.panel=true is for the columns of one file, or of files in sequence"
            )
        self.clock.said.append(
            f"{len(order)} files with overlapping times: each is a series, named by its file."
            if overlap
            else f"{len(order)} files with consecutive times: parts of one series."
        )
        return overlap

    def _items(
        self, names: list[str], item_of: Numbers, first: Numbers, last: Numbers, most: int | None
    ) -> Items:
        """The items: the rows of each reach from the first stamp of its series to the last."""
        assert self.grid
        begin, end = np.full(len(names), len(self.times)), np.full(len(names), -1)
        np.minimum.at(begin, item_of, self.grid.place(first)[0])
        np.maximum.at(end, item_of, self.grid.place(last)[0])
        lengths = end - begin + 1
        width = len(self.reading.read_as(self.reading.value_columns))
        if lengths.sum() > min(20 * self.count + 1_000_000, (most or sys.maxsize) // width):
            raise DataError(
                f"{self.where}: {self.count:,} rows for {lengths.sum():,} steps of {self.freq} "
                "between the first and last stamps of the series; is a stamp wrong, or the step? "
                f"{spelled('freq')} names it."
            )
        return Items(tuple(names), np.r_[0, np.cumsum(lengths)], begin)

    def _check_days(self, stamps: Numbers) -> None:
        """Raise DataError for days in UTC that begin at two times, since the clocks changed."""
        if not self.clock.zoned or (self.step or 0) % DAY:
            return
        begins = np.unique(stamps % DAY)
        if len(begins) == 2 and begins[1] - begins[0] in (DAY // 24, DAY - DAY // 24):
            one, other = (f"{pd.Timestamp(int(begin), unit='us'):%H:%M}" for begin in begins)
            raise DataError(
                f"{self.where}: steps begin at {one} and at {other} in UTC, as in a time zone with "
                "summer time; give the stamps in local time, without a zone."
            )

    def fill(
        self, values: NDArray[np.floating[Any]], blocks: Iterable[NDArray[np.float64]]
    ) -> tuple[NDArray[np.bool_], Irregular, Numbers]:
        """Put the rows into `values`: the first of a place or, as the policy states, their mean.

        `blocks` are the values of the rows. Returns which places have a row, the rows that are
        irregular, and the places of those that repeat a stamp.
        """
        shift = self.items.bounds[:-1] - self.items.places
        seen = np.zeros(len(values), dtype=bool)
        odd: dict[str, list[Numbers]] = {kind: [] for kind in KINDS}
        spare, begin = [], 0
        for block, owner, stamps in zip(blocks, self.owners, self.stamps, strict=True):
            steps, missed = np.arange(begin, begin + len(stamps)), np.zeros(len(stamps), np.int64)
            if self.grid:
                steps, missed = self.grid.place(stamps)
            places = shift[owner] + steps
            fresh = _fresh(places, seen)
            values[places[fresh]] = block[fresh]
            again = np.flatnonzero(~fresh)
            there, here = values[places[again]], block[again].astype(values.dtype)
            same = ((there == here) | (np.isnan(there) & np.isnan(here))).all(axis=1)
            spare.append((places[again], here))
            off = np.abs(missed) > (self.grid.tolerance if self.grid else 0)
            met = again, again[~same], np.flatnonzero((missed != 0) & ~off), np.flatnonzero(off)
            for kind, numbers in zip(KINDS, met, strict=True):
                odd[kind].append(begin + numbers)
            begin += len(stamps)
        repeated, more = (np.concatenate(parts) for parts in zip(*spare, strict=True))
        if len(more) and self.reading.policy != "rows":  # as for summer time
            _average(values, repeated, more)
        rows = {kind: np.concatenate(parts) for kind, parts in odd.items()}
        rows = {"unsorted": self.unsorted, **rows, "gaps": np.flatnonzero(~seen)}
        return seen, rows, repeated

    def attribute(self, column: str) -> NDArray[Any]:
        """A static attribute of the items, given by any row of each: words, or numbers if all are.

        Raises DataError for rows without a value, and if it changes within a series.
        """
        known: dict[str, int] = {}
        there = np.full(len(self.items), -1)
        for part, item in zip(self.rows, self.owners, strict=True):
            words, places = categories(part.cells[column], self.table.reading.missing)
            met = np.array([*(known.setdefault(word, len(known)) for word in words), -1])[places]
            if (met < 0).any():
                where = self.table.row(part, int((met < 0).argmax()))
                raise DataError(f"{where}, column '{column}': no value of a static attribute")
            unknown = there[item] < 0
            there[item[unknown][::-1]] = met[unknown][::-1]  # the first row of an item counts
            changed = met != there[item]
            if changed.any():
                row = int(changed.argmax())
                raise DataError(
                    f"{self.table.row(part, row)}, column '{column}': {part.cells[column][row]}, "
                    "but earlier rows have another value for this series; a static attribute is "
                    "constant within a series. A value that changes is a covariate: "
                    f"{spelled('past_covariates')} or {spelled('future_covariates')}."
                )
        try:
            values: NDArray[Any] = to_numbers(pa.array([*known]), lambda _, what: DataError(what))
        except DataError:
            values = np.array([*known])
        return values[there]  # type: ignore[no-any-return]

    def shown(self, kind: str, row: int) -> str:
        """One of some irregularities in a message."""
        if kind == "gaps":
            item, step = self.items.locate(row)
            return f"{self.times[step]}{self._of(item)}"
        part = 0
        while row >= len(self.stamps[part]):
            row -= len(self.stamps[part])
            part += 1
        rows = self.rows[part]
        file = f"{Path(self.table.names[rows.file]).name}, " if len(self.table.parts) > 1 else ""
        named = f"{file}row {rows.before + row + 1}"
        if kind == "unsorted":
            return named
        stamp = pd.Timestamp(int(self.stamps[part][row]), unit="us")
        return f"{named}: {stamp:%a %Y-%m-%d %H:%M:%S}{self._of(self.owners[part][row])}"

    def _of(self, item: int) -> str:
        return f" of '{self.items.names[item]}'" if self.several else ""


def find_ids(
    columns: Sequence[str], rows: Sequence[Rows], table: RawTable
) -> tuple[list[Numbers], list[str]]:
    """The numbers of the series of some rows, and the ids in the order of their first rows.

    Without `columns` the series are the files that have rows, named by their stems.
    """
    if not columns:
        files = sorted({part.file for part in rows})
        codes = [np.full(part.cells.num_rows, files.index(part.file)) for part in rows]
        return codes, _apart([table.names[file] for file in files])
    names: dict[str, int] = {}
    codes = []
    for part in rows:
        words, places = _words(part, columns[0], table)
        for number, column in enumerate(columns[1:], 1):
            others, there = _words(part, column, table)
            pairs, places = np.unique(places * len(others) + there, return_inverse=True)
            words = [
                _joined(words[one], others[other], columns, number, table.names[part.file])
                for one, other in zip(*np.divmod(pairs, len(others)), strict=True)
            ]
        codes.append(np.array([names.setdefault(word, len(names)) for word in words])[places])
    return codes, list(names)


def _words(rows: Rows, column: str, table: RawTable) -> tuple[list[str], Numbers]:
    words, places = to_words(rows.cells[column])
    if (places < 0).any():
        where = table.row(rows, int((places < 0).argmax()))
        raise DataError(f"{where}, column '{column}': no value")
    return words, places


def _joined(before: str, word: str, columns: Sequence[str], number: int, where: str) -> str:
    joined = f"{before}{MARK}{word}"
    if joined.count(MARK) != number or joined.split(MARK)[-1] != word:
        raise DataError(
            f"{where}, columns {quoted(columns)}: '{joined:.80}' cannot be split again, because "
            f"'{MARK}' joins the parts of a series id; write the values without it."
        )
    return joined


def survey(
    codes: Sequence[Numbers], stamps: Sequence[NDArray[np.int64]], series: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last stamps of the series, and the rows out of order.

    These have an earlier stamp than the row before them in their series.
    """
    none, far = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    first, last, latest = np.full(series, far), np.full(series, none), np.full(series, none)
    unsorted, begin = [], 0
    for numbers, times in zip(codes, stamps, strict=True):
        before = pd.Series(times).groupby(numbers).shift(fill_value=none).to_numpy(copy=True)
        starts = before == none
        before[starts] = latest[numbers[starts]]
        latest[numbers] = times
        unsorted.append(begin + np.flatnonzero(times < before))
        begin += len(times)
        np.minimum.at(first, numbers, times)
        np.maximum.at(last, numbers, times)
    return first, last, np.concatenate(unsorted)


def _fresh(places: Numbers, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are the first of their places, all of which are `seen` from now on."""
    fresh = ~seen[places]
    if (places[1:] <= places[:-1]).any():
        firsts = np.zeros(len(places), dtype=bool)
        firsts[np.unique(places, return_index=True)[1]] = True
        fresh &= firsts
    seen[places] = True
    return fresh


def _average(
    values: NDArray[np.floating[Any]], places: Numbers, more: NDArray[np.floating[Any]]
) -> None:
    """Average what is at some places, any of which may come again, with `more` rows for them."""
    unique, index = np.unique(places, return_inverse=True)
    sums, counts = np.zeros((2, len(unique), values.shape[1]), values.dtype)
    np.add.at(sums, index, np.nan_to_num(more))
    np.add.at(counts, index, ~np.isnan(more))
    counts += ~np.isnan(values[unique])
    sums += np.nan_to_num(values[unique])
    values[unique] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    values += 0.0  # where rows are averaged, no zero is negative


def _apart(paths: Sequence[str]) -> list[str]:
    """The names of series with one file each, as long as needed to be different."""
    names = [stem(file) for file in paths]
    if len({*names}) < len(names):
        above = os.path.commonpath(paths)
        names = [Path(file).relative_to(above).as_posix() for file in paths]
    return names


def in_order(names: Sequence[str]) -> list[int]:
    """The indices of names in sorted order: whole numbers by size, words alphabetically."""
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return sorted(
        range(len(names)), key=lambda i: (int(names[i]), names[i]) if numbers else names[i]
    )


def stem(path: str) -> str:
    return Path(path).name.split(".")[0]
