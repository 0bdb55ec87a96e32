"""Files of rows, read through Arrow some rows at a time: CSV and Parquet, one or many.

A table is read as often as needed and never held as a whole. Cells become numbers and stamps here,
and whatever does not is a DataError that names file, row, column and value. Rows are counted from 1
in each file, without the header.
"""

import glob
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from forecaster.datasets.series import check_text, csv_error, parse_times, quoted
from forecaster.errors import DataError, StorageError, UnavailableError

Kind = Literal["number", "flag", "stamp", "text", "empty", "other"]

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

_NO_VALUE = pa.array(["", "NaN", "nan", "null", "NULL", "NA", "N/A", "n/a", "#N/A", "<NA>", "None"])
_NUMBER = r"^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$|^[-+]?(?i:inf|infinity)$"
_FLAG = r"^(?i:true|false)$"
_YEAR_FIRST = r"^\s*\d{4}[-/](?:0?[1-9]|1[0-2])(?:[-/]\d{1,2}(?:\D.*)?)?$"
_YEAR_LAST = r"^\s*(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(.*)$"


class Rows(NamedTuple):
    """Some consecutive rows of a file; `before` of its rows precede them."""

    file: int
    before: int
    cells: pa.RecordBatch


@dataclass(frozen=True)
class Table:
    """The rows of some files, or of a frame, that have the same columns.

    `where` is what messages call the whole, `names` what they call each part.
    """

    where: str
    names: tuple[str, ...]
    parts: tuple[Path | pa.Table, ...]

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
        with _explained(source):
            if _is_parquet(source):
                return pa.parquet.read_schema(source)
            with _stream(source) as stream, _csv(stream) as reader:
                return reader.schema

    def rows(self, columns: Sequence[str], words: Sequence[str] = ()) -> Iterator[Rows]:
        """All rows of `columns`, those in `words` as dictionaries where that spares work."""
        for number in range(len(self.parts)):
            before = 0
            for cells in self._batches(number, list(columns), list(words)):
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
        with _explained(source):
            if _is_parquet(source):
                # buffered as it goes, where Arrow would rather hold all of the file
                how = {"pre_buffer": False, "buffer_size": BUFFER, "read_dictionary": words}
                with pa.parquet.ParquetFile(source, **how) as file:
                    yield from file.iter_batches(ROWS, columns=columns, use_threads=False)
            else:
                names = list(self._columns(number))
                with _stream(source) as stream, _csv(stream, names, columns) as reader:
                    yield from reader

    @cached_property
    def sample(self) -> pa.Table:
        """The first rows. Raises DataError when there are none."""
        for rows in self.rows(self.columns):
            return pa.Table.from_batches([rows.cells.slice(0, SAMPLE)])
        raise DataError(f"{self.where}: no rows below the header; expected one per time step.")

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """What each column holds, by the first rows; `empty` where they have no value in it."""
        return {name: _kind(self.sample[name].combine_chunks()) for name in self.columns}

    def row(self, part: int, row: int) -> str:
        """How messages name a row, counted from 0."""
        return f"{self.names[part]}, row {row + 1}"


def open_table(path: str) -> Table:
    """The table in a file, in the files of a folder, or in those that a pattern matches.

    Raises UnavailableError when there is none.
    """
    place = Path(path).expanduser()
    if place.is_file():
        return Table(str(place), (str(place),), (place,))
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
    stream: Any, names: list[str] | None = None, wanted: list[str] | None = None
) -> pa.csv.CSVStreamingReader:
    """The reader of a CSV text; of the columns `wanted`, as text, if all their `names` are told."""
    return pa.csv.open_csv(
        stream,
        # One thread, as only then a wrong row is told by its number.
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=BLOCK),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names or (), pa.string()), include_columns=wanted
        ),
    )


class _explained:  # noqa: N801 - reads as a verb
    """What Arrow and the system say about a file, in our words."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
            raise DataError(f"{path}: {csv_error(str(error), header=True)}") from None
        if isinstance(error, OSError):
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from None


def _kind(cells: pa.Array) -> Kind:
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    kind = cells.type
    if cells.null_count == len(cells):
        return "empty"
    if pa.types.is_boolean(kind):
        return "flag"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "stamp"
    if not is_text(kind):
        return "other"
    text = _trimmed(cells).drop_null()
    if len(text) == 0:
        return "empty"

    def share(pattern: str) -> float:
        return float(pc.mean(pc.match_substring_regex(text, pattern)).as_py())

    if share(_NUMBER) >= 0.5:
        return "number"
    if share(_FLAG) == 1:
        return "flag"
    if max(share(_YEAR_FIRST), share(_YEAR_LAST)) >= 0.5:
        return "stamp"
    return "text"


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are words."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def holds_text(kind: pa.DataType) -> bool:
    """`is_text`, of the dictionary where cells are places in one."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _trimmed(text: pa.Array) -> pa.Array:
    """Words without the blanks around them; those that stand for no value are null."""
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.is_in(text, _NO_VALUE.cast(text.type)), None, text)


Complain = Callable[[int, str], DataError]
"""The error about a row (counted from 0 in the batch), given what is wrong with it."""


def to_numbers(cells: pa.Array, complain: Complain) -> NDArray[np.float64]:
    """Cells as float64, NaN where there is no value; true and false are 1 and 0."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if is_text(cells.type):
        try:
            numbers = pc.cast(cells, pa.float64())
        except pa.ArrowInvalid:
            numbers = _careful(cells, complain)
    else:
        try:
            numbers = pc.cast(cells, pa.float64(), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            numbers = _careful(pa.array([str(cell) for cell in cells]), complain)
    values: NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise complain(row, f"expected a finite number, got {cells[row]}")
    return values


def _careful(cells: pa.Array, complain: Complain) -> pa.Array:
    text = _trimmed(cells)
    if pc.all(pc.match_substring_regex(text, _FLAG)).as_py():
        return pc.cast(pc.equal(pc.utf8_lower(text), "true"), pa.float64())
    good = pc.fill_null(pc.match_substring_regex(text, _NUMBER), True)
    if not pc.all(good).as_py():
        row = int(pc.index(good, False).as_py())
        raise complain(row, f"expected a number, got {cells[row].as_py()!r:.80}")
    return pc.cast(text, pa.float64())


def to_words(cells: pa.Array) -> tuple[list[str], NDArray[np.int64]]:
    """The different words of some cells, and the place of each cell's among them, -1 for none."""
    if not pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    words = cells.dictionary.cast(pa.string()).to_pylist()
    places = pc.fill_null(cells.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    used = np.zeros(len(words) + 1, dtype=bool)  # the last is for no word
    used[places] = True
    used[[place for place, word in enumerate(words) if not word] + [-1]] = False
    moved = np.where(used, np.cumsum(used) - 1, -1)
    return [word for word, kept in zip(words, used, strict=False) if kept], moved[places]


@dataclass
class Clock:
    """How the stamps of a table are written: year first, or day or month; with a zone or not.

    Stamps with a zone are converted to UTC, those without one keep the clock of their source.
    `zoned` is told by the first stamps that are read; where they have to be `local`, none has a
    zone.
    """

    column: str
    first: Literal["year", "day", "month"] = "year"
    zoned: bool | None = None
    local: bool = False

    def read(self, rows: Rows, table: Table) -> NDArray[np.int64]:
        """The stamps of some rows, in microseconds since 1970."""
        cells = rows.cells[self.column]
        name = table.names[rows.file]
        if cells.null_count or not (
            is_text(cells.type) or pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type)
        ):
            return self._slow(cells, rows, name)
        if is_text(cells.type):
            coded = cells.dictionary_encode()
            parsed = _iso(self._year_first(coded.dictionary))
            if parsed is None:
                return self._slow(cells, rows, name)
            zoned, cells = parsed.type.tz is not None, parsed.take(coded.indices)
        else:
            zoned = pa.types.is_timestamp(cells.type) and cells.type.tz is not None
        self._check_zone(zoned, rows, name)
        stamps = pc.cast(cells, pa.timestamp("us", "UTC" if zoned else None), safe=False)
        return stamps.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]

    def _slow(self, cells: pa.Array, rows: Rows, name: str) -> NDArray[np.int64]:
        if is_text(cells.type):
            cells = self._year_first(_trimmed(cells))
        column = cells.to_pandas().rename(self.column)
        times = parse_times(column, name, rows.before)
        self._check_zone(times.tz is not None, rows, name)
        return times.asi8

    def _year_first(self, cells: pa.Array) -> pa.Array:
        if self.first == "year" or not is_text(cells.type):
            return cells
        order = r"\3-\2-\1\4" if self.first == "day" else r"\3-\1-\2\4"
        return pc.replace_substring_regex(cells, _YEAR_LAST, order)

    def _check_zone(self, zoned: bool, rows: Rows, name: str) -> None:
        if self.local and zoned:
            raise DataError(
                f"{name}, row {rows.before + 1}, column '{self.column}': a stamp with a time zone, "
                "but those that the model was trained on have none: give the local time of their "
                "source, without a zone."
            )
        if self.zoned is None:
            self.zoned = zoned
        elif self.zoned != zoned:
            raise DataError(
                f"{name}, row {rows.before + 1}, column '{self.column}': a stamp "
                f"{'with' if zoned else 'without'} a time zone, but the rows before have stamps "
                f"{'without' if zoned else 'with'}: either all carry one or none does."
            )


def _iso(text: pa.Array) -> pa.Array | None:
    """Stamps in the usual form, or None."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pc.cast(text, kind)
        except pa.ArrowInvalid:
            continue
    return None


def find_clock(table: Table, column: str) -> Clock:
    """How the stamps in `column` are written.

    Days come before months, or months before days, only where the stamps themselves decide it.
    Raises DataError where they do not.
    """
    sample = table.sample[column].combine_chunks()
    if pa.types.is_dictionary(sample.type):
        sample = sample.dictionary_decode()
    if not is_text(sample.type) or not _matches(sample, _YEAR_LAST):
        return Clock(column)
    days = {0: "", 1: ""}  # a stamp of which this number can only be a day
    shown = ""
    for rows in table.rows([column]):
        for stamp in rows.cells[column].unique().drop_null().to_pylist():
            parts = re.match(_YEAR_LAST, stamp)
            if parts is None:
                raise DataError(
                    f"{table.names[rows.file]}, column '{column}': '{stamp}' is written otherwise "
                    f"than '{sample.drop_null()[0]}'; expected one form, best the year first."
                )
            shown = shown or stamp
            for place in days:
                if int(parts[place + 1]) > 12:
                    days[place] = days[place] or stamp
    if days[0] and days[1]:
        raise DataError(
            f"{table.where}, column '{column}': '{days[0]}' has the day first, '{days[1]}' the "
            "month; write all stamps with the year first, such as 2016-07-01."
        )
    if not days[0] and not days[1]:
        raise DataError(
            f"{table.where}, column '{column}': '{shown}' may have the day or the month first, and "
            "no stamp of the file tells which; write them with the year first, such as 2016-07-01."
        )
    return Clock(column, "day" if days[0] else "month")


def is_stamp(text: str) -> bool:
    """Whether a word is written as a stamp is."""
    return any(re.match(pattern, text) for pattern in (_YEAR_FIRST, _YEAR_LAST))


def _matches(text: pa.Array, pattern: str) -> bool:
    found = pc.match_substring_regex(text.drop_null(), pattern)
    return len(found) > 0 and float(pc.mean(found).as_py()) >= 0.5
