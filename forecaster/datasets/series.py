"""A multivariate series of evenly spaced rows, read from a file or a frame and checked.

Nothing is repaired: whatever does not fit is a DataError that names file, row, column and value.
Rows are counted from 1, without the header. Stamps with a time zone are converted to UTC; stamps
without one keep the clock of their source.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.datasets.calendar import fixed_step, normalise_freq
from forecaster.datasets.card import REGULAR, Card, Irregular
from forecaster.datasets.fetch import locate
from forecaster.datasets.items import Items
from forecaster.errors import DataError, StorageError

LARGEST = 2**30
"""Bytes that a compressed file may unpack to."""


@dataclass(frozen=True, eq=False)
class Series:
    """N rows of C columns, one time step apart; those of a panel's items one after another.

    `values` (N, C), NaN where missing, float64 (float32 in a memory map where they are many);
    `times` (G,) the grid of steps, naive, in microseconds, as written in the file even where its
    card knows them to be irregular; `freq` as `normalise_freq` writes it; `source` says where the
    series came from. `items` tells where the series of a panel lie; None: the rows are the grid.
    `known` (N, K) are covariates known ahead, complete, called `known_columns`; `static` the
    attributes of the items, by name (S,), numbers or words.
    """

    values: NDArray[np.floating[Any]]
    times: pd.DatetimeIndex
    columns: tuple[str, ...]
    freq: str
    source: str
    items: Items | None = None
    known: NDArray[np.floating[Any]] | None = None
    known_columns: tuple[str, ...] = ()
    static: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of column names, stamps and values, "sha256:...": the same data, the same digest.

        Independent of the file's format, of the machine and of columns left out.
        """
        sha = hashlib.sha256(json.dumps(self.columns).encode())
        sha.update(self.times.as_unit("us").asi8.astype("<i8").tobytes())
        _update(sha, self.values)
        if self.known is not None:
            sha.update(json.dumps(self.known_columns).encode())
            _update(sha, self.known)
        if self.items is not None:
            sha.update(json.dumps(list(self.items.names)).encode())
            sha.update(self.items.bounds.astype("<i8").tobytes())
            sha.update(self.items.places.astype("<i8").tobytes())
        for name, attribute in self.static.items():
            sha.update(json.dumps([name, attribute.tolist()]).encode())
        return f"sha256:{sha.hexdigest()}"

    def with_known(self, columns: Sequence[str], known: Sequence[str]) -> "Series":
        """`select`, with `known` columns taken as covariates known ahead unless they are already.

        Raises DataError for unknown columns, and for a covariate with a missing value.
        """
        chosen = self.select(columns)
        ahead = [name for name in known if name not in self.known_columns]
        if not ahead:
            return chosen
        values = self.select(ahead).values
        if np.isnan(values).any():
            row, column = np.argwhere(np.isnan(values))[0]
            raise DataError(
                f"{self.source}, row {row + 1}, column '{ahead[column]}': no value, but what is "
                "known ahead must be complete; take it as a past covariate, or leave it out."
            )
        return replace(chosen, known=values, known_columns=tuple(ahead))

    def select(self, columns: Sequence[str]) -> "Series":
        """The series of `columns`, in that order. Raises DataError for unknown ones."""
        missing = [column for column in columns if column not in self.columns]
        if missing:
            raise DataError(missing_columns(self.source, missing, columns, self.columns))
        places = [self.columns.index(column) for column in columns]
        return replace(self, values=self.values[:, places], columns=tuple(columns))


def _update(sha: "hashlib._Hash", rows: NDArray[np.floating[Any]]) -> None:
    """Hash a table of numbers, some rows at a time."""
    for begin in range(0, len(rows), 2**20):
        part = rows[begin : begin + 2**20]
        sha.update(np.ascontiguousarray(part, dtype=f"<f{part.itemsize}").data)


def load(card: Card, path: Path | None = None) -> Series:
    """The data set of `card`, from `path` or from where `fetch.locate` finds it."""
    file = locate(card, path)
    return from_frame(
        read_frame(file, card),
        time=card.time,
        columns=card.columns,
        freq=card.freq,
        where=str(file),
        irregular=card.irregular,
    )


def read_frame(path: Path, card: Card | None = None) -> pd.DataFrame:
    """The rows of a Parquet file (by its suffix) or else of a CSV file in UTF-8, unchecked.

    BOM, CRLF and gzip (by the suffix .gz) are accepted; a form of `card` that has neither header
    nor stamps gets both. A column of which one cell is no number comes back as text, so that
    `from_frame` can name the cell. Raises DataError for what is not a table or unpacks to more than
    LARGEST bytes, StorageError for a file that cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet

    data = _content(path)
    bare = card.source_of(path).bare if card else None
    if card and bare:
        frame = _read_csv(data, path, bare.columns or card.columns)
        times = pd.date_range(bare.first, periods=len(frame), freq=card.freq, unit="us")
        frame.insert(0, card.time, times)
        return frame
    if path.suffix.lower() not in {".parquet", ".pq"}:
        return _read_csv(data, path)
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a whole Parquet file: {error}") from None
    return table.to_pandas()  # type: ignore[no-any-return]


def _content(path: Path) -> bytes:
    packed = path.suffix.lower() == ".gz"
    try:
        if not packed:
            return path.read_bytes()
        with gzip.open(path) as stream:
            parts = []
            size = 0
            while part := stream.read(2**20):
                parts.append(part)
                size += len(part)
                if size > LARGEST:
                    raise DataError(
                        f"{path}: unpacks to more than {LARGEST >> 20} MiB, which no data set here "
                        "does; unpack it yourself if you trust it."
                    )
            return b"".join(parts)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None


def _read_csv(data: bytes, path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """The rows of a CSV text; its first line is the header unless the `columns` are given."""
    import pyarrow as pa
    import pyarrow.csv

    from forecaster.datasets.reader.files import check_text, csv_error

    check_text(data, path)
    # One thread, as only then a wrong row is told by its number.
    options = pyarrow.csv.ReadOptions(use_threads=False, column_names=columns)
    try:
        table = pyarrow.csv.read_csv(io.BytesIO(data), read_options=options)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: {csv_error(str(error), columns is None)}") from None
    return table.to_pandas()  # type: ignore[no-any-return]


def from_frame(
    frame: pd.DataFrame,
    *,
    time: str,
    columns: Sequence[str],
    freq: str,
    where: str,
    irregular: Irregular = REGULAR,
) -> Series:
    """The series of `columns` in `frame`, whose stamps stand in column `time`.

    A DatetimeIndex takes the place of that column where it is missing; columns may stand in any
    order and others are ignored. `where` opens the error
    messages: a file's path, or words like "the history". Raises DataError for missing columns,
    cells that are no finite number, and stamps that do not advance by exactly `freq`, but for the
    departures counted in `irregular`.
    """
    from forecaster.datasets.reader.clock import parse_times

    freq = normalise_freq(freq)
    if time not in frame.columns and isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.rename_axis(time).reset_index()
    wanted = [time, *columns]
    there = Counter(frame.columns)
    missing = [column for column in wanted if not there[column]]
    if missing:
        raise DataError(missing_columns(where, missing, wanted, list(frame.columns)))
    twice = [column for column in wanted if there[column] > 1]
    if twice:
        raise DataError(f"{where}: column '{twice[0]}' stands there twice.")
    if frame.empty:
        raise DataError(f"{where}: no rows below the header; expected one row per time step.")
    times = parse_times(frame[time], where).tz_localize(None)
    _check_grid(times, freq, where, irregular)
    values = np.empty((len(frame), len(columns)))
    for place, column in enumerate(columns):
        values[:, place] = _numbers(frame[column], times, where)
    return Series(values, times, tuple(columns), freq, where)


def missing_columns(
    where: str, missing: Sequence[str], expected: Sequence[str], got: Sequence[Any]
) -> str:
    """The message about columns that a table does not have."""
    return (
        f"{where}: column{'s' * (len(missing) > 1)} {quoted(missing)} not found. "
        f"Expected {quoted(expected)}; got {quoted(got)}.{separator_hint(got)}"
    )


def separator_hint(got: Sequence[Any]) -> str:
    """Of a header that came as one column: what seems to separate its fields."""
    if len(got) == 1:
        for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if separator in str(got[0]):
                return f" The fields seem to be separated by {name}; expected commas."
    return ""


def quoted(names: Sequence[Any]) -> str:
    """Names in a message, the first twenty of them."""
    shown = ", ".join(f"'{name}'" for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _check_grid(times: pd.DatetimeIndex, freq: str, where: str, irregular: Irregular) -> None:
    """Raise DataError unless each stamp follows the one before by one step, or as `irregular`."""
    from forecaster.datasets.reader.clock import DAYLIGHT_SAVING

    steps = np.diff(times.asi8)
    if (steps < 0).any():
        row = int((steps < 0).argmax()) + 1
        raise DataError(
            f"{where}: stamps out of order: {int((steps < 0).sum())}, the first in row {row + 1}: "
            f"{times[row]} after {times[row - 1]}. Sort the rows by time."
        )
    step = fixed_step(freq)
    if step is not None and irregular != REGULAR:
        counts, off = np.divmod(steps, step // pd.Timedelta(1, "us"))
        missing = int(np.maximum(counts - 1, 0).sum())
        if (
            irregular == Irregular(repeated=int((counts == 0).sum()), missing=missing)
            and not off.any()
        ):
            return
    if (steps == 0).any():
        row = int((steps == 0).argmax()) + 1
        raise DataError(
            f"{where}: repeated stamps: {int((steps == 0).sum())}, the first in row {row + 1}: "
            f"{times[row]}.{DAYLIGHT_SAVING}"
        )
    if step is None:
        grid = pd.date_range(times[0], times[-1], freq=freq, unit="us")
        if times.equals(grid):
            return
        off = ~times.isin(grid)
        gaps = grid.difference(times)
    else:
        wanted = step // pd.Timedelta(1, "us")
        if (steps == wanted).all():
            return
        if len(steps) > 1 and (steps == steps[0]).all():
            each = pd.Timedelta(int(steps[0]), "us")
            raise DataError(f"{where}: a step of {freq} is wanted, but every step is {each}.")
        off = np.r_[False, steps % wanted != 0]
        gaps = times[:-1][steps > wanted] + step
    if off.any():
        row = int(off.argmax())
        came = f", {times[row] - times[row - 1]} after the one before" if row else ""
        raise DataError(
            f"{where}: stamps that do not fit a step of {freq}: {int(off.sum())}, the first in row "
            f"{row + 1}: {times[row]:%a %Y-%m-%d %H:%M:%S}{came}. Resample the series, or name "
            "its step."
        )
    missing = len(gaps) if step is None else int((steps // wanted - 1).sum())
    raise DataError(
        f"{where}: missing stamps: {missing} between {times[0]} and {times[-1]} at a step of "
        f"{freq}, the first is {gaps[0]}. Fill the gaps.{DAYLIGHT_SAVING}"
    )


def _numbers(column: "pd.Series[Any]", times: pd.DatetimeIndex, where: str) -> NDArray[np.float64]:
    """The cells as finite float64."""

    def complain(row: int, what: str) -> DataError:
        return DataError(f"{where}, row {row + 1} ({times[row]}), column '{column.name}': {what}")

    empty = column.isna().to_numpy(dtype=bool)
    if empty.any():
        raise complain(
            int(empty.argmax()), f"no value ({int(empty.sum())} of {len(column)} cells are empty)"
        )
    if column.dtype.kind in "iuf":
        values = column.to_numpy(dtype=np.float64)
    else:
        values = np.empty(len(column))
        for row, cell in enumerate(column):
            try:
                if isinstance(cell, bool) or "_" in str(cell):  # Python reads 1_000, CSV has it not
                    raise ValueError
                values[row] = float(cell)
            except (TypeError, ValueError):
                raise complain(row, f"expected a number, got {str(cell)!r:.80}") from None
    infinite = ~np.isfinite(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise complain(row, f"expected a finite number, got {column.iloc[row]}")
    return values
