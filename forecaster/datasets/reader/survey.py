"""What a table says of each series beside its values: ids, stamps, static attributes."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.spelling import spelled
from forecaster.datasets.items import MARK
from forecaster.datasets.reader.cells import categories, to_numbers, to_words
from forecaster.datasets.reader.files import RawTable, Rows
from forecaster.datasets.series import quoted

Codes: TypeAlias = NDArray[np.int64]


def find_ids(
    columns: Sequence[str], rows: Sequence[Rows], table: RawTable
) -> tuple[list[Codes], list[str]]:
    """The numbers of the series of some rows, and the ids in the order of their first rows.

    Without `columns` the series are the files that have rows, and their names are the ids.
    """
    if not columns:
        files = sorted({part.file for part in rows})
        codes = [np.full(part.cells.num_rows, files.index(part.file)) for part in rows]
        return codes, [table.names[file] for file in files]
    names: dict[str, int] = {}
    codes = []
    for part in rows:
        words, places = _words(part, columns[0], table)
        for number, column in enumerate(columns[1:], 1):
            others, there = _words(part, column, table)
            pairs, places = np.unique(places * len(others) + there, return_inverse=True)
            words = [
                _joined(words[one], others[other], columns, number, table.names[part.file])
                for one, other in zip(*np.divmod(pairs, len(others)), strict=True)
            ]
        codes.append(np.array([names.setdefault(word, len(names)) for word in words])[places])
    return codes, list(names)


def _words(rows: Rows, column: str, table: RawTable) -> tuple[list[str], Codes]:
    words, places = to_words(rows.cells[column])
    if (places < 0).any():
        where = table.row(rows, int((places < 0).argmax()))
        raise DataError(f"{where}, column '{column}': no value")
    return words, places


def _joined(before: str, word: str, columns: Sequence[str], number: int, where: str) -> str:
    joined = f"{before}{MARK}{word}"
    if joined.count(MARK) != number or joined.split(MARK)[-1] != word:
        raise DataError(
            f"{where}, columns {quoted(columns)}: '{joined:.80}' cannot be split again, because "
            f"'{MARK}' joins the parts of a series id; write the values without it."
        )
    return joined


def survey(
    codes: Sequence[Codes], stamps: Sequence[NDArray[np.int64]], series: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last stamps of the series, and the rows out of order.

    These have an earlier stamp than the row before them in their series.
    """
    none, far = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    first, last, latest = np.full(series, far), np.full(series, none), np.full(series, none)
    unsorted, begin = [], 0
    for numbers, times in zip(codes, stamps, strict=True):
        before = pd.Series(times).groupby(numbers).shift(fill_value=none).to_numpy(copy=True)
        starts = before == none
        before[starts] = latest[numbers[starts]]
        latest[numbers] = times
        unsorted.append(begin + np.flatnonzero(times < before))
        begin += len(times)
        np.minimum.at(first, numbers, times)
        np.maximum.at(last, numbers, times)
    return first, last, np.concatenate(unsorted)


def attribute(
    column: str, rows: Sequence[Rows], codes: Sequence[Codes], item_of: Codes, table: RawTable
) -> NDArray[Any]:
    """A static attribute of the items, given by any row of each: numbers or, if not all are, words.

    `codes` are the series of the rows, `item_of` the items of the series. Raises DataError for rows
    without a value, and if it changes within a series.
    """
    known: dict[str, int] = {}
    there = np.full(item_of.max() + 1, -1)
    for part, series in zip(rows, codes, strict=True):
        words, places = categories(part.cells[column], table.reading.missing)
        met = np.array([*(known.setdefault(word, len(known)) for word in words), -1])[places]
        if (met < 0).any():
            where = table.row(part, int((met < 0).argmax()))
            raise DataError(f"{where}, column '{column}': no value of a static attribute")
        item = item_of[series]
        unknown = there[item] < 0
        there[item[unknown][::-1]] = met[unknown][::-1]  # the first row of an item counts
        changed = met != there[item]
        if changed.any():
            row = int(changed.argmax())
            raise DataError(
                f"{table.row(part, row)}, column '{column}': {part.cells[column][row]}, but "
                "earlier rows have another value for this series; a static attribute is constant "
                "within a series. A value that changes is a covariate: "
                f"{spelled('past_covariates')} or {spelled('future_covariates')}."
            )
    try:
        return to_numbers(pa.array([*known]), lambda _, what: DataError(what))[there]
    except DataError:
        return np.array([*known])[there]
