"""The reading of a table, from its rows to a series on a time grid.

Two layouts are read, from one file or many. Wide: a time column and columns of values. Long: the
rows of many series below one another, identified by an id column. Every row is placed on one time
grid by its stamp; irregularities are counted and refused, or repaired as the policy states.
A missing value is NaN; covariates are filled only where the user asks for it (`filling`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.dataset import Dataset, Items, Series
from forecaster.datasets.reader import files
from forecaster.datasets.reader.cells import indicators, is_text, to_numbers, words_of
from forecaster.datasets.reader.clock import Clock, time_columns
from forecaster.datasets.reader.filling import by_column, fill_gaps
from forecaster.datasets.reader.formats import Format
from forecaster.datasets.reader.irregular import check_steps, excuse, judge
from forecaster.datasets.reader.places import Places, find_ids, in_order, stem
from forecaster.datasets.reader.roles import FILE, Roles
from forecaster.datasets.reading import NOTHING_SAID, Reading
from forecaster.datasets.seasons import infer_seasons

NARROW = 2**26
"""The most bytes of values in 64 bits; more are kept in 32, which a network reads anyway."""

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
    return read_table(files.open_table(path, reading), reading, stem(named.name) or "data")


def read_frame(frame: pd.DataFrame, reading: Reading = NOTHING_SAID, *, where: str) -> Dataset:
    """Read the series in a frame, as `read` does those of a file; `where` names it in messages.

    An index of stamps is the time column, by its name or as "time", unless the reading names one.
    """
    time = reading.time or str(frame.index.name or "time")
    return read_table(files.frame_table(frame, time, where, reading), reading, where)


def history(
    source: "str | Path | bytes | Format | pd.DataFrame",
    reading: Reading,
    *,
    where: str = "the history",
    most: int | None = None,
    ahead: int = 0,
) -> Dataset:
    """Read other rows, perhaps only a few, in the same way as the data of a trained model.

    `source` is a frame, the name of a file, an open one or, as bytes, the text of one. `reading` is
    that of the model's data, complete; columns that it does not name are ignored.
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
    elif isinstance(source, Format):
        table = files.RawTable(where, (source,), reading)
    elif not isinstance(source, str | Path):
        raise UsageError(f"{where}: expected a DataFrame or a file, got {type(source).__name__}")
    else:
        table = files.open_table(str(source), reading)
    settled = replace(reading, seasons=reading.seasons or (1,))
    return read_table(table, settled, where, most, ahead)


def read_table(
    table: files.RawTable, reading: Reading, name: str, most: int | None = None, ahead: int = 0
) -> Dataset:
    """Read a table, of which nothing is left to find if the reading is complete."""
    is_named = bool(reading.targets)
    roles, reading = _with_roles(table, reading)
    table, messages = roles.table, roles.said
    ids = () if reading.id == (roles.file_id,) else reading.id
    times = time_columns(reading, table.columns)
    rows = table.rows((*times, *ids, *reading.value_columns, *reading.static), ids)
    clock = Clock(table, rows, reading, messages)
    codes, names = find_ids(ids, rows, table)
    stamps = [clock.read(part) for part in rows]
    reading = _with_words(clock, roles.wordy(clock.reading))
    places = Places(clock, reading, codes, names, stamps, most)
    if reading.policy == "rows" and ids and len(names) > 1:
        raise UsageError(
            f"{spelled('policy', 'rows')} takes the rows of one series as its steps, but "
            f"{spelled('id')} gives {len(names):,}; sort is a policy for several."
        )
    reading, series, counts, excused = _placed(places, roles)
    if reading.drop_last and len(series.times) > 1:
        series, excused = _without_last(series, excused, ahead, messages)
    if reading.panel:
        series = _melt(series, len(reading.targets))
    targets = series.columns[: len(series.columns) - len(reading.read_as(reading.past_covariates))]
    counts |= _columns(series, reading, ahead)
    seasons = reading.seasons
    if not seasons:
        seasons = infer_seasons(series, len(targets))
        words = f"Seasons found, in steps: {' and '.join(map(str, seasons))}."
        messages.append("No season was found." if seasons == (1,) else words)
    if clock.zoned and not reading.complete and not clock.form.startswith("epoch"):
        messages.append("Stamps carry a time zone: converted to UTC.")
    messages += _counted(counts)
    reading = replace(reading, seasons=seasons)
    fill_gaps(series, reading, excused, messages)
    return Dataset(
        name=name,
        reading=replace(
            reading,
            id=reading.id or ((FILE,) if places.several else ()),
            panel=bool(reading.panel),
            text=table.text,
            timezone=reading.timezone or ("UTC" if clock.zoned else "naive"),
        ),
        series=series,
        targets=targets,
        features="MS" if len(series.columns) > len(targets) else "S" if is_named else "M",
        main_target=targets[0],
        said=(*table.said(), *messages),
        counts=counts,
    )


def _with_roles(table: files.RawTable, reading: Reading) -> tuple[Roles, Reading]:
    """The reading with the roles of all columns of a table, whose time column has a name then."""
    roles = Roles(table, [])
    reading = roles.find(reading)
    if reading.time == "":
        if files.NAMELESS in table.columns:
            raise DataError(f"{table.where}: the time column has no name; give it one.")
        roles.said.append(f"The time column has no name, and is called '{files.NAMELESS}'.")
        reading = replace(reading, time=files.NAMELESS)
        named = replace(table.reading, time=files.NAMELESS)
        roles = Roles(files.RawTable(table.where, table.parts, named), roles.said)
    return roles, reading if reading.complete else replace(reading, fill=by_column(reading))


def _with_words(clock: Clock, columns: Sequence[str]) -> Reading:
    """The reading with the words of `columns`, and how their gaps are filled."""
    reading, messages = clock.reading, clock.said
    filled, categories = dict(reading.fill), dict[str, tuple[str, ...]]()
    count = sum(part.cells.num_rows for part in clock.rows)
    for column in columns:
        parts = [part.cells[column] for part in clock.rows]
        words, empty = words_of(column, parts, reading.missing, clock.table.where)
        categories[column] = words
        messages.append(
            f"Column '{column}' holds words, each a column of 0 and 1: {quoted(words)}."
        )
        if 2 * empty > count and filled.get(column, "linear") == "linear":
            filled[column] = "zero"
            messages.append(f"Column '{column}' is mostly empty: there, no word holds.")
        elif empty and filled.get(column) == "linear":
            filled[column] = "previous"
            messages.append(f"Column '{column}' holds words: each goes on until the next.")
    return replace(reading, categories={**reading.categories, **categories}, fill=filled)


def _placed(
    places: Places, roles: Roles
) -> tuple[Reading, Series, dict[str, Any], NDArray[np.int64]]:
    """The reading with closed hours, the series, the irregularities in numbers, and the rows that
    are missing by a rule. Raises DataError for irregularities that the policy does not allow."""
    reading = places.reading
    columns = reading.read_as([*reading.targets, *reading.past_covariates])
    ahead = reading.read_as(reading.future_covariates)
    cells = blank(int(places.items.bounds[-1]), len(columns) + len(ahead))
    blocks = (_values(places.clock, reading, part) for part in places.rows)
    seen, odd, repeated = places.fill(cells, blocks)
    static = {column: places.attribute(column) for column in reading.static}
    check_steps(places)
    reading, unexcused, excused = excuse(places, odd, seen, repeated)
    judge(places, unexcused, roles)
    series = Series(
        values=cells[:, : len(columns)],
        times=places.times,
        columns=columns,
        freq=places.freq,
        source=places.where,
        items=places.items if places.several else None,
        known=cells[:, len(columns) :] if ahead else None,
        known_columns=ahead,
        static=static,
    )
    return reading, series, {kind: len(rows) for kind, rows in odd.items()}, excused


def _values(clock: Clock, reading: Reading, rows: files.Rows) -> NDArray[np.float64]:
    """The values of some rows (N, columns): numbers, and the indicators of words."""

    def column_of(name: str) -> NDArray[np.float64]:
        cells = rows.cells[name]

        def complain(row: int, what: str) -> DataError:
            place, stamp = clock.table.row(rows, row), clock.shown(rows, row)
            words = name not in reading.targets and not reading.complete
            if words and cells[row].as_py() and is_text(cells.type):
                what += f"; {spelled('categorical', name)} reads the column as words"
            return DataError(f"{place} ({stamp}), column '{name}': {what}")

        if words := reading.categories.get(name):
            return indicators(cells, words, reading.missing, complain)
        return to_numbers(cells, complain, clock.table.how(rows.file))

    return np.column_stack([column_of(name) for name in reading.value_columns])


def _without_last(
    series: Series, excused: NDArray[np.int64], ahead: int, messages: list[str]
) -> tuple[Series, NDArray[np.int64]]:
    """The series without its last step, or without its values if rows ahead follow it; and which
    of its rows are excused."""
    items, steps = series.layout, len(series.times)
    observed = ~np.isnan(series.values).all(axis=1)
    last = items.steps.max(where=observed, initial=0) if ahead else steps - 1
    messages.append(f"The last step, {series.times[last]}, is left out.")
    if last < steps - 1:
        series.values[items.steps == last] = np.nan
        return series, excused
    is_excused = np.zeros(len(series.values), bool)
    is_excused[excused] = True
    return series.before(last), np.flatnonzero(is_excused[items.before(last)])


def blank(rows: int, columns: int) -> NDArray[np.floating[Any]]:
    kind = np.float32 if 8 * rows * columns > NARROW else np.float64
    return np.full((rows, columns), np.nan, kind)


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
    order = in_order(names)
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
    of_new = ahead and reading.id  # new series of a panel, of which no row has a value yet
    for name, least in zip(names, low, strict=True):
        if np.isnan(least) and not of_new and reading.fill.get(name) != "zero":
            raise DataError(
                f"{series.source}: column '{name}' has no value at all: fill it in, or leave it "
                "out."
            )
    moving = {name for name, flat in zip(names, low == high, strict=True) if not flat}
    return {
        "missing": dict(zip(names, missing.tolist(), strict=True)),
        "constant": [name for name in dict.fromkeys(names) if name not in moving],
    }


def _counted(counts: dict[str, Any]) -> Iterator[str]:
    """Yield sentences about irregularities."""
    for kind, what in {
        "snapped": "Stamps that miss their step by less than a tenth of it and count as on it",
        "unsorted": "Rows out of order",
        "duplicates": "Rows that repeat a stamp",
        "off": "Stamps between two steps, which count for the step they fall in",
        "gaps": "Steps without a row, whose values are missing",
    }.items():
        if counts[kind]:
            yield f"{what}: {counts[kind]:,}."
    missing = {name: count for name, count in counts["missing"].items() if count}
    if missing:
        shown = ", ".join(f"'{name}' {count:,}" for name, count in [*missing.items()][:20])
        yield f"Missing values: {shown}."
    if counts["constant"]:
        yield f"Constant: {quoted(counts['constant'])}."
