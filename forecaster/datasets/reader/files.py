"""Tables of rows in one or many files, of which the columns that are needed are held in memory.

Rows are counted from 1 in each file, below the header.
"""

import glob
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from forecaster.base import quota
from forecaster.base.errors import DataError, UnavailableError
from forecaster.base.installation import DOCUMENTS, SUFFIXES, TABLES
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.reader import formats
from forecaster.datasets.reader.cells import Evidence, Written, is_text, learn
from forecaster.datasets.reading import NOTHING_SAID, Reading, Text

SAMPLE = 10_000
"""The rows from which the kinds of the columns are found: more than a year of hours."""

NAMELESS = "time"
"""The name of a time column whose header is blank, as pandas writes an index without a name."""

FILES = 20
"""The most files whose first rows are used to find how numbers are written: opening
thousands for a sign that none shows would take long."""


class Rows(NamedTuple):
    """Some consecutive rows of a file; `before` is the number of rows before them."""

    file: int
    before: int
    cells: pa.RecordBatch


class RawTable:
    """The rows of a frame, or of files that have the same columns.

    `where` names the whole in messages. What the `reading` states about texts holds; the reading of
    a model decides only what the files themselves leave open.
    """

    def __init__(self, where: str, parts: Sequence[formats.Format], reading: Reading) -> None:
        self.where, self.parts, self.reading = where, parts, reading
        self.names = tuple(part.name for part in parts)
        self.in_files = not isinstance(parts[0], formats.Frame)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of all parts, in the order of the first. Raises DataError if they differ."""
        first, *others = map(tuple, self._own)
        for name, columns in zip(self.names[1:], others, strict=True):
            if differing := sorted({*first} ^ {*columns}):
                raise DataError(
                    f"{name} has other columns than {self.names[0]}: {quoted(differing)} "
                    f"{'are' if differing[1:] else 'is'} in only one of them. Files that are "
                    "read together need the same columns."
                )
        if len(separators := {part.separator for part in self.parts} - {""}) > 1:
            raise DataError(
                f"{self.where}: fields are separated by {quoted(sorted(separators))}; write all "
                "files alike."
            )
        return first

    @cached_property
    def _own(self) -> list[dict[str, str]]:
        """The columns in each part: from their trimmed names to the names as the part writes them.

        Raises DataError for a name that appears twice, perhaps with other blanks around it.
        """
        for part in self.parts:
            for name, times in Counter(map(str.strip, part.names)).items():
                if times > 1:
                    raise DataError(f"{part.name}: column '{name}' appears twice.")
        raw_names = [{name.strip(): name for name in part.names} for part in self.parts]
        if self.reading.time == NAMELESS and not any(NAMELESS in names for names in raw_names):
            return [{name or NAMELESS: raw for name, raw in names.items()} for names in raw_names]
        return raw_names

    def rows(self, columns: Sequence[str], words: Sequence[str] = ()) -> list[Rows]:
        """All rows of `columns`; those in `words` as dictionaries if that saves work.

        Raises UnavailableError for files whose rows take more memory than their share.
        """
        batches, held = list[Rows](), 0
        need = sum(part.size(columns) for part in self.parts)
        left = quota.memory_left() if need else None
        for number in range(len(self.parts)):
            for rows in self._rows(number, columns, words):
                held += rows.cells.nbytes
                need = max(need, held)
                if left is not None and need > left // 3:  # what is made of them needs more
                    raise UnavailableError(
                        f"{self.where}: the rows take about {need / 2**30:.2g} GiB, more than a "
                        f"third of the {left / 2**30:.2g} GiB of memory that are left. Read fewer "
                        "columns or rows, save the file as Parquet, or use a larger machine."
                    )
                self._check_header(rows)
                batches.append(rows)
        return batches

    def _check_header(self, rows: Rows) -> None:
        """Raise DataError where the header of a text is repeated among its rows."""
        name, cells = rows.cells.schema.names[0], rows.cells[0]
        if is_text(cells.type):
            row = pc.index(cells, self._own[rows.file][name]).as_py()
            if row >= 0:
                raise DataError(
                    f"{self.row(rows, row)}: the header is repeated, so a second table begins "
                    "there; give each table a file of its own."
                )

    def _rows(
        self, number: int, columns: Sequence[str], words: Sequence[str] = ()
    ) -> Iterator[Rows]:
        names, before = self._own[number], 0
        inside, coded = ([names[name] for name in some] for some in (columns, words))
        for cells in self.parts[number].batches(inside, coded):
            if [*cells.schema.names] != [*columns]:
                chunks = [cells[names[name]] for name in columns]
                cells = pa.RecordBatch.from_arrays(chunks, names=list(columns))
            if cells.num_rows:
                yield Rows(number, before, cells)
            before += cells.num_rows

    @cached_property
    def sample(self) -> pa.Table:
        """The first rows. Raises DataError if there are none."""
        for number in range(len(self.parts)):
            if (sample := self._first_rows(number)).num_rows:
                return sample
        raise DataError(f"{self.where}: no rows below the header; expected one per time step.")

    def _first_rows(self, number: int) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        columns = [*self._own[number]]
        for rows in self._rows(number, columns):
            batches.append(rows.cells.slice(0, SAMPLE - rows.before))
            if rows.before + rows.cells.num_rows >= SAMPLE:
                break
        if batches:
            return pa.Table.from_batches(batches)
        return pa.table({name: pa.array([], pa.string()) for name in columns})

    def row(self, rows: Rows, row: int) -> str:
        """The name of one of some rows, counted from 0, in messages."""
        return f"{self.names[rows.file]}, row {rows.before + row + 1}"

    # How it is written.

    def how(self, part: int) -> Written:
        """How a part writes its numbers.

        If the separator of the fields is a comma or none, "1.234" has decimals unless another
        number shows otherwise.
        """
        separator = self.parts[part].separator
        decimal = self._decimal if separator else ""
        remedy = f"name the decimal sign with {spelled('decimal')}"
        if self.reading.complete:
            remedy = "write a decimal point, no marks of thousands, and commas between fields"
        return Written(decimal, separator in ("", ","), self.reading.missing, remedy)

    @property
    def text(self) -> Text | None:
        """How the text is written, None if there is no text."""
        for part in self.parts:
            if isinstance(part, formats.TextFile) and part.separator:
                return replace(part.head.text, decimal=self._decimal)
        return self.reading.text if self.reading.complete else None

    def said(self) -> list[str]:
        """Sentences about how the files are written, if that is unusual."""
        messages, text = [], None if self.reading.complete else self.text
        if text and text.encoding != "utf-8":
            messages.append(f"The text is not in UTF-8 and is read as {text.encoding.upper()}.")
        if text and text.decimal == ",":
            messages.append("Numbers have a decimal comma.")
        files = [part for part in self.parts if isinstance(part, formats.TextFile)]
        if lines := [line for file in files for line in file.head.left_out]:
            example = f"such as '{lines[0]:.60}'"
            messages.append(f"Lines above the rows, left out: {len(lines)}, {example}.")
        messages += [
            f"{file.name} has the sheets {quoted(file.sheets)}: '{file.sheet}' is read."
            + ("" if self.reading.complete else f" {spelled('sheet')} names another.")
            for file in files
            if isinstance(file, formats.Workbook)
            and len(file.sheets) > 1
            and not self.reading.sheet
        ]
        for _, comma, unclear in () if self.reading.complete else self._learned.values():
            decimal = self._decimal or ("," if comma else ".")
            if unclear and decimal not in unclear:
                number = re.sub("[.,]", "", unclear)
                messages.append(f"Marks of thousands are left out: '{unclear}' is {number}.")
                break
        return messages

    @cached_property
    def _learned(self) -> dict[str, Evidence]:
        """What the first rows show about how numbers are written, by column.

        If those of a file do not show the decimal sign, the next files may.
        """
        learned: dict[str, Evidence] = {}
        for number, part in enumerate(self.parts[:FILES]):
            pointed = part.separator in ("", ",")
            how = Written(self._told_decimal, pointed, missing=self.reading.missing)
            sample = self._first_rows(number) if number else self.sample
            for name in sample.column_names:
                cells = sample[name].combine_chunks()
                if is_text(cells.type):
                    evidence = learn(cells, how)
                    learned[name] = evidence if any(evidence) else learned.get(name, evidence)
            if any(point or comma for point, comma, _ in learned.values()):
                break
        return learned

    @cached_property
    def _decimal(self) -> str:
        """The decimal sign of the texts, "" if their numbers show none or both."""
        points = any(point for point, _, _ in self._learned.values())
        commas = any(comma for _, comma, _ in self._learned.values())
        if self._told_decimal and not (self.reading.complete and (points or commas)):
            return self._told_decimal
        return "" if points == commas else "." if points else ","

    @property
    def _told_decimal(self) -> str:
        """The decimal sign that the user named, or that of the training file for its separator."""
        text, separator = self.reading.text, max(part.separator for part in self.parts)
        return (
            text.decimal
            if text and (not self.reading.complete or text.separator == separator)
            else ""
        )


def open_table(path: str, reading: Reading = NOTHING_SAID) -> RawTable:
    """Open the table in a file, in the files of a folder, or in the files that match a pattern.

    Raises UnavailableError if there is no file.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        files = _in_folder(place)
        if not files:
            raise UnavailableError(
                f"the folder {place} holds no data file; expected {', '.join(SUFFIXES)}. The "
                f"files of its folders are read by a pattern, such as '{place}/*/*.parquet'."
            )
    elif place.is_file():
        files = [place]
    else:
        names = sorted(glob.glob(str(place)), key=_natural)
        files = [Path(name) for name in names if Path(name).is_file()]
        if not files:
            what = "matches no file" if glob.has_magic(str(place)) else "does not exist"
            raise UnavailableError(f"the data file {place} {what}.")
    return RawTable(str(place), [formats.open_format(file, reading) for file in files], reading)


def _in_folder(folder: Path) -> list[Path]:
    """The data files of a folder: tables or, if there are none, files that may be tables."""
    inside = sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    seen = [path for path in inside if path.is_file() and not path.name.startswith((".", "_"))]
    tables = [path for path in seen if path.name.lower().endswith(TABLES)]
    others = [path for path in seen if path.name.lower().endswith(DOCUMENTS)]
    return tables or others


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key for names by which 10 comes after 9; no two names have the same."""
    parts = re.split(r"(\d+)", name)
    key = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return [*key, (-1, name)]


def text_table(text: bytes, where: str, reading: Reading) -> RawTable:
    """The table in a text that was sent; nothing that is packed in it is opened."""
    return RawTable(where, (formats.TextFile(where, partial(BytesIO, text), reading),), reading)


def frame_table(
    frame: pd.DataFrame, time: str, where: str, reading: Reading = NOTHING_SAID
) -> RawTable:
    """The table in a frame; an index of stamps or periods replaces a missing column `time`."""
    if time not in frame.columns and isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex):
        frame = frame.rename_axis(time).reset_index()
    columns = [_column(frame.iloc[:, place], reading) for place in range(frame.shape[1])]
    table = pa.table(columns, [*map(str, frame.columns)])
    return RawTable(where, (formats.Frame(where, table),), reading)


def _column(column: "pd.Series[Any]", reading: Reading) -> pa.Array:
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.IntervalDtype):
        column = pd.Series(column.array.left, column.index, name=column.name)
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        local = column.dt.tz_localize(None)
        daily = local.dropna().dt.time.nunique() == 1
        if daily and (reading.timezone == "naive" or (not reading.complete and _shifts(column))):
            return pa.array(local, from_pandas=True)  # days of 23 and 25 hours are one step each
        naive = pa.array(column.dt.tz_convert("UTC").dt.tz_localize(None), from_pandas=True)
        return naive.cast(pa.timestamp("us"), safe=False).cast(pa.timestamp("us", "UTC"))
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError):  # cells of several types: as text, so each can be named
        return pa.array([None if pd.isna(cell) else str(cell) for cell in column], pa.string())


def _shifts(stamps: "pd.Series[Any]") -> bool:
    """Whether the clocks of the zone of `stamps` change within a year of them."""
    year = pd.Timedelta(days=366)
    weeks = pd.date_range(stamps.min() - year, stamps.max() + year, freq="7D")
    return (weeks.tz_localize(None) - weeks.tz_convert("UTC").tz_localize(None)).nunique() > 1
