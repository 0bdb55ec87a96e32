"""How the stamps of a table are written, and what they say: microseconds since 1970.

Stamps with a time zone are converted to UTC; stamps without one keep the clock of their source.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forecaster.datasets.reader.cells import is_text, trimmed
from forecaster.datasets.reader.files import Rows, Table
from forecaster.errors import DataError

_YEAR_FIRST = r"^\s*\d{4}[-/](?:0?[1-9]|1[0-2])(?:[-/]\d{1,2}(?:\D.*)?)?$"
_YEAR_LAST = r"^\s*(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(.*)$"
_ZONE = r":\d\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)?)\s*$"
DAYLIGHT_SAVING = (
    " Local time with daylight saving does this; stamps in UTC or with their offset do not."
)
"""What may be said where naive stamps repeat or leave gaps."""


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
            cells = self._year_first(trimmed(cells))
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
                "but those of this data set have none: give the local time of their source, "
                "without a zone."
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


def stamp_share(text: pa.Array) -> float:
    """Which part of some words, none of them null, are written as stamps of one form."""
    patterns = (_YEAR_FIRST, _YEAR_LAST)
    return max(float(pc.mean(pc.match_substring_regex(text, p)).as_py()) for p in patterns)


def is_stamp(text: str) -> bool:
    """Whether a word is written as a stamp is."""
    return any(re.match(pattern, text) for pattern in (_YEAR_FIRST, _YEAR_LAST))


def _matches(text: pa.Array, pattern: str) -> bool:
    found = pc.match_substring_regex(text.drop_null(), pattern)
    return len(found) > 0 and float(pc.mean(found).as_py()) >= 0.5


def parse_times(column: "pd.Series[Any]", where: str, before: int = 0) -> pd.DatetimeIndex:
    """The stamps in microseconds, in UTC where they carry a zone and naive where they do not.

    `before` rows of the file precede those of `column`. Raises DataError naming the first wrong
    one.
    """
    name = column.name
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax()) + before + 1
        raise DataError(
            f"{where}: empty stamps in column '{name}': {int(column.isna().sum())}, "
            f"the first in row {row}."
        )
    if isinstance(column.dtype, pd.DatetimeTZDtype) or column.dtype.kind == "M":
        times = pd.DatetimeIndex(column)
    elif column.dtype.kind in "iufb":
        raise DataError(
            f"{where}, row {before + 1}, column '{name}': expected a stamp such as "
            f"2016-07-01 00:00:00, got the number {column.iloc[0]}."
        )
    else:
        text = column.astype(str)
        zoned = text.str.contains(_ZONE, regex=True).to_numpy(dtype=bool)
        if zoned.any() and not zoned.all():
            row = int((zoned != zoned[0]).argmax())
            raise DataError(
                f"{where}, row {before + row + 1}, column '{name}': '{text.iloc[row]}', but row "
                f"{before + 1} has '{text.iloc[0]}': either all stamps carry a time zone or none "
                "does."
            )
        parsed = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=bool(zoned.all()))
        wrong = (parsed.isna() | ~text.str.match(r"\s*\d")).to_numpy(dtype=bool)
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"{where}, row {before + row + 1}, column '{name}': expected a stamp with the year "
                f"first, such as 2016-07-01 00:00:00, got '{text.iloc[row]}'."
            )
        times = pd.DatetimeIndex(parsed)
    if times.tz is not None:
        times = times.tz_convert("UTC")
    return pd.DatetimeIndex(times.as_unit("us"), name=None)
