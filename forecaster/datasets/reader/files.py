"""Files of rows, read through Arrow some rows at a time: CSV and Parquet, one or many.

A table is read as often as needed and never held as a whole. Rows are counted from 1 in each file,
without the header.
"""

import glob
import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from forecaster.datasets.reader.cells import NUMBER
from forecaster.datasets.reading import NOTHING_SAID, Reading
from forecaster.datasets.series import quoted, separator_hint
from forecaster.errors import DataError, StorageError, UnavailableError

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
"""The files that are taken from a folder."""

ROWS = 2**19
"""Rows of a Parquet file that are looked at together."""

BUFFER = 2**20
"""Bytes of a column of it that are fetched together."""

BLOCK = 2**24
"""Bytes of a CSV file that are looked at together."""

SAMPLE = 10_000
"""Rows from which the kinds of the columns are told."""


class Rows(NamedTuple):
    """Some consecutive rows of a file; `before` of its rows precede them."""

    file: int
    before: int
    cells: pa.RecordBatch


@dataclass(frozen=True)
class Bare:
    """The columns of a text of values alone, and the stamps of its rows: from `first` on."""

    columns: tuple[str, ...]
    time: str
    first: str
    freq: str

    def stamps(self, before: int, count: int) -> pa.Array:
        """The stamps of so many rows after the first ones."""
        times = pd.date_range(self.first, periods=before + count, freq=self.freq, unit="us")
        return pa.array(times[before:])


@dataclass(frozen=True)
class Table:
    """The rows of some files, or of a frame, that have the same columns.

    `where` is what messages call the whole, `names` what they call each part. `bare` says what a
    text without a header and without stamps leaves out.
    """

    where: str
    names: tuple[str, ...]
    parts: tuple[Path | pa.Table, ...]
    bare: Bare | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of all parts, in the order of the first. Raises DataError if they differ."""
        first, *others = [self._columns(part) for part in range(len(self.parts))]
        for name, columns in zip(self.names[1:], others, strict=True):
            if differing := sorted({*first} ^ {*columns}):
                raise DataError(
                    f"{name} has other columns than {self.names[0]}: {quoted(differing)} "
                    f"{'stand' if differing[1:] else 'stands'} in only one of them. Files that are "
                    "read together have the same columns."
                )
        return first

    def _columns(self, part: int) -> tuple[str, ...]:
        names = self._schema(part).names
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise DataError(f"{self.names[part]}: column '{twice[0]}' stands there twice.")
        return tuple(names)

    def _schema(self, part: int) -> pa.Schema:
        source = self.parts[part]
        if isinstance(source, pa.Table):
            return source.schema
        with _explained(source, header=self.bare is None):
            if _is_parquet(source):
                return pa.parquet.read_schema(source)
            with _stream(source) as stream, _csv(stream, bare=self.bare) as reader:
                schema = reader.schema
        if self.bare:
            return schema.insert(0, pa.field(self.bare.time, pa.timestamp("us")))
        return schema

    def rows(self, columns: Sequence[str], words: Sequence[str] = ()) -> Iterator[Rows]:
        """All rows of `columns`, those in `words` as dictionaries where that spares work."""
        for number in range(len(self.parts)):
            before = 0
            wanted = [name for name in columns if self.bare is None or name != self.bare.time]
            for cells in self._batches(number, wanted, list(words)):
                if self.bare and len(wanted) < len(columns):
                    stamps = self.bare.stamps(before, cells.num_rows)
                    cells = cells.add_column(0, self.bare.time, stamps)
                if cells.num_rows:
                    yield Rows(number, before, cells)
                before += cells.num_rows

    def _batches(
        self, number: int, columns: list[str], words: list[str]
    ) -> Iterator[pa.RecordBatch]:
        source = self.parts[number]
        if isinstance(source, pa.Table):
            yield from source.select(columns).to_batches(max_chunksize=ROWS)
            return
        with _explained(source, header=self.bare is None):
            if _is_parquet(source):
                # buffered as it goes, where Arrow would rather hold all of the file
                how = {"pre_buffer": False, "buffer_size": BUFFER, "read_dictionary": words}
                with pa.parquet.ParquetFile(source, **how) as file:
                    yield from file.iter_batches(ROWS, columns=columns, use_threads=False)
            else:
                names = list(self._columns(number))
                with (
                    _stream(source) as stream,
                    _csv(stream, names, columns, self.bare) as reader,
                ):
                    yield from reader

    @cached_property
    def sample(self) -> pa.Table:
        """The first rows. Raises DataError when there are none."""
        for rows in self.rows(self.columns):
            return pa.Table.from_batches([rows.cells.slice(0, SAMPLE)])
        raise DataError(f"{self.where}: no rows below the header; expected one per time step.")

    def row(self, part: int, row: int) -> str:
        """How messages name a row, counted from 0."""
        return f"{self.names[part]}, row {row + 1}"


def _bare(reading: Reading) -> Bare | None:
    if reading.header and reading.time and reading.first and reading.freq:
        return Bare(reading.header, reading.time, reading.first, reading.freq)
    return None


def _values_alone(path: Path) -> bool:
    """Whether the first line of a text holds numbers, where others have names."""
    if _is_parquet(path):
        return False
    with _explained(path, header=False), _stream(path) as stream:
        line = stream.readline().decode("utf-8", "replace")
    return all(re.fullmatch(NUMBER, cell.strip()) for cell in line.split(","))


def open_table(path: str, reading: Reading = NOTHING_SAID) -> Table:
    """The table in a file, in the files of a folder, or in those that a pattern matches.

    `reading` names the columns of a text that has neither header nor stamps. Raises
    UnavailableError when there is none.
    """
    place = Path(path).expanduser()
    if place.is_file():
        table = Table(str(place), (str(place),), (place,))
        bare = _bare(reading)
        if bare and _values_alone(place):
            table = replace(table, bare=bare)
        return table
    if place.is_dir():
        files = [
            file
            for file in sorted(place.iterdir())
            if file.name.lower().endswith(SUFFIXES) and not file.name.startswith(".")
        ]
        if not files:
            raise UnavailableError(
                f"the folder {place} holds no data file; expected {', '.join(SUFFIXES)}."
            )
    else:
        files = [Path(file) for file in sorted(glob.glob(str(place))) if Path(file).is_file()]
        if not files:
            what = "matches no file" if glob.has_magic(str(place)) else "does not exist"
            raise UnavailableError(f"the data file {place} {what}.")
    return Table(str(place), tuple(map(str, files)), tuple(files))


def frame_table(frame: pd.DataFrame, time: str, where: str) -> Table:
    """The table in a frame; a DatetimeIndex takes the place of a column `time` that is missing."""
    if time not in frame.columns and isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.rename_axis(time).reset_index()
    columns = {str(name): frame.iloc[:, place] for place, name in enumerate(frame.columns)}
    if len(columns) < frame.shape[1]:
        twice = next(name for name, times in Counter(frame.columns).items() if times > 1)
        raise DataError(f"{where}: column '{twice}' stands there twice.")
    table = pa.table({name: _column(column) for name, column in columns.items()})
    return Table(where, (where,), (table,))


def _column(column: "pd.Series[Any]") -> pa.Array:
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        naive = pa.array(column.dt.tz_convert("UTC").dt.tz_localize(None), from_pandas=True)
        return naive.cast(pa.timestamp("us"), safe=False).cast(pa.timestamp("us", "UTC"))
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError):  # cells of several types: as text, so each can be named
        return pa.array([None if pd.isna(cell) else str(cell) for cell in column], pa.string())


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in {".parquet", ".pq"}


def _stream(path: Path) -> Any:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _csv(
    stream: Any,
    names: list[str] | None = None,
    wanted: list[str] | None = None,
    bare: Bare | None = None,
) -> pa.csv.CSVStreamingReader:
    """The reader of a CSV text; of the columns `wanted`, as text, if all their `names` are told."""
    if bare and wanted == []:
        wanted = list(bare.columns[:1])  # without any there would be no rows to count
    return pa.csv.open_csv(
        stream,
        # One thread, as only then a wrong row is told by its number.
        read_options=pa.csv.ReadOptions(
            use_threads=False, block_size=BLOCK, column_names=bare and bare.columns
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names or (), pa.string()), include_columns=wanted
        ),
    )


class _explained:  # noqa: N801 - reads as a verb
    """What Arrow and the system say about a file, in our words."""

    def __init__(self, path: Path, header: bool) -> None:
        self.path = path
        self.header = header

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        path = self.path
        if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
            raise DataError(f"{path}: not a whole gzip file: {error}") from None
        if isinstance(error, pa.ArrowException) or (
            isinstance(error, OSError) and error.strerror is None
        ):
            if _is_parquet(path):
                raise DataError(f"{path}: not a whole Parquet file: {error}") from None
            with _stream(path) as stream:
                check_text(stream.read(4 * BLOCK), path)
            raise DataError(f"{path}: {csv_error(str(error), self.header)}") from None
        if isinstance(error, OSError):
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from None


def check_text(data: bytes, path: Path) -> None:
    """Raise DataError unless the bytes of a file are text in UTF-8."""
    try:
        if not data.isascii():  # a quick look, which copies nothing
            data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8. "
            "Expected a CSV file in UTF-8 (or a Parquet file named *.parquet)."
        ) from None
    if not data[:1000].removeprefix(BOM_UTF8).strip() and not data.removeprefix(BOM_UTF8).strip():
        raise DataError(f"{path}: the file is empty; expected a header and rows.")


def csv_error(text: str, header: bool) -> str:
    """What Arrow says of a wrong CSV text, in our words."""
    match = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", text, re.DOTALL)
    if match is None:
        return f"not a CSV table: {text}"
    row, expected, got, cells = match.groups()
    return (
        f"row {int(row) - header}: expected {expected} fields as in the "
        f"{'header' if header else 'card'}, got {got}: "
        f"{cells.strip()[:80]!r}{separator_hint([cells] if expected == '1' else [])}"
    )
