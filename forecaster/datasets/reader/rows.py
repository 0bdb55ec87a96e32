"""The reading of a table, from its rows to a series on a time grid.

Two layouts are read, from one file or many. Wide: a time column and columns of values. Long: the
rows of many series below one another, identified by an id column. Every row is placed on one time
grid by its stamp; irregularities are counted and refused, or repaired as the policy states.
A missing value is NaN; covariates are filled only where the user asks for it (`filling`).
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.base.errors import DataError, UsageError
from forecaster.base.spelling import spelled
from forecaster.datasets.calendar import DAY, step_length
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.grid import TimeGrid, find_step
from forecaster.datasets.items import Items
from forecaster.datasets.reader import files, irregular
from forecaster.datasets.reader.cells import indicators, is_text, to_numbers, words_of
from forecaster.datasets.reader.clock import DAYLIGHT_SAVING, Clock, time_columns
from forecaster.datasets.reader.filling import by_column, fill
from forecaster.datasets.reader.roles import Roles
from forecaster.datasets.reader.survey import attribute, find_ids, survey
from forecaster.datasets.reader.unread import THAI
from forecaster.datasets.reading import NOTHING_SAID, Reading
from forecaster.datasets.seasons import infer_seasons
from forecaster.datasets.series import Series, quoted

FEWEST_ALIKE, LONGER = 6, 1.6
"""The fewest distances, one after another and alike, that are another step, LONGER than usual:
holes are rarely alike. Found by trying some 190 files."""

MIXED = 0.1
"""The share of rows that repeat a stamp with other values from which they are other series; fewer
are mistakes, which averaging mends."""

FEW, DENSE, UNEVEN, STEADY = 3, 0.6, 0.15, 0.9
"""A series has another step than its table if it has FEW rows or more, on at most DENSE of the
table's steps, and STEADY of their distances differ by less than UNEVEN, as those of months do.
Set on made-up panels of several steps (tests/test_cases.py)."""

FILE = "file"
"""The name of the series id if each series has its own file and no column holds the id."""

NARROW = 2**26
"""The most bytes of values in 64 bits; more are kept in 32, which a network reads anyway."""

SAMPLE = 64, 2**20
"""The most series and stamps from which the time step is found, since they are sorted."""

KINDS = ("duplicates", "differing", "snapped", "off")
"""What may be irregular about a row besides its order."""

Found: TypeAlias = dict[str, NDArray[np.int64]]
"""The rows of each kind of irregularity; of `gaps` those of the values."""

_PANEL = "y"
"""The name of the one value column of a panel from a wide file."""


def read(path: str, reading: Reading = NOTHING_SAID) -> Dataset:
    """Read the series in a file, in the files of a folder, or in the files that match a pattern.

    Files without an id column are the series of a panel if their times overlap, and consecutive
    parts of one series otherwise. The series of such a panel are named by the stems of the files,
    and their `id` is FILE; an id of that name requests this. Raises UnavailableError if there is no
    file, DataError for what does not fit, with the flag that would accept it.
    """
    place = Path(path).expanduser().absolute()
    named = place if place.exists() else place.parent
    return Reader(files.open_table(path, reading), reading).read(_stem(named.name) or "data")


def read_frame(frame: pd.DataFrame, reading: Reading = NOTHING_SAID, *, where: str) -> Dataset:
    """Read the series in a frame, as `read` does those of a file; `where` names it in messages.

    An index of stamps is the time column, by its name or as "time", unless the reading names one.
    """
    time = reading.time or str(frame.index.name or "time")
    return Reader(files.frame_table(frame, time, where, reading), reading).read(where)


def history(
    source: "str | Path | bytes | pd.DataFrame",
    reading: Reading,
    *,
    where: str = "the history",
    most: int | None = None,
    ahead: int = 0,
) -> Dataset:
    """Read other rows, perhaps only a few, in the same way as the data of a trained model.

    `source` is a frame, the name of a file or, as bytes, the text of one. `reading` is that of the
    model's data, complete; columns that it does not name are ignored.
    Stamps without a zone are in UTC if those of the model were. Raises DataError as `read` does, if
    stamps carry a zone although those of the model did not, and for more than `most` values between
    the first and the last stamps of the series. At most the last `ahead` rows of a series hold only
    what is known ahead: there, values are not called missing.
    """
    if not (reading.time and reading.targets and reading.freq and reading.timezone):
        raise ValueError(f"{reading} leaves out the time column, the targets, the step or the zone")
    if isinstance(source, pd.DataFrame):
        table = files.frame_table(source, reading.time, where, reading)
    elif isinstance(source, bytes):
        table = files.text_table(source, where, reading)
    elif not isinstance(source, str | Path):
        raise UsageError(f"{where}: expected a DataFrame or a file, got {type(source).__name__}")
    else:
        table = files.open_table(str(source), reading)
    settled = replace(reading, seasons=reading.seasons or (1,))
    return Reader(table, settled, most, ahead).read(where)


class Reader:
    """Reads one table; if `reading` has a time zone, it is complete, and nothing is found."""

    def __init__(
        self, table: files.RawTable, reading: Reading, most: int | None = None, ahead: int = 0
    ) -> None:
        self.table = table
        self.where = table.where
        self.timezone = reading.timezone
        self.most = most
        self.ahead = ahead
        self.said: list[str] = []
        self.several = bool(reading.id)
        self.named = bool(reading.targets)
        self.excused = np.empty(0, np.int64)
        self.holidays = reading.holidays
        """Those that the user names: a reading has them if they are closed."""
        self.items: Items
        self.file_id = FILE if table.in_files and FILE not in table.columns else None
        self.roles = Roles(table, self.file_id, self.said)
        settled = self.roles.find(reading)
        if settled.time == "":
            if files.NAMELESS in table.columns:
                raise DataError(f"{self.where}: the time column has no name; give it one.")
            self.said.append(f"The time column has no name, and is called '{files.NAMELESS}'.")
            settled = replace(settled, time=files.NAMELESS)
            named = replace(table.reading, time=files.NAMELESS)
            self.table = table = files.RawTable(table.where, table.parts, named)
            self.roles = Roles(table, self.file_id, self.said)
        if not reading.complete:
            settled = replace(settled, fill=by_column(settled), holidays="")
        self.reading = final = settled
        self.ids = () if final.id == (self.file_id,) else final.id
        self.numbers = (*final.targets, *final.past_covariates, *final.future_covariates)
        columns = (*time_columns(final, table.columns), *self.ids, *self.numbers, *final.static)
        self.rows = table.rows(columns, self.ids)
        self.clock = Clock(table, self.rows, final, self.said)
        self.reading = self.clock.reading

    def read(self, name: str) -> Dataset:
        self.codes, names = find_ids(self.ids, self.rows, self.table)
        self.stamps = [self.clock.read(part) for part in self.rows]
        self._find_words()
        first, last, unsorted = survey(self.codes, self.stamps, len(names))
        self._find_grid(names, first, last)
        reading, items = self.reading, self.items
        columns = reading.read_as([*reading.targets, *reading.past_covariates])
        ahead = reading.read_as(reading.future_covariates)
        cells = blank(int(items.bounds[-1]), len(columns) + len(ahead))
        seen, odd = self._fill(cells)
        odd = {"unsorted": unsorted, **odd, "gaps": np.flatnonzero(~seen)}
        static = {
            column: attribute(column, self.rows, self.codes, self.item_of, self.table)
            for column in reading.static
        }
        self._check_steps()
        self._judge(self._excused(odd, seen))
        reading = self.reading
        values, known = cells[:, : len(columns)], cells[:, len(columns) :]
        series = Series(
            values=values,
            times=self.times,
            columns=columns,
            freq=self.freq,
            source=self.where,
            items=items if self.several else None,
            known=known if ahead else None,
            known_columns=ahead,
            static=static,
        )
        if reading.drop_last and len(series.times) > 1:
            series = self._without_last(series)
        if reading.panel:
            series = _melt(series, len(reading.targets))
            columns = series.columns
        targets = columns[: len(columns) - len(reading.read_as(reading.past_covariates))]
        counts = {
            **{kind: len(rows) for kind, rows in odd.items()},
            **_columns(series, reading, self.ahead),
        }
        seasons = reading.seasons
        if not seasons:
            seasons = infer_seasons(series, len(targets))
            words = f"Seasons found, in steps: {' and '.join(map(str, seasons))}."
            self.said.append("No season was found." if seasons == (1,) else words)
        self._say_counts(counts)
        reading = replace(reading, seasons=seasons)
        self._fill_gaps(series, reading)
        complete = replace(
            reading,
            id=reading.id or ((FILE,) if self.several else ()),
            freq=self.freq,
            panel=bool(reading.panel),
            text=self.table.text,
            timezone=self.timezone or ("UTC" if self.clock.zoned else "naive"),
        )
        return Dataset(
            name=name,
            reading=complete,
            series=series,
            targets=targets,
            features="MS" if len(columns) > len(targets) else "S" if self.named else "M",
            main_target=targets[0],
            said=(*self.table.said(), *self.said),
            counts=counts,
        )

    def _without_last(self, series: Series) -> Series:
        """The series without its last step, or without its values if rows ahead follow it."""
        items, steps = series.layout, len(series.times)
        of_rows = np.arange(items.bounds[-1])
        of_rows += np.repeat(items.places - items.bounds[:-1], items.lengths)
        observed = ~np.isnan(series.values).all(axis=1)
        last = of_rows.max(where=observed, initial=0) if self.ahead else steps - 1
        self.said.append(f"The last step, {series.times[last]}, is left out.")
        if last < steps - 1:
            series.values[of_rows == last] = np.nan
            return series
        excused = np.zeros(len(of_rows), bool)
        excused[self.excused] = True
        self.excused = np.flatnonzero(excused[items.before(last)])
        self.items = (series := series.before(last)).layout
        return series

    def _find_words(self) -> None:
        reading, filled = self.reading, dict(self.reading.fill)
        categories = dict[str, tuple[str, ...]]()
        rows = sum(part.cells.num_rows for part in self.rows)
        for column in self.roles.wordy(reading):
            parts = [part.cells[column] for part in self.rows]
            words, empty = words_of(column, parts, reading.missing, self.where)
            categories[column] = words
            self.said.append(
                f"Column '{column}' holds words, each a column of 0 and 1: {quoted(words)}."
            )
            if 2 * empty > rows and filled.get(column, "linear") == "linear":
                filled[column] = "zero"
                self.said.append(f"Column '{column}' is mostly empty: there, no word holds.")
            elif empty and filled.get(column) == "linear":
                filled[column] = "previous"
                self.said.append(f"Column '{column}' holds words: each goes on until the next.")
        self.reading = replace(reading, categories=reading.categories | categories, fill=filled)

    def _find_grid(
        self, names: list[str], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> None:
        """Find the time step, its grid, and the rows of each series: `names` and their ends."""
        reading, count = self.reading, sum(map(len, self.stamps))
        chosen = [np.flatnonzero(codes < SAMPLE[0]) for codes in self.codes]
        codes, sample = (
            np.concatenate([part[rows] for part, rows in zip(parts, chosen, strict=True)])
            for parts in (self.codes, self.stamps)
        )
        codes, sample = self.sample = codes[: SAMPLE[1]], sample[: SAMPLE[1]]
        self.freq, usual = find_step(sample, codes, self.where, reading.freq)
        self.step = step_length(self.freq)
        if reading.freq is None:
            self.said.append(f"The time step is {self.freq}.")
        self.grid: TimeGrid | None = None
        if reading.policy == "rows":
            if self.ids and len(names) > 1:
                raise UsageError(
                    f"{spelled('policy', 'rows')} takes the rows of one series as its steps, but "
                    f"{spelled('id')} gives {len(names):,}; sort is a policy for several."
                )
            self.times = pd.DatetimeIndex(np.concatenate(self.stamps).view("datetime64[us]"))
            self.item_of, self.items = np.zeros(len(names), np.int64), Items.single(count)
            return
        ends = int(first.min()), int(last.max())
        self.grid = TimeGrid(self.freq, usual, *ends, sample, count, self.where, self.most)
        self.times = self.grid.times
        if (year := self.times[0].year) in THAI and not self.timezone:
            self.said.append(f"The years may be Thai: {year} is {year - 543} elsewhere.")
        self._check_days(sample)
        self.several = bool(reading.id) or self._files_overlap(first, last)
        self.item_of, names = self._order(names)
        self.items = self._items(names, first, last, self.grid, count)

    def _files_overlap(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> bool:
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
        self.said.append(
            f"{len(order)} files with overlapping times: each is a series, named by its file."
            if overlap
            else f"{len(order)} files with consecutive times: parts of one series."
        )
        return overlap

    def _order(self, names: list[str]) -> tuple[NDArray[np.int64], list[str]]:
        """The item of each series in the order found, and the names of the items, sorted."""
        if not self.several:
            return np.zeros(len(names), np.int64), [""]
        names = names if self.ids else _apart(names)
        order = _sorted(names)
        item_of = np.empty(len(names), np.int64)
        item_of[order] = np.arange(len(names))
        return item_of, [names[place] for place in order]

    def _items(
        self,
        names: list[str],
        firsts: NDArray[np.int64],
        lasts: NDArray[np.int64],
        grid: TimeGrid,
        rows: int,
    ) -> Items:
        first = np.full(len(names), np.iinfo(np.int64).max)
        last = np.full(len(names), np.iinfo(np.int64).min)
        np.minimum.at(first, self.item_of, firsts)
        np.maximum.at(last, self.item_of, lasts)
        places = grid.place(first)[0]
        lengths = grid.place(last)[0] - places + 1
        width = len(self.reading.read_as(self.numbers))
        if lengths.sum() > min(20 * rows + 1_000_000, (self.most or sys.maxsize) // width):
            raise DataError(
                f"{self.where}: {rows:,} rows for {lengths.sum():,} steps of {grid.freq} "
                "between the first and last stamps of the series; is a stamp wrong, or the step? "
                f"{spelled('freq')} names it."
            )
        return Items(tuple(names), np.r_[0, np.cumsum(lengths)], places)

    def _fill(self, values: NDArray[np.floating[Any]]) -> tuple[NDArray[np.bool_], Found]:
        """Put the rows into `values`: the first of a place or, as the policy states, their mean.

        Returns which places have a row, and the rows that are irregular.
        """
        shift = self.items.bounds[:-1] - self.items.places
        seen = np.zeros(len(values), dtype=bool)
        odd: dict[str, list[NDArray[np.int64]]] = {kind: [] for kind in KINDS}
        spare, begin = [], 0
        for rows, codes, stamps in zip(self.rows, self.codes, self.stamps, strict=True):
            block = np.column_stack([self.values(rows, column) for column in self.numbers])
            steps, missed = np.arange(begin, begin + len(stamps)), np.zeros(len(stamps), np.int64)
            if self.grid:
                steps, missed = self.grid.place(stamps)
            places = shift[self.item_of[codes]] + steps
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
        self.repeated, more = (np.concatenate(parts) for parts in zip(*spare, strict=True))
        if len(more) and self.reading.policy != "rows":  # as for summer time
            _average(values, self.repeated, more)
        return seen, {kind: np.concatenate(parts) for kind, parts in odd.items()}

    def values(self, rows: files.Rows, column: str) -> NDArray[np.float64]:
        """The cells (N,) of a column as numbers, or as indicators (N, words) of its words."""

        def complain(row: int, what: str) -> DataError:
            place, stamp = self.table.row(rows, row), self.clock.shown(rows, row)
            words = column not in self.reading.targets and not self.timezone
            if words and rows.cells[column][row].as_py() and is_text(rows.cells[column].type):
                what += f"; {spelled('categorical', column)} reads the column as words"
            return DataError(f"{place} ({stamp}), column '{column}': {what}")

        if words := self.reading.categories.get(column):
            return indicators(rows.cells[column], words, self.reading.missing, complain)
        return to_numbers(rows.cells[column], complain, self.table.how(rows.file))

    # What is irregular.

    def _excused(self, odd: Found, seen: NDArray[np.bool_]) -> Found:
        """The irregularities without those that follow a rule: closed hours and summer time.

        Rows that are missing by a rule are `excused`.
        """
        items, times, reading = self.items, self.times, replace(self.reading, freq=self.freq)
        missing = odd["gaps"]
        regular = not len(missing) and not len(self.repeated)
        if reading.policy == "rows" or regular or (self.step or 0) > DAY:
            return odd
        steps = np.arange(len(seen)) + np.repeat(items.places - items.bounds[:-1], items.lengths)
        again = np.unique(steps[self.repeated])
        if self.timezone is None:
            if self.step and (closed := irregular.open_hours(times, seen, steps, self.step)):
                reading = replace(reading, closed=closed)
                hours = irregular.hours_in_words(closed, self.step)
                self.said.append(
                    f"Open hours: rows from {hours}; the other steps of a week are closed, and "
                    "missing."
                )
            off = replace(reading, holidays=self.holidays)
            if self.holidays and irregular.closed_on_holidays(times, seen, steps, off):
                reading = off
                self.said.append(f"Public holidays of {reading.holidays} are closed, and missing.")
            self.reading = replace(self.reading, closed=reading.closed, holidays=reading.holidays)
        inside = irregular.is_closed(times[steps[missing]], reading)
        self.excused, missing = missing[inside], missing[~inside]
        if self.step is None:
            return {**odd, "gaps": missing}
        local = not self.clock.zoned and not len(odd["off"])
        changes = times[np.unique(steps[missing])], times[again]
        if (
            local
            and (len(missing) or len(again))
            and all(irregular.of_summer_time(change, self.step) for change in changes)
            and len(odd["unsorted"]) <= len(odd["duplicates"])
        ):
            self.said.append(
                f"Summer time: skipped by the clock, and missing: {len(missing):,} steps; "
                f"repeated, and averaged: {len(odd['duplicates']):,}."
            )
            self.excused, missing = np.union1d(self.excused, missing), missing[:0]
            return dict.fromkeys(odd, missing)
        return {**odd, "gaps": missing}

    def _check_steps(self) -> None:
        """Raise DataError for series with longer steps than the table, or than those of the model.

        Their rows would be taken for the values of single steps: a total of a month for each day.
        """
        if self.grid is None or self.reading.policy == "resample":
            return
        owners = [self.item_of[codes] for codes in self.codes]
        rows = sum(np.bincount(items, minlength=len(self.items)) for items in owners)
        sparse = np.flatnonzero((rows >= FEW) & (rows <= DENSE * self.items.lengths))[: SAMPLE[0]]
        pairs = zip(owners, self.stamps, strict=True) if len(sparse) else ()
        inside = [(of[here], times[here]) for of, times in pairs for here in [np.isin(of, sparse)]]
        other: dict[str, list[str]] = {}
        for series in sparse:
            stamps = np.unique(np.concatenate([times[of == series] for of, times in inside]))
            with suppress(DataError):
                step, usual = find_step(stamps, np.zeros(len(stamps), np.int64), "")
                steady = (np.abs(np.diff(stamps) / usual - 1) < UNEVEN).mean()
                if step != self.freq and steady >= STEADY:
                    other.setdefault(step, []).append(self.items.names[series])
        if self.timezone and not other and len(self.sample[1]) > FEW and self.step:
            with suppress(DataError):
                step, usual = find_step(self.sample[1], self.sample[0], "")
                if usual < self.step / 2:
                    other[step] = []
        if not self.timezone and not self.several and (changed := self._changes()):
            raise DataError(
                f"{self.where}: the step changes from {changed} to {self.freq}, or back; "
                "give the rows of each step a file of their own."
            )
        if other and self.timezone:
            raise DataError(
                f"{self.where}: the rows have steps of {quoted([*other])}, the model of "
                f"{self.freq}; give it rows of {self.freq}, or train one on such rows."
            )
        if other and len(self.items) > 1:
            which = " and ".join(f"{quoted(names)} of {step}" for step, names in other.items())
            raise DataError(
                f"{self.where}: the step of the table is {self.freq}, but that of {which}; give "
                "the series of each step a file of their own, or write the steps between as rows."
            )

    def _changes(self) -> str:
        """The length of other steps that follow one another in the one series, "" if there are
        none: holes are rarely alike."""
        apart = np.diff(np.unique(self.sample[1]))
        usual = int(np.median(apart)) if len(apart) else 0
        far = np.flatnonzero(apart > LONGER * usual)
        runs = far[: max(0, len(far) - FEWEST_ALIKE + 1)]
        runs = runs[far[FEWEST_ALIKE - 1 :] - runs == FEWEST_ALIKE - 1]
        gaps = apart[runs[:, None] + np.arange(FEWEST_ALIKE)]
        alike = (np.abs(gaps / gaps.mean(axis=1, keepdims=True) - 1) < UNEVEN).all(axis=1)
        if not alike.any():
            return ""
        return f"about {pd.Timedelta(int(np.median(gaps[alike.argmax()])), 'us')}"

    def _first(self, kind: str, row: int) -> str:
        """The first of some irregularities in a message."""
        if kind == "gaps":
            item, step = self.items.locate(row)
            owner = f" of '{self.items.names[item]}'" if self.several else ""
            return f"{self.times[step]}{owner}"
        part = 0
        while row >= len(self.codes[part]):
            row -= len(self.codes[part])
            part += 1
        rows, series = self.rows[part], self.codes[part][row]
        file = f"{Path(self.table.names[rows.file]).name}, " if len(self.table.parts) > 1 else ""
        named = f"{file}row {rows.before + row + 1}"
        if kind == "unsorted":
            return named
        stamp = pd.Timestamp(int(self.stamps[part][row]), unit="us")
        owner = f" of '{self.items.names[self.item_of[series]]}'" if self.several else ""
        return f"{named}: {stamp:%a %Y-%m-%d %H:%M:%S}{owner}"

    def _judge(self, odd: Found) -> None:
        """Raise DataError if the policy does not allow the irregularities."""
        by_sort = {
            "unsorted": "rows out of order",
            "gaps": f"missing steps of {self.freq}",
            "duplicates": "repeated stamps",
        }
        by_resample = {
            "differing": "repeated stamps with other values",
            "off": f"stamps that do not fit a step of {self.freq}",
        }
        refused = {
            "error": by_sort | by_resample, "sort": by_resample, "resample": {},
            "rows": {"unsorted": by_sort["unsorted"]},
        }[self.reading.policy]  # fmt: skip
        complaints = [
            f"{what}: {len(rows)} (the first is {self._first(kind, int(rows[0]))})"
            for kind, what in refused.items()
            if len(rows := odd[kind])
        ]
        if not complaints:
            return
        remedies = self._remedies(odd)
        raise DataError(f"{self.where}: {'; '.join(complaints)}. {' '.join(remedies)}")

    def _remedies(self, odd: Found) -> list[str]:
        """What to do about irregularities: only what leads to the right series."""
        gaps, duplicates = len(odd["gaps"]), len(odd["duplicates"])
        if duplicates and not self.timezone and (parts := self.roles.other_parts(self.reading)):
            return [parts + "."]
        alone = duplicates and not self.several
        if alone and (apart := self.roles.distinguishing(self.reading)):
            return [
                f"Column{'s' * (len(apart) > 1)} {quoted(apart)} tell{'s' * (len(apart) == 1)} "
                "apart the rows of one stamp: "
                f"{spelled('id', [*apart])} reads them as several series."
            ]
        remedies = []
        differing = len(odd["differing"])
        mixed = differing and duplicates > MIXED * sum(map(len, self.stamps))
        if not mixed and (differing or len(odd["off"])):
            remedies.append(
                f"{spelled('policy', 'resample')} averages the rows that share a step, and leaves "
                "gaps missing."
            )
        elif not mixed:
            remedies.append(
                f"{spelled('policy', 'sort')} orders the rows, drops repetitions and leaves gaps "
                "missing."
            )
        if gaps and self.reading.future_covariates and not self.reading.fill:
            remedies.append(f"{spelled('fill', 'linear')} fills what is known ahead.")
        if alone:
            remedies.append(
                f"If the file holds several series, {spelled('id')} names the columns that "
                "identify them."
            )
        if duplicates and not self.timezone:
            remedies.append(
                f"If several columns give the time, {spelled('time')} names them, as in "
                f"{spelled('time', ['Date', 'Hour'])}."
            )
        daily = self.freq == "B" or (self.step is not None and self.step <= DAY)
        if gaps and daily and not self.timezone and not self.holidays:
            remedies.append(
                f"If they are public holidays, {spelled('holidays')} names the country or state "
                "whose they are, such as DE, and they count as closed."
            )
        local = not self.clock.zoned and self.step is not None and self.step < DAY
        if local and (gaps or duplicates):
            remedies.append(DAYLIGHT_SAVING)
        return remedies

    def _check_days(self, stamps: NDArray[np.int64]) -> None:
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

    def _fill_gaps(self, series: Series, reading: Reading) -> None:
        """Fill covariates as stated. Raises DataError for one known ahead that has gaps then."""
        items, known = series.layout, series.known
        filled = fill(series.values, series.columns, reading, items)
        if known is not None:
            filled |= fill(known, series.known_columns, reading, items)
        if known is not None and len(self.excused):
            whole = known.copy()
            always = replace(reading, fill=dict.fromkeys(reading.future_covariates, "previous"))
            fill(whole, series.known_columns, always, items)
            known[self.excused] = whole[self.excused]
        if filled:
            ways = reading.fill
            shown = ", ".join(f"'{name}' {n:,} ({ways[name]})" for name, n in filled.items())
            self.said.append(f"Values filled: {shown}.")
        for place, column in enumerate(series.known_columns):
            assert known is not None
            holes = np.isnan(known[:, place])
            if holes.any():
                item, step = items.locate(int(holes.argmax()))
                owner = f" of '{items.names[item]}'" if series.items else ""
                name = reading.read_from([column])[0]
                way = "linear fills it from its neighbours, others are previous, zero and season"
                if 2 * holes.sum() > len(holes) or not np.nanstd(known[:, place]) > 0:
                    way = "zero takes an empty cell for 0, others are previous, linear and season"
                if name in reading.categories:
                    way = "zero takes an empty cell for no word, others are previous and season"
                raise DataError(
                    f"{self.where}: the future covariate '{name}' has no value at "
                    f"{series.times[step]}{owner} ({int(holes.sum())} are missing); expected one "
                    f"at every step. {spelled('fill', f'{name}={way.split()[0]}')}: {way}; a past "
                    "covariate may have gaps."
                )

    def _say_counts(self, counts: dict[str, Any]) -> None:
        counted = self.clock.form.startswith("epoch")  # which is already reported
        if self.clock.zoned and not self.timezone and not counted:
            self.said.append("Stamps carry a time zone: converted to UTC.")
        for kind, what in {
            "snapped": "Stamps that miss their step by less than a tenth of it and count as on it",
            "unsorted": "Rows out of order",
            "duplicates": "Rows that repeat a stamp",
            "off": "Stamps between two steps, which count for the step they fall in",
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


def blank(rows: int, columns: int) -> NDArray[np.floating[Any]]:
    kind = np.float32 if 8 * rows * columns > NARROW else np.float64
    return np.full((rows, columns), np.nan, kind)


def _fresh(places: NDArray[np.int64], seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are the first of their places, all of which are `seen` from now on."""
    fresh = ~seen[places]
    if (places[1:] <= places[:-1]).any():
        firsts = np.zeros(len(places), dtype=bool)
        firsts[np.unique(places, return_index=True)[1]] = True
        fresh &= firsts
    seen[places] = True
    return fresh


def _average(
    values: NDArray[np.floating[Any]], places: NDArray[np.int64], more: NDArray[np.floating[Any]]
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


def _stem(name: str) -> str:
    return Path(name).name.split(".")[0]


def _apart(paths: Sequence[str]) -> list[str]:
    """The names of series with one file each, as long as needed to be different."""
    names = [_stem(file) for file in paths]
    if len({*names}) < len(names):
        above = os.path.commonpath(paths)
        names = [Path(file).relative_to(above).as_posix() for file in paths]
    return names


def _sorted(names: Sequence[str]) -> list[int]:
    """The indices of names in sorted order: whole numbers by size, words alphabetically."""
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return sorted(
        range(len(names)), key=lambda i: (int(names[i]), names[i]) if numbers else names[i]
    )


def _melt(series: Series, targets: int) -> Series:
    """A wide series as a panel: each target column is an item, from its first to its last value.

    If columns known ahead reach further than the values, the items end with the rows.
    """
    names = series.columns[:targets]
    spans = []
    for column in range(targets):
        there = np.flatnonzero(~np.isnan(series.values[:, column]))
        if not len(there):
            raise DataError(
                f"{series.source}: column '{names[column]}' has no value at all and cannot be a "
                "series; name the targets without it."
            )
        end = len(series.values) if series.known is not None else int(there[-1]) + 1
        spans.append((int(there[0]), end))
    order = _sorted(names)
    bounds = np.r_[0, np.cumsum([spans[i][1] - spans[i][0] for i in order])]
    others = series.columns[targets:]
    values = blank(int(bounds[-1]), 1 + len(others))
    known = None if series.known is None else blank(int(bounds[-1]), series.known.shape[1])
    for item, column in enumerate(order):
        rows, here = slice(*spans[column]), slice(bounds[item], bounds[item + 1])
        values[here, 0] = series.values[rows, column]
        values[here, 1:] = series.values[rows, targets:]
        if known is not None and series.known is not None:
            known[here] = series.known[rows]
    places = np.array([spans[column][0] for column in order])
    items = Items(tuple(names[column] for column in order), bounds, places)
    return replace(series, values=values, columns=(_PANEL, *others), items=items, known=known)


def _columns(series: Series, reading: Reading, ahead: int) -> dict[str, Any]:
    """The numbers of missing values by column of the file, and the columns that are constant.

    The last rows of a series that have no value, `ahead` at most, miss none.
    """
    missing = np.isnan(series.values).sum(axis=0)
    if ahead:
        items = series.layout
        ends = items.bounds[1:]
        last = ends[:, None] - np.arange(1, ahead + 1)
        empty = np.isnan(series.values[np.maximum(last, 0)]).all(axis=2)
        empty &= last >= items.bounds[:-1, None]
        missing -= np.logical_and.accumulate(empty, axis=1).sum()
    low, high = np.fmin.reduce(series.values), np.fmax.reduce(series.values)
    names = [reading.read_from([column])[0] for column in series.columns]
    for name, least in zip(names, low, strict=True):
        if np.isnan(least) and reading.fill.get(name) != "zero":
            raise DataError(
                f"{series.source}: column '{name}' has no value at all: fill it in, or leave it "
                "out."
            )
    moving = {name for name, flat in zip(names, low == high, strict=True) if not flat}
    return {
        "missing": dict(zip(names, missing.tolist(), strict=True)),
        "constant": [name for name in dict.fromkeys(names) if name not in moving],
    }
