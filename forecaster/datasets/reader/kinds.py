"""The kinds of the columns of a table, found from its first rows."""

from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from forecaster.datasets.reader.cells import FLAG, LIKE_NUMBER, is_text, trimmed
from forecaster.datasets.reader.clock import stamp_share
from forecaster.datasets.reader.files import RawTable
from forecaster.datasets.reader.stamps import are_clocks

Kind: TypeAlias = Literal["number", "flag", "stamp", "clock", "text", "empty", "other"]


def kinds(table: RawTable) -> dict[str, Kind]:
    """The kind of each column, from the first rows; `empty` if they have no value in it."""
    return {
        name: _kind(table.sample[name].combine_chunks(), table.reading.missing)
        for name in table.columns
    }


def _kind(cells: pa.Array, missing: tuple[str, ...]) -> Kind:
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
    if pa.types.is_time(kind):
        return "clock"
    if not is_text(kind):
        return "other"
    text = trimmed(cells, missing).drop_null()
    if len(text) == 0:
        return "empty"
    try:
        pc.cast(text, pa.float64())
        return "number"
    except pa.ArrowInvalid:
        pass

    def share(pattern: str) -> float:
        return float(pc.mean(pc.match_substring_regex(text, pattern)).as_py())

    if share(f"^{LIKE_NUMBER}$") >= 0.5:
        return "number"
    if share(FLAG) == 1:
        return "flag"
    if stamp_share(text) >= 0.5:
        return "stamp"
    if are_clocks(text).mean() >= 0.5:
        return "clock"
    return "text"
