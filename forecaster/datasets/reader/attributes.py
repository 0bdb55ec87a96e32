"""Static attributes of the series, each given by any row of its series."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.spelling import spelled
from forecaster.datasets.reader.cells import categories, to_numbers
from forecaster.datasets.reader.files import RawTable, Rows


class Attributes:
    """The attributes of the items, each given by any row of its item."""

    def __init__(self, columns: Sequence[str], items: int, table: RawTable) -> None:
        self.table = table
        self.words: dict[str, dict[str, int]] = {column: {} for column in columns}
        self.codes = {column: np.full(items, -1) for column in columns}

    def add(self, rows: Rows, item: NDArray[np.int64]) -> None:
        """Take in the attributes of some rows. Raises DataError if they change within a series."""
        for column, there in self.codes.items():
            words, places = categories(rows.cells[column], self.table.reading.missing)
            known = self.words[column]
            codes = np.array([*(known.setdefault(word, len(known)) for word in words), -1])[places]
            if (codes < 0).any():
                where = self._row(rows, int((codes < 0).argmax()))
                raise DataError(f"{where}, column '{column}': no value of a static attribute")
            unknown = there[item] < 0
            there[item[unknown][::-1]] = codes[unknown][::-1]  # the first row of an item counts
            changed = codes != there[item]
            if changed.any():
                row = int(changed.argmax())
                raise DataError(
                    f"{self._row(rows, row)}, column '{column}': {rows.cells[column][row]}, but "
                    "earlier rows have another value for this series; a static attribute is "
                    "constant within a series. A value that changes is a covariate: "
                    f"{spelled('past_covariates')} or {spelled('future_covariates')}."
                )

    def _row(self, rows: Rows, row: int) -> str:
        return self.table.row(rows.file, rows.before + row)

    @property
    def values(self) -> dict[str, NDArray[Any]]:
        """The values of the items by attribute: numbers, or words unless all are numbers."""
        return {
            column: _numbers_or_words([*self.words[column]])[codes]
            for column, codes in self.codes.items()
        }


def _numbers_or_words(words: list[str]) -> NDArray[Any]:
    try:
        return to_numbers(pa.array(words), lambda _, what: DataError(what))
    except DataError:
        return np.array(words)
