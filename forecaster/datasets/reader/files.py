"""Tables of rows in files, one or many, read some rows at a time.

A table is read as often as needed and never held as a whole. Rows are counted from 1 in each file,
below the header.
"""

import glob
import gzip
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa

from forecaster.datasets.reader.cells import Learned, Written, is_text, learn, to_numbers
from forecaster.datasets.reader.dialect import SEPARATORS
from forecaster.datasets.reader.formats import (
    Format,
    Frame,
    Source,
    TextFile,
    Workbook,
    check_size,
    explained,
    open_format,
)
from forecaster.datasets.reading import NOTHING_SAID, Reading, Text
from forecaster.datasets.series import quoted
from forecaster.errors import DataError, UnavailableError
from forecaster.resources import DOCUMENTS, SUFFIXES, TABLES

SAMPLE = 10_000
"""Rows from which the kinds of the columns are told."""

FILES = 20
"""Files of which the first rows may tell how numbers are written."""

DATES = ("year", "quarter", "month", "week", "day", "date", "hour", "part")
"""Keys of folders that part the rows of a series, and name none."""

_NULL = "__HIVE_DEFAULT_PARTITION__"


class Rows(NamedTuple):
    """Some consecutive rows of a file; `before` of its rows precede them."""

    file: int
    before: int
    cells: pa.RecordBatch


@dataclass(frozen=True)
class Bare:
    """The stamps of a text that has none: from `first` on."""

    time: str
    first: str
    freq: str

    def stamps(self, before: int, count: int) -> pa.Array:
        """Those of so many rows after the first ones."""
        times = pd.date_range(self.first, periods=before + count, freq=self.freq, unit="us")
        return pa.array(times[before:])


@dataclass(frozen=True)
class Table:
    """The rows of some files, or of a frame, that have the same columns.

    `where` is what messages call the whole. What the `reading` says of texts stands; that of a
    model decides only what the files themselves leave open.
    """

    where: str
    parts: tuple[Format, ...]
    reading: Reading = NOTHING_SAID

    @property
    def told(self) -> bool:
        """Whether the reading is that of a model, or of a card: complete."""
        return self.reading.timezone is not None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What messages call each part."""
        return tuple(part.name for part in self.parts)

    @property
    def in_files(self) -> bool:
        """Whether the parts are files."""
        return not isinstance(self.parts[0], Frame)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of all parts, in the order of the first. Raises DataError if they differ."""
        if self.joined:
            return tuple(dict.fromkeys(name for part in self._all for name in part))
        first, *others = self._all
        for name, columns in zip(self.names[1:], others, strict=True):
            if differing := sorted({*first} ^ {*columns}):
                raise DataError(
                    f"{name} has other columns than {self.names[0]}: {quoted(differing)} "
                    f"{'stand' if differing[1:] else 'stands'} in only one of them. Files that are "
                    "read together have the same columns, or the same time column and one more "
                    "each."
                )
        return first

    @cached_property
    def joined(self) -> bool:
        """Whether the parts share their time column, and bring one column of values each."""
        shared = {*self._all[0]}.intersection(*self._all)
        several = len(self.parts) > 1 and all(len(columns) == 2 for columns in self._all)
        apart = len({*self.alone}) == len(self.parts)
        time = self.reading.time in (None, *shared) and not self.reading.id
        return several and len(shared) == 1 and apart and time

    @property
    def alone(self) -> tuple[str, ...]:
        """The column that each part brings, where they are joined."""
        shared = {*self._all[0]}.intersection(*self._all)
        return tuple(name for columns in self._all for name in columns if name not in shared)

    def having(self, reading: Reading) -> "Table":
        """The table without the parts of which nothing is read, where parts are joined."""
        if not self.joined:
            return self
        read = {*reading.targets, *reading.past_covariates, *reading.future_covariates}
        pairs = zip(self.parts, self.alone, strict=True)
        return replace(self, parts=tuple(part for part, name in pairs if name in read))

    @cached_property
    def _all(self) -> list[tuple[str, ...]]:
        """The columns of each part, its stamps where they are told, and its keys."""
        bare = [self._bare(number) for number in range(len(self.parts))]
        return [
            tuple(dict.fromkeys([*([told.time] if told else []), *own, *part.keys]))
            for told, own, part in zip(bare, self._own, self.parts, strict=True)
        ]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns that folders are called by."""
        return tuple(self.parts[0].keys)

    @property
    def groups(self) -> tuple[str, ...]:
        """The keys of folders that tell series apart."""
        several = {
            name for name in self.keys if len({part.keys.get(name) for part in self.parts}) > 1
        }
        return tuple(name for name in self.keys if name in several and name.lower() not in DATES)

    @cached_property
    def _own(self) -> list[dict[str, str]]:
        """The columns in each part: what they are called, and how the part itself writes it."""
        known: dict[tuple[str, ...], dict[str, str]] = {}
        for part in self.parts:
            if part.names not in known:
                known[part.names] = self._called(part.names)
        return [known[part.names] for part in self.parts]

    def _called(self, names: Sequence[str]) -> dict[str, str]:
        """Names without the blanks around them, unless asked for with them or needed to differ."""
        said = self.reading
        times = said.time_columns or ([] if said.time is None else [said.time])
        asked = {
            *times, *said.id, *said.targets, *said.past_covariates, *said.future_covariates,
            *said.static,
        }  # fmt: skip
        without = {name.strip(): name for name in asked}
        twice = Counter(name.strip() for name in names)
        return {
            name if name in asked or twice[bare] > 1 else without.get(bare, bare): name
            for name, bare in ((name, name.strip()) for name in names)
        }

    def rows(self, columns: Sequence[str], words: Sequence[str] = ()) -> Iterator[Rows]:
        """All rows of `columns`, those in `words` as dictionaries where that spares work."""
        for number in range(len(self.parts)):
            yield from self._rows(number, columns, words)

    def _rows(
        self, number: int, columns: Sequence[str], words: Sequence[str] = ()
    ) -> Iterator[Rows]:
        part, own, bare = self.parts[number], self._own[number], self._bare(number)
        inside = {name: own[name] for name in columns if name in own}
        wanted = [*inside.values()] or [*own.values()][:1]  # without any there are no rows to count
        before = 0
        for cells in part.batches(wanted, [own[name] for name in words if name in own]):
            count = cells.num_rows
            if [*cells.schema.names] != [*columns]:
                found = [
                    cells[own[name]]
                    if name in own
                    else bare.stamps(before, count)
                    if bare and name == bare.time
                    else pa.repeat(pa.scalar(part.keys.get(name), pa.string()), count)
                    for name in columns
                ]
                cells = pa.RecordBatch.from_arrays(found, names=list(columns))
            if count:
                yield Rows(number, before, cells)
            before += count

    @cached_property
    def sample(self) -> pa.Table:
        """The first rows. Raises DataError when there are none."""
        if self.joined:
            parts = [self._first_rows(number) for number in range(len(self.parts))]
            rows = min(part.num_rows for part in parts)
            columns = {name: part[name][:rows] for part in parts for name in part.column_names}
            return pa.table({name: columns[name] for name in self.columns})
        for number in range(len(self.parts)):
            if (sample := self._first_rows(number)).num_rows:
                return sample
        raise DataError(f"{self.where}: no rows below the header; expected one per time step.")

    def _first_rows(self, number: int) -> pa.Table:
        for rows in self._rows(number, self._all[number]):
            return pa.Table.from_batches([rows.cells.slice(0, SAMPLE)])
        return pa.table({name: pa.array([], pa.string()) for name in self._all[number]})

    def _bare(self, number: int) -> Bare | None:
        """The stamps of a part that has none, of which the reading knows."""
        part, said = self.parts[number], self.reading
        if not isinstance(part, TextFile) or said.time in part.names:
            return None
        if (part.head.bare or not said.header) and said.time and said.first and said.freq:
            return Bare(said.time, said.first, said.freq)
        return None

    def row(self, part: int, row: int) -> str:
        """How messages name a row, counted from 0."""
        return f"{self.names[part]}, row {row + 1}"

    # How it is written.

    def how(self, column: str, part: int = 0) -> Written:
        """How a part writes the numbers of a column."""
        separator, sign = self._separator(part), self._signs.get(column, "")
        decimal = self._decimals.get(separator, "")
        how = Written(decimal, separator in ("", ","), sign, self.reading.missing)
        if self.told:
            return replace(
                how,
                remedy="write a decimal point, no marks of thousands, and commas between fields",
            )
        return how

    @property
    def text(self) -> Text | None:
        """How the text is written, None where none was read; whole when its rows were read."""
        part = self._first_text
        if part is None:
            return self.reading.text if self.told else None
        return replace(
            part.head.text,
            encoding=part.encoding,
            decimal=self._decimals.get(part.head.text.separator, ""),
            thousands=self._marked[1].lstrip("0123456789")[:1],
            footer=len(part.footer),
            signs=self._signs,
        )

    def said(self) -> list[str]:
        """Sentences about how the files are written, where that is not as usual."""
        text, before = self.text, self.reading.text
        said = []
        if self._first_text is not None and text is not None:
            said = _otherwise(text, before) if self.told and before else _forms(text)
        if self.joined:
            said.append(f"{len(self.parts)} files have their times in common: they are joined.")
        files = [part for part in self.parts if isinstance(part, TextFile)]
        for where, lines in (
            ("above", [line for file in files for line in file.head.left_out]),
            ("below", [line for file in files for line in file.footer]),
        ):
            if lines:
                said.append(
                    f"Lines {where} the rows, left out: {len(lines)}, such as '{lines[0]:.60}'."
                )
        for file in files:
            if isinstance(file, Workbook) and len(file.sheets) > 1:
                said.append(f"{file.name} has the sheets {quoted(file.sheets)}: the first is read.")
        return said if self.told else said + self._cells()

    def _cells(self) -> list[str]:
        """Sentences about cells of which more is read than digits."""
        said = []
        decimal, marked = self._marked
        if marked:
            number = to_numbers(
                pa.array([marked]), lambda _, what: DataError(what), Written(decimal)
            )
            said.append(f"Marks of thousands are left out: '{marked}' is {number[0]:.12g}.")
        percent = [name for name, sign in self._signs.items() if sign == "%"]
        if percent:
            said.append(f"Percent signs are left out, so that 5 % is 5: {quoted(percent)}.")
        for currency in {sign: None for sign in self._signs.values() if sign != "%"}:
            names = [name for name, sign in self._signs.items() if sign == currency]
            said.append(f"The sign {currency} is left out: {quoted(names)}.")
        marks = dict.fromkeys(mark for _, _, found in self._found for mark in found.marks)
        if marks:
            said.append(f"Cells that count as missing: {quoted([*marks])}.")
        return said

    @cached_property
    def _first_text(self) -> TextFile | None:
        for part in self.parts:
            if isinstance(part, TextFile) and not isinstance(part, Workbook):
                return part
        return None

    def _separator(self, number: int) -> str:
        """What separates the fields of a part, "" where it is no text.

        Files of one separator have one decimal sign. Where it is a comma or none, "1.234" has
        decimals if no other number tells.
        """
        part = self.parts[number]
        if isinstance(part, Workbook) or not isinstance(part, TextFile):
            return ""
        return part.head.text.separator

    @cached_property
    def _learned(self) -> dict[str, dict[str, Learned]]:
        """What the first rows tell of how numbers are written, by separator and column."""
        looked: Counter[str] = Counter()
        learned: dict[str, dict[str, Learned]] = {}
        for number in range(len(self.parts)):
            separator = self._separator(number)
            known = learned.setdefault(separator, {})
            clear = any(found.evidence.point or found.evidence.comma for found in known.values())
            if not self.joined and (clear or looked[separator] == FILES):
                continue
            looked[separator] += 1
            told, pointed = self._told_decimal(separator), separator in ("", ",")
            how = Written(told, pointed, missing=self.reading.missing)
            sample = self._first_rows(number) if number or self.joined else self.sample
            for name in sample.column_names:
                cells = sample[name].combine_chunks()
                if is_text(cells.type) and name not in self.keys:
                    found = learn(cells, how)
                    known[name] = found if any(found.evidence) else known.get(name, found)
        return learned

    @cached_property
    def _found(self) -> list[tuple[str, str, Learned]]:
        """What is learned of the columns, with separator and name."""
        return [(sep, *one) for sep, known in self._learned.items() for one in known.items()]

    @property
    def _marked(self) -> tuple[str, str]:
        """The decimal sign and the number that is first to have marks of thousands, or "" twice."""
        for separator, _, found in self._found:
            decimal = self._decimals[separator] or ("," if found.evidence.comma else ".")
            if example := found.marked[decimal == ","]:
                return decimal, example
        return "", ""

    @cached_property
    def _decimals(self) -> dict[str, str]:
        """The decimal sign by separator, "" where the numbers do not tell it or tell both."""
        signs = {}
        for separator, known in self._learned.items():
            points = any(found.evidence.point for found in known.values())
            commas = any(found.evidence.comma for found in known.values())
            told = self._told_decimal(separator)
            if told and (not self.told or not (points or commas)):
                signs[separator] = told
            else:
                signs[separator] = "" if points == commas else "." if points else ","
        return signs

    def _told_decimal(self, separator: str) -> str:
        """The decimal sign of the training file for files of its separator; or the one named."""
        text = self.reading.text
        return text.decimal if text and (not self.told or text.separator == separator) else ""

    @cached_property
    def _signs(self) -> dict[str, str]:
        """The signs of currencies and percent, by column."""
        if self.told:
            return self.reading.text.signs if self.reading.text else {}
        return {name: found.sign for _, name, found in self._found if found.sign}


def _forms(text: Text) -> list[str]:
    said = []
    if text.encoding != "utf-8":
        said.append(f"The text is not in UTF-8 and is read as {_name(text.encoding)}.")
    if text.separator != ",":
        said.append(f"Fields are separated by {SEPARATORS.get(text.separator, text.separator)}.")
    if text.decimal == ",":
        said.append("Numbers have a decimal comma.")
    return said


def _otherwise(text: Text, before: Text) -> list[str]:
    said = []
    if before.separator not in ("", text.separator):
        names = [SEPARATORS.get(one, one) for one in (text.separator, before.separator)]
        said.append(f"Fields are separated by {names[0]}, in the training file by {names[1]}.")
    if before.decimal and text.decimal not in ("", before.decimal):
        said.append(f"Decimals have '{text.decimal}', in the training file '{before.decimal}'.")
    return said


def _name(encoding: str) -> str:
    return {"cp1252": "Windows-1252", "latin-1": "Latin-1"}.get(encoding, "UTF-16")


def open_table(path: str, reading: Reading = NOTHING_SAID) -> Table:
    """The table in a file, in the files of a folder, or in those that a pattern matches.

    A zip file is like a folder. Raises UnavailableError when there is no file.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        sources = _in_folder(place)
        if not sources:
            raise UnavailableError(
                f"the folder {place} holds no data file; expected {', '.join(SUFFIXES)}, or "
                "folders such as year=2024 with such files."
            )
    elif place.is_file():
        sources = _in_file(place)
    else:
        files = [Path(file) for file in sorted(glob.glob(str(place))) if Path(file).is_file()]
        if not files:
            what = "matches no file" if glob.has_magic(str(place)) else "does not exist"
            raise UnavailableError(f"the data file {place} {what}.")
        sources = [source for file in files for source in _in_file(file)]
    parts: list[Format] = []
    like = None
    for source in sources:
        parts.append(open_format(source, reading, like))
        if like is None and isinstance(parts[-1], TextFile):
            like = parts[-1]
    return Table(str(place), tuple(parts), reading)


def _in_folder(folder: Path, keys: Mapping[str, str | None] = {}) -> list[Source]:
    """The data files of a folder, or of the folders in it that are called by keys (year=2024)."""
    inside = sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    names = data_files([path.name for path in inside if path.is_file()])
    if names:
        return [source for name in sorted(names) for source in _in_file(folder / name, keys)]
    return [
        source
        for path in inside
        if path.is_dir() and "=" in path.name
        for source in _in_folder(path, {**keys, **_keys(path.name)})
    ]


def data_files(names: Sequence[str]) -> list[str]:
    """The names of tables; of files that may be tables where there is none."""
    seen = [name for name in names if not PurePosixPath(name).name.startswith((".", "_"))]
    return [name for name in seen if name.lower().endswith(TABLES)] or [
        name for name in seen if name.lower().endswith(DOCUMENTS)
    ]


def _keys(*folders: str) -> dict[str, str | None]:
    """The keys that folders are called by."""
    parts = [folder.partition("=") for folder in folders if "=" in folder]
    return {key: None if value == _NULL else unquote(value) for key, _, value in parts}


def _natural(name: str) -> list[tuple[int, str]]:
    """A name by which 10 comes after 9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def _in_file(path: Path, keys: Mapping[str, str | None] = {}) -> list[Source]:
    """A file, or the data files in one that is a zip file."""
    source = Source(str(path), partial(path.open, "rb"), path, keys)
    if source.magic.startswith(b"\x1f\x8b") or path.suffix.lower() == ".gz":
        return [Source(str(path), partial(gzip.open, path), None, keys)]
    if not source.magic.startswith(b"PK\3\4") and path.suffix.lower() != ".zip":
        return [source]
    with explained(str(path)), zipfile.ZipFile(path) as archive:
        members = {file.filename: file for file in archive.infolist() if not file.is_dir()}
    if "[Content_Types].xml" in members:  # a workbook
        return [source]
    names = data_files([name for name in members if "__MACOSX" not in name])
    if not names:
        raise UnavailableError(f"{path} holds no data file; expected {', '.join(SUFFIXES)}.")
    if any(members[name].flag_bits & 1 for name in names):
        raise DataError(f"{path}: it has a password; unpack it yourself.")
    check_size(sum(members[name].file_size for name in names), str(path))
    return [
        Source(
            f"{path}/{name}",
            partial(_member, path, name),
            keys={**keys, **_keys(*PurePosixPath(name).parts[:-1])},
        )
        for name in sorted(names, key=_natural)
    ]


def _member(path: Path, name: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        file = archive.open(name)
    return gzip.open(file) if name.lower().endswith(".gz") else file


def frame_table(
    frame: pd.DataFrame, time: str, where: str, reading: Reading = NOTHING_SAID
) -> Table:
    """The table in a frame; a DatetimeIndex takes the place of a column `time` that is missing."""
    if time not in frame.columns and isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.rename_axis(time).reset_index()
    columns = {str(name): frame.iloc[:, place] for place, name in enumerate(frame.columns)}
    if len(columns) < frame.shape[1]:
        twice = next(name for name, times in Counter(frame.columns).items() if times > 1)
        raise DataError(f"{where}: column '{twice}' stands there twice.")
    table = pa.table({name: _column(column) for name, column in columns.items()})
    return Table(where, (Frame(where, table),), reading)


def _column(column: "pd.Series[Any]") -> pa.Array:
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        naive = pa.array(column.dt.tz_convert("UTC").dt.tz_localize(None), from_pandas=True)
        return naive.cast(pa.timestamp("us"), safe=False).cast(pa.timestamp("us", "UTC"))
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError):  # cells of several types: as text, so each can be named
        return pa.array([None if pd.isna(cell) else str(cell) for cell in column], pa.string())
