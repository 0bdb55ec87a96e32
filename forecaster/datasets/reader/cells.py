"""Cells of a table as numbers and words.

Whatever is neither is a DataError that names file, row, column and value.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forecaster.errors import DataError

_NO_VALUE = pa.array(["", "NaN", "nan", "null", "NULL", "NA", "N/A", "n/a", "#N/A", "<NA>", "None"])
NUMBER = r"^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$|^[-+]?(?i:inf|infinity)$"
FLAG = r"^(?i:true|false|yes|no)$"


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are words."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def holds_text(kind: pa.DataType) -> bool:
    """`is_text`, of the dictionary where cells are places in one."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def trimmed(text: pa.Array) -> pa.Array:
    """Words without the blanks around them; those that stand for no value are null."""
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.is_in(text, _NO_VALUE.cast(text.type)), None, text)


Complain: TypeAlias = Callable[[int, str], DataError]
"""The error about a row (counted from 0 in the batch), given what is wrong with it."""


def to_numbers(cells: pa.Array, complain: Complain) -> NDArray[np.float64]:
    """Cells as float64, NaN where there is no value; true and yes are 1, false and no are 0."""
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
    text = trimmed(cells)
    if pc.all(pc.match_substring_regex(text, FLAG)).as_py():
        yes = pa.array(["true", "yes"], text.type)
        flags = pc.cast(pc.is_in(pc.utf8_lower(text), yes), pa.float64())
        return pc.if_else(pc.is_null(text), None, flags)
    good = pc.fill_null(pc.match_substring_regex(text, NUMBER), True)
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
