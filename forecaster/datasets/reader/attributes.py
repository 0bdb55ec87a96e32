"""Static attributes of the series, each given by any row of its series."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.spelling import spelled
from forecaster.datasets.reader.cells import holds_text, to_numbers, to_words
from forecaster.datasets.reader.files import RawTable, Rows


class Attributes:
    """The attributes of the items, each given by any row of its item."""

    def __init__(
        self,
        columns: Sequence[str],
        items: int,
        table: RawTable,
        read_numbers: Callable[[Rows, str], NDArray[np.float64]],
    ) -> None:
        self.table = table
        self.read_numbers = read_numbers
        self.words: dict[str, dict[str, int]] = {}
        self.numbers: dict[str, NDArray[np.float64]] = {}
        for column in columns:
            self.numbers[column] = np.full(items, np.nan)
            if holds_text(table.sample[column].type):
                self.words[column] = {}

    def add(self, rows: Rows, item: NDArray[np.int64]) -> None:
        """Take in the attributes of some rows. Raises DataError if they change within a series."""
        for column, there in self.numbers.items():
            values = self._values(rows, column)
            missing = np.isnan(values)
            if missing.any():
                row = int(missing.argmax())
                raise DataError(
                    f"{self._row(rows, row)}, column '{column}': no value of a static attribute"
                )
            unknown = np.isnan(there[item])
            there[item[unknown][::-1]] = values[unknown][::-1]  # the first row of an item counts
            changed = values != there[item]
            if changed.any():
                row = int(changed.argmax())
                raise DataError(
                    f"{self._row(rows, row)}, column '{column}': {rows.cells[column][row]}, but "
                    "earlier rows have another value for this series; a static attribute is "
                    "constant within a series. A value that changes is a covariate: "
                    f"{spelled('past_covariates')} or {spelled('future_covariates')}."
                )

    def _values(self, rows: Rows, column: str) -> NDArray[np.float64]:
        if column not in self.words:
            return self.read_numbers(rows, column)
        words, places = to_words(rows.cells[column])
        known = self.words[column]
        codes = [known.setdefault(word, len(known)) for word in words]
        return np.array([*codes, np.nan])[places]

    def _row(self, rows: Rows, row: int) -> str:
        return self.table.row(rows.file, rows.before + row)

    @property
    def values(self) -> dict[str, NDArray[Any]]:
        """The values of the items by attribute: numbers, or words unless all are numbers."""
        return {
            column: _numbers_or_words([*self.words[column]])[numbers.astype(int)]
            if column in self.words
            else numbers
            for column, numbers in self.numbers.items()
        }


def _numbers_or_words(words: list[str]) -> NDArray[Any]:
    def complain(row: int, what: str) -> DataError:
        return DataError(what)

    try:
        return to_numbers(pa.array(words), complain)
    except DataError:
        return np.array(words)
