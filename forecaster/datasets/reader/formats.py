"""The formats of data files: text, Parquet, Excel, a frame; compressed or not.

Each part of a table has the names of its columns and yields its rows in batches. The format of a
file is found from its first bytes or, if they do not show it, from its name.
"""

import csv
import gzip
import io
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from forecaster.base.errors import DataError, StorageError
from forecaster.base.extras import needed
from forecaster.base.names import did_you_mean, quoted
from forecaster.datasets.reader.dialect import Head, other_letter, read_head
from forecaster.datasets.reading import Reading, Text

CONTENTS = "xl/workbook.xml"
"""What a zip archive holds if it is a workbook."""

WORKBOOK = 2**30
"""The most bytes that a workbook may unpack to: more would be a zip bomb."""

SHEETS = 10
"""The most sheets of a workbook that are searched for the first row."""

ROWS = 2**19
"""The rows of a Parquet file that are read together: 4 MB a column; nothing else depends on it."""

BLOCK = 2**24
"""The bytes of a text that are read together; a row may not be longer."""

HEAD = 2**16
"""The bytes from which the form of a text is found; more if they hold under three lines."""


class Format(ABC):
    """A file of a table, or a frame; `name` is its name in messages."""

    name: str

    @property
    def separator(self) -> str:
        """What separates the fields of a text, "" for another format."""
        return ""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The columns."""

    def size(self, columns: Sequence[str]) -> int:
        """About how many bytes the rows of some columns of a file take in memory."""
        return 0

    @abstractmethod
    def batches(self, columns: list[str], words: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of some columns; those in `words` as dictionaries if that saves work."""


def open_format(path: Path, reading: Reading) -> Format:
    """Open the part of a table in a file, packed or not."""
    name, opened = str(path), partial(path.open, "rb")
    if _magic(name, opened).startswith(b"\x1f\x8b") or path.suffix.lower() == ".gz":
        opened = partial(gzip.open, path)
    magic = _magic(name, opened)
    if magic.startswith(b"PAR1") or name.lower().endswith((".parquet", ".pq")):
        return ParquetFile(name)
    if magic.startswith(b"PK\3\4") or name.lower().endswith(".xlsx"):
        _check_archive(name, opened)
        return Workbook(name, opened, reading)
    return TextFile(name, opened, reading, path.stat().st_size)


def _check_archive(name: str, opened: Callable[[], Any]) -> None:
    """Raise DataError for a zip archive that is no workbook."""
    with explained(name), opened() as stream, suppress(zipfile.BadZipFile):
        inside = zipfile.ZipFile(stream).namelist()
        if CONTENTS not in inside:
            raise DataError(f"{name}: a zip archive that holds {quoted(inside)}; unpack it.")


def _magic(name: str, opened: Callable[[], Any]) -> bytes:
    """The first bytes of a file, which identify its format."""
    with explained(name), opened() as stream:
        return bytes(stream.read(8))


class Frame(Format):
    def __init__(self, name: str, table: pa.Table) -> None:
        self.name = name
        self.table = table

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.table.column_names)

    def batches(self, columns: list[str], words: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(columns).to_batches()


class ParquetFile(Format):
    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def names(self) -> tuple[str, ...]:
        with explained(self.name, "Parquet file"):
            return tuple(pq.read_schema(self.name).names)

    def size(self, columns: Sequence[str]) -> int:
        with explained(self.name, "Parquet file"):
            return 8 * len(columns) * int(pq.read_metadata(self.name).num_rows)

    def batches(self, columns: list[str], words: list[str]) -> Iterator[pa.RecordBatch]:
        with (
            explained(self.name, "Parquet file"),
            pq.ParquetFile(self.name, read_dictionary=words) as file,
        ):
            yield from file.iter_batches(ROWS, columns=columns, use_threads=False)


class TextFile(Format):
    """The rows of a text of `length` bytes, packed or not, with fields between separators."""

    def __init__(
        self, name: str, open_: Callable[[], Any], reading: Reading, length: int = 0
    ) -> None:
        self.name = name
        self.open = open_
        self.reading = reading
        self.length = length

    @cached_property
    def head(self) -> Head:
        with explained(self.name), self.open() as stream:
            data = stream.read(HEAD)
            while data.count(b"\n") < 3 and len(data) < BLOCK and (more := stream.read(len(data))):
                data += more
            whole = not stream.read(1)
        return read_head(data, whole, self.name, self.reading)

    @property
    def separator(self) -> str:
        return self.head.text.separator

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (str(self.reading.time), *self._written) if self._dated else self._written

    @cached_property
    def _written(self) -> tuple[str, ...]:
        """The columns that are in the text."""
        names = self.head.names
        if sum(not name.strip() for name in names) > 1:  # separators behind the last name
            names = tuple(n if n.strip() else f"column {i + 1}" for i, n in enumerate(names))
        return names

    @cached_property
    def _dated(self) -> bool:
        """Whether the text has no stamps, and the reading gives them."""
        reading = self.reading
        if reading.time in self._written or not (self.head.bare or not reading.header):
            return False
        return bool(reading.time and reading.first and reading.freq)

    def size(self, columns: Sequence[str]) -> int:
        return 2 * self.length * len(columns) // len(self.names)

    def batches(self, columns: list[str], words: list[str]) -> Iterator[pa.RecordBatch]:
        names = list(self._written)
        inside = [name for name in columns if name in names] or names[:1]
        names_in, before = "card" if self.head.bare else "header", 0
        with (
            explained(self.name, "CSV table", self.head.text.encoding, names_in),
            closing(self.open()) as raw,
        ):
            stream = pa.PythonFile(raw, "r")
            if self.head.text.encoding != "utf-8":
                stream = pa.transcoding_input_stream(stream, self.head.text.encoding, "utf-8")
            stream.read(self.head.start)
            try:
                reader = pa.csv.open_csv(
                    stream,
                    # One thread, because only then errors give the number of a wrong row.
                    pa.csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names),
                    pa.csv.ParseOptions(
                        delimiter=self.head.text.separator,
                        newlines_in_values=self.head.broken,
                        invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
                    ),
                    pa.csv.ConvertOptions(
                        column_types=dict.fromkeys(names, pa.string()), include_columns=inside
                    ),
                )
            except pa.ArrowInvalid as error:
                if "Empty CSV file" in str(error):
                    return
                raise
            with reader:
                for cells in reader:
                    yield self._with_stamps(cells, before) if self._dated else cells
                    before += cells.num_rows

    def _with_stamps(self, cells: pa.RecordBatch, before: int) -> pa.RecordBatch:
        count, reading = before + cells.num_rows, self.reading
        first = pd.Timestamp(str(reading.first))
        times = pd.date_range(first, periods=count, freq=reading.freq, unit="us")
        columns = [pa.array(times[before:]), *cells.columns]
        return pa.RecordBatch.from_arrays(columns, [reading.time, *cells.schema.names])


class Workbook(TextFile):
    """The rows of a sheet of an Excel workbook."""

    separator = Format.separator

    def __init__(self, name: str, opened: Callable[[], Any], reading: Reading) -> None:
        self.packed = opened
        self.sheets: list[str] = []
        self.sheet = ""
        self.complete = reading.complete
        reading = replace(reading, text=Text(separator=","), timezone=None)
        super().__init__(name, lambda: io.BytesIO(self.text), reading)

    @cached_property
    def text(self) -> bytes:
        """The rows as CSV. Raises DataError and, if the extra is missing, UnavailableError."""
        with needed(f"{self.name}: an Excel workbook, unless saved as CSV,"):
            import python_calamine as calamine
        with explained(self.name, "workbook"), self.packed() as stream:
            blocks = iter(partial(stream.read, BLOCK), b"")
            data = b"".join(islice(blocks, WORKBOOK // BLOCK + 1))
            files = zipfile.ZipFile(io.BytesIO(data)).infolist() if len(data) <= WORKBOOK else []
            if max(len(data), sum(file.file_size for file in files)) > WORKBOOK:
                raise DataError(
                    f"{self.name}: unpacks to more than {WORKBOOK >> 20:,} MiB; save it as Parquet."
                )
            try:
                book = calamine.load_workbook(io.BytesIO(data))
                self.sheets = book.sheet_names
                sheet = self.reading.sheet
                if self.complete and len(self.sheets) == 1:  # a later file with the rows alone
                    sheet = self.sheets[0]
                if sheet and sheet not in self.sheets:
                    raise DataError(
                        f"{self.name}: no sheet '{sheet}'.{did_you_mean(sheet, self.sheets)} "
                        f"Its sheets: {quoted(self.sheets)}."
                    )
                pages = map(book.get_sheet_by_name, [sheet] if sheet else self.sheets[:SHEETS])
                page = next((page for page in pages if page.height), None)
                self.sheet, rows = (page.name, page.iter_rows()) if page else ("", ())
            except calamine.CalamineError as error:
                raise DataError(
                    f"{self.name}: not a complete workbook: {error}. A zip file has to be unpacked."
                ) from None
            except BaseException as error:
                if type(error).__name__ != "PanicException":  # of Rust, which is no Exception
                    raise
                raise DataError(f"{self.name}: not a complete workbook") from None
        packed = io.BytesIO()
        with io.TextIOWrapper(packed, "utf-8", newline="", write_through=True) as text:
            lines = ([_cell(cell) for cell in row] for row in rows)
            csv.writer(text, lineterminator="\n").writerows(line for line in lines if any(line))
            return packed.getvalue()


def _cell(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))  # Excel stores no integers
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    if isinstance(cell, str):
        broken = "\n" in cell or "\r" in cell
        return " ".join(filter(None, map(str.strip, cell.splitlines()))) if broken else cell
    return str(cell)


@contextmanager
def explained(
    name: str, what: str = "", encoding: str = "", names: str = "header"
) -> Iterator[None]:
    """Replace errors of Arrow and the system about a file, perhaps in an encoding, by ours."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{name}: not a complete gzip file: {error}") from None
    except zipfile.BadZipFile as error:
        raise DataError(f"{name}: not a complete zip file: {error}") from None
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.strerror is not None:
            raise StorageError(f"{name}: cannot be read: {error.strerror}") from None
        if encoding and (isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)):
            raise DataError(other_letter(name, encoding)) from None
        raise DataError(f"{name}: {row_error(str(error), what, names)}") from None


def row_error(text: str, what: str, names: str) -> str:
    """The message about a wrong row from Arrow's; `names` is the place of the column names."""
    match = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", text, re.DOTALL)
    if match is None:
        return f"not a complete {what}: {text}"
    row, expected, got, cells = match.groups()
    more = ". A field that holds the separator needs quotes." if int(got) > int(expected) else ""
    return (
        f"row {row}: expected {expected} fields as in the {names}, got {got}: "
        f"{cells.strip()[:80]!r}{more}"
    )
