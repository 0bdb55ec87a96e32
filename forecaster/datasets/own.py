"""A file of one's own as a series: what it does not say is inferred, and said.

Two forms are read, from one file or many. Wide: a time column and columns of values. Long: the rows
of many series below one another, told apart by an id column. Every row is placed by its stamp on
one grid of time steps; what is irregular about it is counted and refused, or repaired as the policy
says. Nothing is ever filled: a missing value is NaN.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from forecaster import resources
from forecaster.datasets.calendar import normalise_freq
from forecaster.datasets.grid import Grid, Step, infer_step
from forecaster.datasets.items import Items
from forecaster.datasets.seasons import infer_seasons
from forecaster.datasets.series import (
    DAYLIGHT_SAVING,
    Series,
    missing_columns,
    quoted,
    separator_hint,
)
from forecaster.datasets.table import (
    Rows,
    Table,
    find_clock,
    frame_table,
    holds_text,
    is_stamp,
    open_table,
    to_numbers,
    to_words,
)
from forecaster.errors import DataError, StorageError, UsageError

Policy = Literal["error", "sort", "resample"]

IN_MEMORY = 2**26
"""Bytes of values up to which they are kept in memory; above, in 32 bits in a mapped file."""

CHUNK = 2**20
"""Rows of values that are looked at together."""

SAMPLE = 64, 2**20
"""Series and stamps of which the time step is told."""

_IDS = ("unique_id", "item_id", "series_id", "id", "series")
_TIMES = ("ds", "date", "datetime", "timestamp", "time")
FILE = "file"
"""The id of a series that has a file to itself: what `id` is called where no column has it."""

_PANEL = "y"
"""What the one column of a panel is called that was wide."""


@dataclass(frozen=True)
class Reading:
    """What is said about a file; what is not said is inferred.

    `time` and `id` name columns: the stamps, and the series that a row of a long file belongs to.
    `targets` are to be predicted; `past_covariates` are known up to now, `future_covariates` for
    the steps to come as well; `static` attributes belong to a series as a whole. With `panel`
    every target column of a wide file becomes a series of its own. `policy` tells what becomes of
    rows that are not one step apart: `error`; `sort` orders them, drops identical repetitions and
    leaves gaps missing; `resample` also averages rows that share a step.
    """

    time: str | None = None
    id: str | None = None
    targets: tuple[str, ...] = ()
    past_covariates: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    freq: str | None = None
    seasons: tuple[int, ...] = ()
    panel: bool | None = None
    policy: Policy = "error"


@dataclass(frozen=True)
class Own:
    """A file as it was read: the facts about it, its series, and what was inferred.

    `seasons` has the main one first, (1,) where none shows; `columns` are the targets, then the
    past covariates, as in `series`; `said` are sentences for the user; `counts` plain JSON.
    """

    name: str
    time: str
    timezone: Literal["UTC", "naive"]
    freq: str
    seasons: tuple[int, ...]
    columns: tuple[str, ...]
    targets: tuple[str, ...]
    id: str | None
    panel: bool
    series: Series
    said: tuple[str, ...]
    counts: dict[str, Any]


def read(path: str, reading: Reading = Reading()) -> Own:
    """The series in a CSV or Parquet file, in the files of a folder, or in those of a pattern.

    Files without an id column are the series of a panel where their times overlap, and consecutive
    parts of one series otherwise. The series of a panel are called by the stems of the files, their
    `id` is FILE; an id of that name asks for this. Raises UnavailableError where there is
    no file, DataError for what does not fit, with the flag that would accept it.
    """
    table = open_table(path)
    place = Path(path).expanduser().absolute()
    named = place if place.exists() else place.parent
    return _Reader(table, reading).read(_stem(named.name) or "data")


def history(
    source: "str | Path | pd.DataFrame",
    reading: Reading,
    *,
    timezone: Literal["UTC", "naive"],
    where: str = "the history",
    most: int | None = None,
) -> Own:
    """The same reading of other rows, few perhaps, by the facts of a trained model.

    `reading` names the time column, the targets and the step; columns that it does not name are
    ignored. Stamps without a zone are UTC where those of the model were. Raises DataError as `read`
    does, where stamps carry a zone though those of the model did not, and for more than `most`
    values between the first and the last stamps of the series.
    """
    if not (reading.time and reading.targets and reading.freq):
        raise ValueError(f"{reading} leaves out the time column, the targets or the step")
    if isinstance(source, pd.DataFrame):
        table = frame_table(source, reading.time, where)
    elif not isinstance(source, str | Path):
        raise UsageError(f"{where}: expected a DataFrame or a file, got {type(source).__name__}")
    else:
        table = open_table(str(source))
    reading = replace(reading, seasons=reading.seasons or (1,))
    return _Reader(table, reading, timezone, most).read(where)


class _Ids:
    """The numbers of the series by their names, in the order of their first rows."""

    def __init__(self, column: str | None) -> None:
        self.column = column
        self.names: dict[str, int] = {}

    def codes(self, rows: Rows, table: Table) -> NDArray[np.int64]:
        """The series of each row."""
        if self.column is None:
            return np.full(rows.cells.num_rows, rows.file)
        words, places = to_words(rows.cells[self.column])
        if (places < 0).any():
            row = rows.before + int((places < 0).argmax())
            raise DataError(f"{table.row(rows.file, row)}, column '{self.column}': no value")
        names = self.names
        return np.array([names.setdefault(word, len(names)) for word in words])[places]


@dataclass
class _Survey:
    """What the stamps of a table tell, series by series."""

    first: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    last: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    latest: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    rows: int = 0
    unsorted: int = 0
    first_unsorted: str = ""
    sample: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)

    def add(self, codes: NDArray[np.int64], stamps: NDArray[np.int64]) -> int | None:
        """Take some rows in; the first that is earlier than the one before it of its series."""
        none, far = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        more = int(codes.max()) + 1 - len(self.first)
        if more > 0:
            self.first = np.append(self.first, np.full(more, far))
            self.last = np.append(self.last, np.full(more, none))
            self.latest = np.append(self.latest, np.full(more, none))
        self._sample(codes, stamps)
        self.rows += len(codes)
        early = None
        ordered = bool((stamps[1:] >= stamps[:-1]).all()) and stamps[0] >= self.latest.max()
        if ordered:
            np.maximum.at(self.latest, codes, stamps)
        else:
            order: Any = slice(None)
            if (codes[1:] < codes[:-1]).any():
                order = np.argsort(codes, kind="stable")
            owner, time = codes[order], stamps[order]
            starts = np.r_[True, owner[1:] != owner[:-1]]
            before = np.r_[none, time[:-1]]
            before[starts] = self.latest[owner[starts]]
            wrong = time < before
            self.latest[owner[np.r_[starts[1:], True]]] = time[np.r_[starts[1:], True]]
            if wrong.any():
                self.unsorted += int(wrong.sum())
                early = int(np.arange(len(codes))[order][wrong].min())
        np.minimum.at(self.first, codes, stamps)
        np.maximum.at(self.last, codes, stamps)
        return early

    @property
    def sampled(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Series and stamp of the rows by which the step is told."""
        codes, stamps = zip(*self.sample, strict=True)
        return np.concatenate(codes), np.concatenate(stamps)

    def _sample(self, codes: NDArray[np.int64], stamps: NDArray[np.int64]) -> None:
        series, rows = SAMPLE
        room = rows - sum(len(part) for part, _ in self.sample)
        if room > 0:
            chosen = np.flatnonzero(codes < series)[:room]
            if len(chosen):
                self.sample.append((codes[chosen], stamps[chosen]))


@dataclass
class _Found:
    """How often something irregular was met, and where first."""

    count: int = 0
    first: str = ""

    def add(self, count: int, first: str) -> None:
        self.first = self.first or first
        self.count += count


def allocate(shape: tuple[int, int]) -> NDArray[np.floating[Any]]:
    """Room for values: float64 in memory or, above IN_MEMORY, float32 in a mapped file.

    The file has no name and vanishes with the array. Raises StorageError where the disk is full.
    """
    if shape[0] * shape[1] * 8 <= IN_MEMORY:
        return np.empty(shape)
    folder = resources.cache() / "values"
    size = shape[0] * shape[1] * 4
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # without it a full disk would end the process
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, np.float32, "r+", shape=shape)
    except OSError as error:
        raise StorageError(
            f"{folder}: no room for {size >> 20} MiB of values: {error.strerror}. "
            "$XDG_CACHE_HOME names another place."
        ) from None


class _Cells:
    """Rows of values (N, C) by their places, each to be met once."""

    def __init__(self, rows: int, columns: int, average: bool) -> None:
        self.values = allocate((rows, columns))
        self.seen = np.zeros(rows, dtype=bool)
        self.average = average
        self.sums: NDArray[np.floating[Any]] | None = None
        self.weights: NDArray[np.floating[Any]] | None = None

    def put(
        self, places: NDArray[np.int64], block: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Store rows; which of them repeat one that was met, and which of these differ from it."""
        fresh = ~self.seen[places]
        if (places[1:] <= places[:-1]).any():
            firsts = np.zeros(len(places), dtype=bool)
            firsts[np.unique(places, return_index=True)[1]] = True
            fresh &= firsts
        if fresh.all():
            self.values[places] = block
            self.seen[places] = True
            return np.empty(0, np.int64), np.empty(0, np.int64)
        self.values[places[fresh]] = block[fresh]
        self.seen[places[fresh]] = True
        again = np.flatnonzero(~fresh)
        there, here = self.values[places[again]], block[again].astype(self.values.dtype)
        same = (there == here) | (np.isnan(there) & np.isnan(here))
        if self.average:
            if self.sums is None or self.weights is None:
                self.sums, self.weights = (allocate(self.values.shape) for _ in range(2))
                self.sums[:] = self.weights[:] = 0
            np.add.at(self.sums, places[again], np.nan_to_num(here))
            np.add.at(self.weights, places[again], ~np.isnan(here))
        return again, again[~same.all(axis=1)]

    def finish(self) -> None:
        """Average what shares a place, and leave NaN where nothing was put."""
        for part in self.parts():
            if self.sums is not None and self.weights is not None:
                there = ~np.isnan(self.values[part])
                count = there + self.weights[part]
                total = np.where(there, self.values[part], 0) + self.sums[part]
                self.values[part] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            self.values[part][~self.seen[part]] = np.nan
        self.sums = self.weights = None

    def parts(self) -> Iterator[slice]:
        rows = len(self.values)
        chunk = max(1, CHUNK // max(1, self.values.shape[1]))
        return (slice(begin, min(begin + chunk, rows)) for begin in range(0, rows, chunk))


class _Reader:
    """One reading of one table."""

    def __init__(
        self,
        table: Table,
        reading: Reading,
        timezone: Literal["UTC", "naive"] | None = None,
        most: int | None = None,
    ) -> None:
        self.table = table
        self.where = table.where
        self.timezone = timezone
        self.most = most
        self.said: list[str] = []
        self.several = reading.id is not None
        files = all(isinstance(part, Path) for part in table.parts)
        self.file_id = FILE if files and FILE not in table.columns else None
        if hint := separator_hint(table.columns):
            raise DataError(f"{self.where}: one column, '{table.columns[0]}'.{hint}")
        self.reading = self._roles(reading)
        self.clock = find_clock(table, self.time)
        if timezone == "naive":
            self.clock.local = True

    @property
    def time(self) -> str:
        assert self.reading.time is not None
        return self.reading.time

    # What the columns are.

    def _roles(self, said: Reading) -> Reading:
        table = self.table
        named = [
            *(name for name in (said.time, said.id) if name is not None and name != self.file_id),
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
                "with data.panel=true each column of a wide file is a series, so that there are "
                "neither --id nor --static"
            )
        if self.timezone:  # all is told by a model
            return said
        time = said.time or self._time(named)
        id_column = said.id
        if id_column is None and not said.panel:
            id_column = self._id([*named, time])
        filled = replace(said, time=time, id=id_column)
        if not said.targets:
            return replace(filled, targets=self._targets(filled))
        left_out = [name for name in table.columns if name not in {*named, time, id_column}]
        if left_out:
            self.said.append(
                f"Left out, having no role: {quoted(left_out)}. --past-covariates reads a column."
            )
        return filled

    def _time(self, named: Sequence[str]) -> str:
        table = self.table
        found = [n for n in table.columns if table.kinds[n] == "stamp" and n not in named]
        usual = [name for name in _TIMES for column in found if column.lower() == name]
        if len(found) > 1 and usual:
            found = [column for column in found if column.lower() == usual[0]]
        if len(found) != 1:
            listed = f"{quoted(found)} all hold stamps" if found else "no column holds stamps"
            raise DataError(
                f"{self.where}: {listed} such as 2016-07-01 00:00:00; name the time column with "
                f"--time. Columns: {quoted(table.columns)}."
            )
        if is_stamp(found[0]):
            raise DataError(
                f"{self.where}: the first line holds a stamp, '{found[0]}', where a name is "
                "expected; give the file a header."
            )
        self.said.append(f"The time is column '{found[0]}'.")
        return found[0]

    def _id(self, named: Sequence[str]) -> str | None:
        table = self.table
        free = [name for name in table.columns if name not in named]
        for usual in _IDS:
            for name in free:
                if name.lower() == usual and self._repeats([name]):
                    self.said.append(f"The rows of a series share column '{name}'.")
                    return name
        words = [name for name in free if table.kinds[name] == "text"]
        time = named[-1]
        if len(table.parts) > 1 or len(words) != 1:
            return None
        if self._repeats([time]) and not self._repeats([time, words[0]]):
            self.said.append(
                f"Stamps repeat, once for each '{words[0]}': the rows of a series share it."
            )
            return words[0]
        return None

    def _repeats(self, columns: Sequence[str]) -> bool:
        """Whether values of these columns together stand in several of the first rows."""
        sample = self.table.sample.select(list(columns))
        return bool(sample.group_by(list(columns)).aggregate([]).num_rows < sample.num_rows)

    def _targets(self, said: Reading) -> tuple[str, ...]:
        table = self.table
        taken = {
            said.time, said.id, *said.past_covariates, *said.future_covariates, *said.static,
        }  # fmt: skip
        free = [name for name in table.columns if name not in taken]
        index = [n for n in free if n in ("", "Unnamed: 0") or n.startswith("__index_level_")]
        numbers = [n for n in free if table.kinds[n] == "number" and n not in index]
        if said.id is not None and "y" in numbers:
            numbers = ["y"]
        left_out = [self._described(n) for n in free if n not in numbers]
        if not numbers:
            raise DataError(
                f"{self.where}: no column of numbers is left to predict. Other columns: "
                f"{', '.join(left_out) or 'none'}. --target names what to predict."
            )
        self.said.append(f"To be predicted: {quoted(numbers)}.")
        self.said += [f"Column {name} has no role and is left out." for name in left_out]
        return tuple(numbers)

    def _described(self, name: str) -> str:
        """A column and what the first rows hold in it."""
        kind = self.table.kinds[name]
        what = {"number": "numbers", "flag": "true or false", "empty": "no value in the first rows"}
        example = self.table.sample[name].drop_null()[:1].to_pylist()
        return f"'{name}' ({what.get(kind) or f'such as {example[0]!r:.40}'})"

    # The rows, twice: once for their stamps, once for their values.

    def read(self, name: str) -> Own:
        said = self.reading
        ids = _Ids(None if said.id == self.file_id else said.id)
        survey = self._survey(ids)
        step = self._step(survey)
        first, last = int(survey.first.min()), int(survey.last.max())
        stamps = survey.sampled[1]
        grid = Grid.over(step, first, last, stamps, survey.rows, self.where, self.most)
        self.several = said.id is not None or self._files_overlap(survey, grid)
        item_of, names = self._order(ids)
        items = self._items(names, item_of, survey, grid)
        columns = (*said.targets, *said.past_covariates)
        cells = _Cells(
            int(items.bounds[-1]), len(columns) + len(said.future_covariates),
            said.policy == "resample",
        )  # fmt: skip
        found = {kind: _Found() for kind in ("duplicates", "differing", "snapped", "off")}
        static = _Static(said.static, len(items), self)
        self._fill(cells, ids, item_of, items, grid, found, static)
        gaps = self._gaps(cells, items, grid)
        self._judge(survey, found, gaps, grid)
        cells.finish()
        values, known = cells.values[:, : len(columns)], cells.values[:, len(columns) :]
        self._check_known(known, items, grid)
        series = Series(
            values=values,
            times=grid.times,
            columns=columns,
            freq=step.freq,
            source=self.where,
            items=items if self.several else None,
            known=known if said.future_covariates else None,
            known_columns=said.future_covariates,
            static=static.values,
        )
        if said.panel:
            series = _melt(series, len(said.targets))
            columns = series.columns
        targets = columns[: len(columns) - len(said.past_covariates)]
        counts = {
            "rows": survey.rows,
            "series": 1 if series.items is None else len(series.items),
            "steps": len(series.times),
            "unsorted": survey.unsorted,
            **{kind: what.count for kind, what in found.items()},
            "gaps": gaps.count,
            **_columns(series),
        }
        seasons = said.seasons or self._seasons(series, targets)
        self._say_counts(counts)
        return Own(
            name=name,
            time=self.time,
            timezone=self.timezone or ("UTC" if self.clock.zoned else "naive"),
            freq=step.freq,
            seasons=seasons,
            columns=columns,
            targets=targets,
            id=said.id or (FILE if self.several else None),
            panel=self.several or bool(said.panel),
            series=series,
            said=tuple(self.said),
            counts=counts,
        )

    def _survey(self, ids: _Ids) -> _Survey:
        survey = _Survey()
        wanted = [self.time, *([ids.column] if ids.column else [])]
        for rows in self.table.rows(wanted, wanted[1:]):
            codes, stamps = ids.codes(rows, self.table), self.clock.read(rows, self.table)
            early = survey.add(codes, stamps)
            if early is not None and not survey.first_unsorted:
                stamp = pd.Timestamp(int(stamps[early]), unit="us")
                survey.first_unsorted = f"{self._row(rows, early)}: {stamp}"
        if not survey.rows:
            raise DataError(f"{self.where}: no rows below the header; expected one per time step.")
        return survey

    def _step(self, survey: _Survey) -> Step:
        freq = self.reading.freq
        codes, stamps = survey.sampled
        if freq is None:
            step = infer_step(stamps, codes, self.where)
            self.said.append(f"The time step is {step.freq}.")
            return step
        order = np.lexsort((stamps, codes))
        apart = np.diff(stamps[order])[np.diff(codes[order]) == 0]
        usual = int(np.median(apart[apart > 0])) if (apart > 0).any() else np.iinfo(np.int64).max
        return Step(normalise_freq(freq), usual)

    def _files_overlap(self, survey: _Survey, grid: Grid) -> bool:
        """Whether files without an id column are series of their own, not parts of one."""
        if len(self.table.parts) == 1:
            return False
        order = np.argsort(survey.first, kind="stable")
        overlap = bool((survey.first[order][1:] < survey.last[order][:-1]).any())
        if overlap and self.reading.panel:
            raise UsageError(
                f"{self.where}: {len(order)} files of overlapping times are a series each; "
                "data.panel=true is for the columns of one file, or of files in sequence"
            )
        self.said.append(
            f"{len(order)} files of overlapping times: each is a series, called by its file."
            if overlap
            else f"{len(order)} files of times that follow one another: parts of one series."
        )
        return overlap

    def _order(self, ids: _Ids) -> tuple[NDArray[np.int64], list[str]]:
        """The item of each series as it was met, and the names of the items, in order."""
        if not self.several:
            return np.zeros(len(self.table.parts), np.int64), [""]
        names = list(ids.names) if ids.column else [_stem(name) for name in self.table.names]
        order = _sorted(names)
        item_of = np.empty(len(names), np.int64)
        item_of[order] = np.arange(len(names))
        return item_of, [names[place] for place in order]

    def _items(
        self, names: list[str], item_of: NDArray[np.int64], survey: _Survey, grid: Grid
    ) -> Items:
        first = np.full(len(names), np.iinfo(np.int64).max)
        last = np.full(len(names), np.iinfo(np.int64).min)
        np.minimum.at(first, item_of, survey.first)
        np.maximum.at(last, item_of, survey.last)
        places = grid.place(first)[0]
        lengths = grid.place(last)[0] - places + 1
        said = self.reading
        width = len(said.targets) + len(said.past_covariates) + len(said.future_covariates)
        if lengths.sum() > min(20 * survey.rows + 1_000_000, (self.most or sys.maxsize) // width):
            raise DataError(
                f"{self.where}: {survey.rows:,} rows for {lengths.sum():,} steps of {grid.freq} "
                "between the first and last stamps of the series; is a stamp wrong, or the step? "
                "--freq names it."
            )
        return Items(tuple(names), np.r_[0, np.cumsum(lengths)], places)

    def _fill(
        self,
        cells: _Cells,
        ids: _Ids,
        item_of: NDArray[np.int64],
        items: Items,
        grid: Grid,
        found: dict[str, _Found],
        static: "_Static",
    ) -> None:
        said, table = self.reading, self.table
        numbers = [*said.targets, *said.past_covariates, *said.future_covariates]
        wanted = [self.time, *([ids.column] if ids.column else []), *numbers, *said.static]
        shift = items.bounds[:-1] - items.places
        for rows in table.rows(wanted, wanted[1:2] if ids.column else ()):
            stamps = self.clock.read(rows, table)
            item = item_of[ids.codes(rows, table)]
            steps, missed = grid.place(stamps)
            block = np.empty((len(stamps), len(numbers)))
            for place, column in enumerate(numbers):
                block[:, place] = self.numbers(rows, column)
            static.add(rows, item)
            again, differing = cells.put(shift[item] + steps, block)
            off = np.flatnonzero(np.abs(missed) > grid.tolerance)
            snapped = np.flatnonzero((missed != 0) & (np.abs(missed) <= grid.tolerance))
            met = {"duplicates": again, "differing": differing, "snapped": snapped, "off": off}
            for kind, where in met.items():
                if len(where):
                    first = int(where[0])
                    stamp = pd.Timestamp(int(stamps[first]), unit="us")
                    owner = f" of '{items.names[item[first]]}'" if self.several else ""
                    row = self._row(rows, first)
                    found[kind].add(len(where), f"{row}: {stamp:%a %Y-%m-%d %H:%M:%S}{owner}")

    def _row(self, rows: Rows, row: int) -> str:
        """How a message that opens with the table names a row."""
        file = f"{Path(self.table.names[rows.file]).name}, " if len(self.table.parts) > 1 else ""
        return f"{file}row {rows.before + row + 1}"

    def numbers(self, rows: Rows, column: str) -> NDArray[np.float64]:
        """The cells of a column as numbers."""

        def complain(row: int, what: str) -> DataError:
            place = self.table.row(rows.file, rows.before + row)
            stamp = rows.cells[self.time][row]
            return DataError(f"{place} ({stamp}), column '{column}': {what}")

        return to_numbers(rows.cells[column], complain)

    # What is irregular.

    def _gaps(self, cells: _Cells, items: Items, grid: Grid) -> _Found:
        gaps = int(len(cells.seen) - cells.seen.sum())
        if not gaps:
            return _Found()
        row = int(cells.seen.argmin())
        item = int(np.searchsorted(items.bounds, row, side="right")) - 1
        stamp = grid.times[items.places[item] + row - items.bounds[item]]
        return _Found(gaps, f"{stamp}" + (f" of '{items.names[item]}'" if self.several else ""))

    def _judge(self, survey: _Survey, found: dict[str, _Found], gaps: _Found, grid: Grid) -> None:
        """Raise DataError where the policy does not let the irregularities pass."""
        unsorted = _Found(survey.unsorted, survey.first_unsorted)
        duplicates, differing, off = found["duplicates"], found["differing"], found["off"]
        by_sort = [
            (unsorted, "rows out of order"),
            (gaps, f"missing steps of {grid.freq}"),
            (duplicates, "repeated stamps"),
        ]
        by_resample = [
            (differing, "repeated stamps with other values"),
            (off, f"stamps that do not fit a step of {grid.freq}"),
        ]
        policy = self.reading.policy
        refused = {"error": [*by_sort, *by_resample], "sort": by_resample, "resample": []}[policy]
        complaints = [
            f"{name}: {what.count} (the first is {what.first})"
            for what, name in refused
            if what.count
        ]
        if not complaints:
            return
        if differing.count or off.count:
            remedy = (
                "--policy resample averages the rows that share a step, and leaves gaps missing"
            )
        else:
            remedy = "--policy sort orders the rows, drops repetitions and leaves gaps missing"
        hint = ""
        if duplicates.count and self.reading.id is None and not self.several:
            hint = " If the file holds several series, --id names the column that tells them apart."
        local = not self.clock.zoned and grid.step is not None and grid.step < 86_400_000_000
        if local and (gaps.count or duplicates.count):
            hint += DAYLIGHT_SAVING
        raise DataError(f"{self.where}: {'; '.join(complaints)}. {remedy}.{hint}")

    def _check_known(self, known: NDArray[np.floating[Any]], items: Items, grid: Grid) -> None:
        for place, column in enumerate(self.reading.future_covariates):
            holes = np.isnan(known[:, place])
            if holes.any():
                row = int(holes.argmax())
                item = int(np.searchsorted(items.bounds, row, side="right")) - 1
                stamp = grid.times[items.places[item] + row - items.bounds[item]]
                owner = f" of '{items.names[item]}'" if self.several else ""
                raise DataError(
                    f"{self.where}: the future covariate '{column}' has no value at {stamp}{owner} "
                    f"({int(holes.sum())} are missing); expected one at every step. As a past "
                    "covariate it may have holes."
                )

    def _seasons(self, series: Series, targets: Sequence[str]) -> tuple[int, ...]:
        seasons = infer_seasons(series, len(targets))
        self.said.append(
            f"Seasons of {' and '.join(str(season) for season in seasons)} steps show."
            if seasons != (1,)
            else "No season shows."
        )
        return seasons

    def _say_counts(self, counts: dict[str, Any]) -> None:
        if self.clock.zoned and not self.timezone:
            self.said.append("Stamps carry a time zone: taken as UTC.")
        for kind, what in {
            "snapped": "Stamps that miss their step by less than a tenth of it, and count as on it",
            "unsorted": "Rows out of order",
            "duplicates": "Rows that repeat a stamp",
            "off": "Stamps between two steps, which count to the one they fall in",
            "gaps": "Steps without a row, whose values are missing",
        }.items():
            if counts[kind]:
                self.said.append(f"{what}: {counts[kind]:,}.")
        missing = {name: count for name, count in counts["missing"].items() if count}
        if missing:
            shown = ", ".join(f"'{name}' {count:,}" for name, count in [*missing.items()][:20])
            self.said.append(f"Missing values: {shown}.")
        if counts["constant"]:
            self.said.append(f"Constant: {quoted(counts['constant'])}.")


class _Static:
    """Attributes of the items, each told by any of its rows."""

    def __init__(self, columns: Sequence[str], items: int, reader: _Reader) -> None:
        self.reader = reader
        self.words: dict[str, dict[str, int]] = {}
        self.numbers: dict[str, NDArray[np.float64]] = {}
        for column in columns:
            self.numbers[column] = np.full(items, np.nan)
            if holds_text(reader.table.sample[column].type):
                self.words[column] = {}

    def add(self, rows: Rows, item: NDArray[np.int64]) -> None:
        """Take the attributes in some rows. Raises DataError where they change."""
        for column, there in self.numbers.items():
            values = self._values(rows, column)
            missing = np.isnan(values)
            if missing.any():
                row = int(missing.argmax())
                raise DataError(
                    f"{self._row(rows, row)}, column '{column}': no value of a static attribute"
                )
            unknown = np.isnan(there[item])
            there[item[unknown][::-1]] = values[unknown][::-1]  # the first row of an item counts
            changed = values != there[item]
            if changed.any():
                row = int(changed.argmax())
                raise DataError(
                    f"{self._row(rows, row)}, column '{column}': {rows.cells[column][row]}, but "
                    "rows before have another value for this series; a static attribute is "
                    "constant within a series. A value that changes is a covariate: "
                    "--past-covariates or --future-covariates."
                )

    def _values(self, rows: Rows, column: str) -> NDArray[np.float64]:
        if column not in self.words:
            return self.reader.numbers(rows, column)
        words, places = to_words(rows.cells[column])
        known = self.words[column]
        codes = [known.setdefault(word, len(known)) for word in words]
        return np.array([*codes, np.nan])[places]

    def _row(self, rows: Rows, row: int) -> str:
        return self.reader.table.row(rows.file, rows.before + row)

    @property
    def values(self) -> dict[str, NDArray[Any]]:
        """By name, of each item: numbers, or words unless all of them are numbers."""
        return {
            column: _numbers_or_words([*self.words[column]])[numbers.astype(int)]
            if column in self.words
            else numbers
            for column, numbers in self.numbers.items()
        }


def _numbers_or_words(words: list[str]) -> NDArray[Any]:
    def complain(row: int, what: str) -> DataError:
        return DataError(what)

    try:
        return to_numbers(pa.array(words), complain)
    except DataError:
        return np.array(words)


def _stem(name: str) -> str:
    return Path(name).name.split(".")[0]


def _sorted(names: Sequence[str]) -> list[int]:
    """The places of names in order: whole numbers by size, words by alphabet."""
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return sorted(
        range(len(names)), key=lambda i: (int(names[i]), names[i]) if numbers else names[i]
    )


def _melt(series: Series, targets: int) -> Series:
    """A wide series as a panel: each target column an item, from its first to its last value.

    What is known ahead may reach further than the values: then the items end with the rows.
    """
    names = series.columns[:targets]
    spans = []
    for column in range(targets):
        there = np.flatnonzero(~np.isnan(series.values[:, column]))
        if not len(there):
            raise DataError(
                f"{series.source}: column '{names[column]}' has no value at all, so that it is no "
                "series; name the targets without it."
            )
        end = len(series.values) if series.known is not None else int(there[-1]) + 1
        spans.append((int(there[0]), end))
    order = _sorted(names)
    bounds = np.r_[0, np.cumsum([spans[i][1] - spans[i][0] for i in order])]
    others = series.columns[targets:]
    values = allocate((int(bounds[-1]), 1 + len(others)))
    known = None if series.known is None else allocate((int(bounds[-1]), series.known.shape[1]))
    for item, column in enumerate(order):
        rows, here = slice(*spans[column]), slice(bounds[item], bounds[item + 1])
        values[here, 0] = series.values[rows, column]
        values[here, 1:] = series.values[rows, targets:]
        if known is not None and series.known is not None:
            known[here] = series.known[rows]
    places = np.array([spans[column][0] for column in order])
    items = Items(tuple(names[column] for column in order), bounds, places)
    return replace(series, values=values, columns=(_PANEL, *others), items=items, known=known)


def _columns(series: Series) -> dict[str, Any]:
    """The missing values by column, and the constant columns."""
    width = len(series.columns)
    missing = np.zeros(width, np.int64)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    chunk = max(1, CHUNK // width)
    for begin in range(0, len(series.values), chunk):
        part = series.values[begin : begin + chunk]
        absent = np.isnan(part)
        missing += absent.sum(axis=0)
        low = np.minimum(low, np.where(absent, np.inf, part).min(axis=0))
        high = np.maximum(high, np.where(absent, -np.inf, part).max(axis=0))
    if (low > high).any():
        column = series.columns[int((low > high).argmax())]
        raise DataError(f"{series.source}: column '{column}' has no value at all; leave it out.")
    return {
        "missing": dict(zip(series.columns, missing.tolist(), strict=True)),
        "constant": [name for name, flat in zip(series.columns, low == high, strict=True) if flat],
    }
