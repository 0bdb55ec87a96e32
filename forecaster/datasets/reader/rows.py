"""The reading of a table, from its rows to a series on a time grid.

Two layouts are read, from one file or many. Wide: a time column and columns of values. Long: the
rows of many series below one another, identified by an id column. Every row is placed on one time
grid by its stamp; irregularities are counted and refused, or repaired as the policy states.
A missing value is NaN; covariates are filled only where the user asks for it (`filling`).
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.base.errors import DataError, UsageError
from forecaster.base.spelling import spelled
from forecaster.datasets.calendar import DAY
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.grid import RowSteps, Step, Steps, TimeGrid, find_step
from forecaster.datasets.items import Items
from forecaster.datasets.reader.cells import add_words, indicators, to_numbers
from forecaster.datasets.reader.clock import DAYLIGHT_SAVING, find_clock
from forecaster.datasets.reader.files import (
    NAMELESS,
    RawTable,
    Rows,
    frame_table,
    open_table,
    text_table,
)
from forecaster.datasets.reader.filling import by_column, fill
from forecaster.datasets.reader.irregular import (
    hours_in_words,
    is_closed,
    of_summer_time,
    open_hours,
)
from forecaster.datasets.reader.roles import Roles
from forecaster.datasets.reader.survey import Attributes, Ids, Occurrences, Survey
from forecaster.datasets.reader.values import Values, allocate
from forecaster.datasets.reading import NOTHING_SAID, Reading
from forecaster.datasets.seasons import infer_seasons
from forecaster.datasets.series import Series, quoted

FILE = "file"
"""The name of the series id if each series has its own file and no column holds the id."""

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
    return Reader(open_table(path, reading), reading).read(_stem(named.name) or "data")


def read_frame(frame: pd.DataFrame, reading: Reading = NOTHING_SAID, *, where: str) -> Dataset:
    """Read the series in a frame, as `read` does those of a file; `where` names it in messages.

    An index of stamps is the time column, by its name or as "time", unless the reading names one.
    """
    time = reading.time or str(frame.index.name or "time")
    return Reader(frame_table(frame, time, where, reading), reading).read(where)


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
        table = frame_table(source, reading.time, where, reading)
    elif isinstance(source, bytes):
        table = text_table(source, where, reading)
    elif not isinstance(source, str | Path):
        raise UsageError(f"{where}: expected a DataFrame or a file, got {type(source).__name__}")
    else:
        table = open_table(str(source), reading)
    told = replace(reading, seasons=reading.seasons or (1,))
    return Reader(table, told, most, ahead).read(where)


class Reader:
    """Reads one table; if `reading` has a time zone, it is complete, and nothing is found."""

    def __init__(
        self, table: RawTable, reading: Reading, most: int | None = None, ahead: int = 0
    ) -> None:
        self.table = table
        self.where = table.where
        self.timezone = reading.timezone
        self.most = most
        self.ahead = ahead
        self.said: list[str] = []
        self.several = bool(reading.id)
        self.named = bool(reading.targets)
        self.repeated: list[NDArray[np.int64]] = []
        self.excused = np.empty(0, np.int64)
        self.file_id = FILE if table.in_files and FILE not in table.columns else None
        self.roles = Roles(table, self.file_id, self.said)
        trained = self.timezone is not None
        found = self.roles.find(reading, told=trained)
        if found.time == "":
            if NAMELESS in table.columns:
                raise DataError(f"{self.where}: the time column has no name; give it one.")
            self.said.append(f"The time column has no name, and is called '{NAMELESS}'.")
            found = replace(found, time=NAMELESS)
            self.table = table = replace(table, reading=replace(table.reading, time=NAMELESS))
            self.roles = Roles(table, self.file_id, self.said)
        self.reading = replace(found, fill=found.fill if trained else by_column(found))
        self.clock = find_clock(table, self.reading, trained, self.said)
        self.reading = self.clock.told(self.reading)
        if self.timezone == "naive":
            self.clock.zoned = False

    # Rows are read twice: once for their stamps, once for their values.

    def read(self, name: str) -> Dataset:
        said = self.reading
        ids = Ids(() if said.id == (self.file_id,) else said.id)
        survey = self._survey(ids)
        said = self.reading
        step = self._step(survey)
        first, last = int(survey.first.min()), int(survey.last.max())
        stamps = survey.sampled[1]
        grid: Steps
        if said.policy == "rows":
            grid = RowSteps(step.freq, survey.stamps)
            item_of, items = np.zeros(len(self.table.parts), np.int64), Items.single(survey.rows)
        else:
            grid = TimeGrid.over(step, first, last, stamps, survey.rows, self.where, self.most)
            self._check_days(stamps, grid)
            self.several = bool(said.id) or self._files_overlap(survey, grid)
            item_of, names = self._order(ids)
            items = self._items(names, item_of, survey, grid)
        columns = said.read_as([*said.targets, *said.past_covariates])
        ahead = said.read_as(said.future_covariates)
        average = said.policy in ("resample", "error")  # an error, unless for summer time
        cells = Values(int(items.bounds[-1]), len(columns) + len(ahead), average)
        found = {kind: Occurrences() for kind in ("duplicates", "differing", "snapped", "off")}
        static = Attributes(said.static, len(items), self.table)
        self._fill(cells, ids, item_of, items, grid, found, static)
        gaps = Occurrences(int((~cells.seen).sum()))
        if gaps.count:
            gaps.first = self._where(int(cells.seen.argmin()), items, grid)
        if said.policy == "error":
            self._judge(*self._excused(survey, found, cells.seen, items, grid), grid)
        else:
            self._judge(survey, found, gaps, grid)
        said = self.reading
        cells.finish()
        values, known = cells.values[:, : len(columns)], cells.values[:, len(columns) :]
        series = Series(
            values=values,
            times=grid.times,
            columns=columns,
            freq=step.freq,
            source=self.where,
            items=items if self.several else None,
            known=known if ahead else None,
            known_columns=ahead,
            static=static.values,
        )
        if said.panel:
            series = _melt(series, len(said.targets))
            columns = series.columns
        targets = columns[: len(columns) - len(said.read_as(said.past_covariates))]
        counts = {
            "unsorted": survey.unsorted.count,
            **{kind: what.count for kind, what in found.items()},
            "gaps": gaps.count,
            **_columns(series, said, self.ahead),
        }
        seasons = said.seasons or self._seasons(series, targets)
        self._say_counts(counts)
        said = replace(said, seasons=seasons)
        self._fill_gaps(series, said)
        complete = replace(
            said,
            id=said.id or ((FILE,) if self.several else ()),
            freq=step.freq,
            panel=bool(said.panel),
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

    def _survey(self, ids: Ids) -> Survey:
        survey = Survey(keep=self.reading.policy == "rows")
        said = self.reading
        met: dict[str, set[str]] = {column: set() for column in self.roles.wordy(said)}
        words = [*ids.columns, *met]
        for rows in self.table.rows([*self.clock.columns.names, *words], words):
            codes, stamps = ids.codes(rows, self.table), self.clock.read(rows, self.table)
            survey.add(codes, stamps, partial(self._row, rows))
            add_words(met, rows.cells, said.missing, self.where)
        if not survey.rows:
            raise DataError(f"{self.where}: no rows below the header; expected one per time step.")
        found = {column: tuple(sorted(words)) for column, words in met.items()}
        self.reading = replace(said, categories=said.categories | found)
        self.said += [
            f"Column '{column}' holds words, each a column of 0 and 1: {quoted(words)}."
            for column, words in found.items()
        ]
        return survey

    def _step(self, survey: Survey) -> Step:
        codes, stamps = survey.sampled
        step = find_step(stamps, codes, self.where, self.reading.freq)
        if self.reading.freq is None:
            self.said.append(f"The time step is {step.freq}.")
        return step

    def _files_overlap(self, survey: Survey, grid: TimeGrid) -> bool:
        """Whether files without an id column are separate series, not parts of one."""
        if len(self.table.parts) == 1:
            return False
        order = np.argsort(survey.first, kind="stable")
        overlap = bool((survey.first[order][1:] < survey.last[order][:-1]).any())
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

    def _order(self, ids: Ids) -> tuple[NDArray[np.int64], list[str]]:
        """The item of each series in the order found, and the names of the items, sorted."""
        if not self.several:
            return np.zeros(len(self.table.parts), np.int64), [""]
        names = list(ids.names) if ids.columns else _apart(self.table.names)
        order = _sorted(names)
        item_of = np.empty(len(names), np.int64)
        item_of[order] = np.arange(len(names))
        return item_of, [names[place] for place in order]

    def _items(
        self, names: list[str], item_of: NDArray[np.int64], survey: Survey, grid: TimeGrid
    ) -> Items:
        first = np.full(len(names), np.iinfo(np.int64).max)
        last = np.full(len(names), np.iinfo(np.int64).min)
        np.minimum.at(first, item_of, survey.first)
        np.maximum.at(last, item_of, survey.last)
        places = grid.place(first)[0]
        lengths = grid.place(last)[0] - places + 1
        said = self.reading
        named = (*said.targets, *said.past_covariates, *said.future_covariates)
        width = len(said.read_as(named))
        if lengths.sum() > min(20 * survey.rows + 1_000_000, (self.most or sys.maxsize) // width):
            raise DataError(
                f"{self.where}: {survey.rows:,} rows for {lengths.sum():,} steps of {grid.freq} "
                "between the first and last stamps of the series; is a stamp wrong, or the step? "
                f"{spelled('freq')} names it."
            )
        return Items(tuple(names), np.r_[0, np.cumsum(lengths)], places)

    def _fill(
        self,
        cells: Values,
        ids: Ids,
        item_of: NDArray[np.int64],
        items: Items,
        grid: Steps,
        found: dict[str, Occurrences],
        static: Attributes,
    ) -> None:
        said, table = self.reading, self.table
        numbers = [*said.targets, *said.past_covariates, *said.future_covariates]
        wanted = [*self.clock.columns.names, *ids.columns, *numbers, *said.static]
        shift = items.bounds[:-1] - items.places
        for rows in table.rows(wanted, ids.columns):
            stamps = self.clock.read(rows, table)
            item = item_of[ids.codes(rows, table)]
            steps, missed = grid.place(stamps)
            block = np.column_stack([self.values(rows, column) for column in numbers])
            static.add(rows, item)
            again, differing = cells.put(shift[item] + steps, block)
            self.repeated.append(np.unique(steps[again]))
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
        """The name of a row in a message that begins with the table."""
        file = f"{Path(self.table.names[rows.file]).name}, " if len(self.table.parts) > 1 else ""
        return f"{file}row {rows.before + row + 1}"

    def values(self, rows: Rows, column: str) -> NDArray[np.float64]:
        """The cells (N,) of a column as numbers, or as indicators (N, words) of its words."""

        def complain(row: int, what: str) -> DataError:
            place, stamp = self.table.row(rows, row), self.clock.shown(rows, row)
            return DataError(f"{place} ({stamp}), column '{column}': {what}")

        if words := self.reading.categories.get(column):
            return indicators(rows.cells[column], words, self.reading.missing, complain)
        return to_numbers(rows.cells[column], complain, self.table.how(rows.file))

    # What is irregular.

    def _where(self, row: int, items: Items, grid: Steps) -> str:
        """The name of a row of the values in a message."""
        item, step = items.locate(row)
        return f"{grid.times[step]}" + (f" of '{items.names[item]}'" if self.several else "")

    def _excused(
        self,
        survey: Survey,
        found: dict[str, Occurrences],
        seen: NDArray[np.bool_],
        items: Items,
        grid: Steps,
    ) -> tuple[Survey, dict[str, Occurrences], Occurrences]:
        """The irregularities without those that follow a rule: closed hours and summer time.

        Rows that are missing by a rule are `excused`.
        """
        missing, again = np.flatnonzero(~seen), np.unique(np.concatenate(self.repeated))
        if grid.step is None or not (len(missing) or len(again)):
            return survey, found, self._gaps(missing, items, grid)
        steps = np.arange(len(seen)) + np.repeat(items.places - items.bounds[:-1], items.lengths)
        if self.timezone is None and (closed := open_hours(grid.times, seen, steps, grid.step)):
            self.reading = replace(self.reading, closed=closed)
            self.said.append(
                f"Open hours: rows from {hours_in_words(closed, grid.step)}; the other steps of a "
                "week are closed, and missing."
            )
        inside = is_closed(grid.times[steps[missing]], grid.step, self.reading.closed)
        self.excused, missing = missing[inside], missing[~inside]
        local = not self.clock.zoned and not found["off"].count
        changes = grid.times[np.unique(steps[missing])], grid.times[again]
        if (
            local
            and (len(missing) or len(again))
            and all(of_summer_time(each, grid.step) for each in changes)
            and survey.unsorted.count <= found["duplicates"].count
        ):
            self.said.append(
                f"Summer time: skipped by the clock, and missing: {len(missing):,} steps; "
                f"repeated, and averaged: {found['duplicates'].count:,}."
            )
            self.excused, missing = np.union1d(self.excused, missing), missing[:0]
            found = {kind: Occurrences() for kind in found}
            survey = replace(survey, unsorted=Occurrences())
        return survey, found, self._gaps(missing, items, grid)

    def _gaps(self, missing: NDArray[np.int64], items: Items, grid: Steps) -> Occurrences:
        first = self._where(int(missing[0]), items, grid) if len(missing) else ""
        return Occurrences(len(missing), first)

    def _judge(
        self, survey: Survey, found: dict[str, Occurrences], gaps: Occurrences, grid: Steps
    ) -> None:
        """Raise DataError if the policy does not allow the irregularities."""
        duplicates, differing, off = found["duplicates"], found["differing"], found["off"]
        by_sort = [
            (survey.unsorted, "rows out of order"),
            (gaps, f"missing steps of {grid.freq}"),
            (duplicates, "repeated stamps"),
        ]
        by_resample = [
            (differing, "repeated stamps with other values"),
            (off, f"stamps that do not fit a step of {grid.freq}"),
        ]
        policy = self.reading.policy
        refused = {
            "error": [*by_sort, *by_resample], "sort": by_resample, "resample": [],
            "rows": by_sort[:1],
        }[policy]  # fmt: skip
        complaints = [
            f"{name}: {what.count} (the first is {what.first})"
            for what, name in refused
            if what.count
        ]
        if not complaints:
            return
        if differing.count or off.count:
            remedy = f"{spelled('policy', 'resample')} averages the rows that share a step, and"
        else:
            remedy = f"{spelled('policy', 'sort')} orders the rows, drops repetitions and"
        remedy += " leaves gaps missing"
        if gaps.count and self.reading.future_covariates and not self.reading.fill:
            remedy += f"; {spelled('fill', 'linear')} fills what is known ahead"
        hint = ""
        apart = (
            "" if not duplicates.count or self.several else self.roles.distinguishing(self.reading)
        )
        if apart:
            first = (
                f"Column '{apart}' tells apart the rows of one stamp: {spelled('id', apart)} reads"
            )
            remedy = f"{first} them as several series. Otherwise {remedy}"
        elif duplicates.count and not self.several:
            hint = f" If the file holds several series, {spelled('id')} names the columns that"
            hint += " identify them."
        if duplicates.count and not self.timezone and not apart:
            hint += f" If several columns give the time, {spelled('time')} names them, as in"
            hint += f" {spelled('time', ['Date', 'Hour'])}."
        local = not self.clock.zoned and grid.step is not None and grid.step < DAY
        if local and (gaps.count or duplicates.count):
            hint += DAYLIGHT_SAVING
        raise DataError(f"{self.where}: {'; '.join(complaints)}. {remedy}.{hint}")

    def _check_days(self, stamps: NDArray[np.int64], grid: TimeGrid) -> None:
        """Raise DataError for days in UTC that begin at two times, since the clocks changed."""
        if not (self.clock.zoned and grid.step is not None and grid.step % DAY == 0):
            return
        begins = np.unique(stamps % DAY)
        if len(begins) == 2 and begins[1] - begins[0] in (DAY // 24, DAY - DAY // 24):
            one, other = (f"{pd.Timestamp(int(each), unit='us'):%H:%M}" for each in begins)
            raise DataError(
                f"{self.where}: days begin at {one} and at {other} in UTC, as in a time zone with "
                "summer time; give the stamps in local time, without a zone."
            )

    def _fill_gaps(self, series: Series, said: Reading) -> None:
        """Fill covariates as stated. Raises DataError for one known ahead that has gaps then."""
        items, known = series.items or Items.single(len(series.times)), series.known
        filled = fill(series.values, series.columns, said, items)
        if known is not None:
            filled |= fill(known, series.known_columns, said, items)
        if known is not None and len(self.excused):
            whole = known.copy()
            always = replace(said, fill=dict.fromkeys(said.future_covariates, "previous"))
            fill(whole, series.known_columns, always, items)
            known[self.excused] = whole[self.excused]
        if filled:
            shown = ", ".join(f"'{name}' {n:,} ({said.fill[name]})" for name, n in filled.items())
            self.said.append(f"Values filled: {shown}.")
        for place, column in enumerate(series.known_columns):
            assert known is not None
            holes = np.isnan(known[:, place])
            if holes.any():
                item, step = items.locate(int(holes.argmax()))
                owner = f" of '{items.names[item]}'" if series.items else ""
                raise DataError(
                    f"{self.where}: the future covariate '{column}' has no value at "
                    f"{series.times[step]}{owner} ({int(holes.sum())} are missing); expected one "
                    f"at every step. {spelled('fill', 'linear')} fills it from its neighbours, "
                    "others are previous, zero and season; a past covariate may have gaps."
                )

    def _seasons(self, series: Series, targets: Sequence[str]) -> tuple[int, ...]:
        seasons = infer_seasons(series, len(targets))
        self.said.append(
            f"Seasons found, in steps: {' and '.join(str(season) for season in seasons)}."
            if seasons != (1,)
            else "No season was found."
        )
        return seasons

    def _say_counts(self, counts: dict[str, Any]) -> None:
        counted = self.clock.stamps.form.startswith("epoch")  # which is already reported
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


def _stem(name: str) -> str:
    return Path(name).name.split(".")[0]


def _apart(files: Sequence[str]) -> list[str]:
    """The names of series with one file each, as long as needed to be different."""
    names = [_stem(file) for file in files]
    if len({*names}) < len(names):
        above = os.path.commonpath(files)
        names = [Path(file).relative_to(above).as_posix() for file in files]
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


def _columns(series: Series, reading: Reading, ahead: int) -> dict[str, Any]:
    """The numbers of missing values by column of the file, and the columns that are constant.

    The last rows of a series that have no value, `ahead` at most, miss none.
    """
    missing = np.isnan(series.values).sum(axis=0)
    if ahead:
        items = series.items or Items.single(len(series.times))
        ends = items.bounds[1:]
        last = ends[:, None] - np.arange(1, ahead + 1)
        empty = np.isnan(series.values[np.maximum(last, 0)]).all(axis=2)
        empty &= last >= items.bounds[:-1, None]
        missing -= np.logical_and.accumulate(empty, axis=1).sum()
    low, high = np.fmin.reduce(series.values), np.fmax.reduce(series.values)
    if np.isnan(low).any():
        column = series.columns[int(np.isnan(low).argmax())]
        raise DataError(
            f"{series.source}: column '{column}' has no value at all: fill it in, or leave it out."
        )
    names = [reading.read_from([column])[0] for column in series.columns]
    moving = {name for name, flat in zip(names, low == high, strict=True) if not flat}
    return {
        "missing": dict(zip(names, missing.tolist(), strict=True)),
        "constant": [name for name in dict.fromkeys(names) if name not in moving],
    }
