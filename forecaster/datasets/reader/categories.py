"""Columns of words, read as columns of 0 and 1, one for each word."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.datasets.known import MOST_WORDS
from forecaster.datasets.reader.cells import Complain, to_words, trimmed
from forecaster.datasets.reader.files import Rows
from forecaster.datasets.series import quoted


class Categories:
    """The different words found so far in some columns."""

    def __init__(self, columns: Sequence[str], missing: tuple[str, ...], where: str) -> None:
        self.missing = missing
        self.where = where
        self.met: dict[str, set[str]] = {column: set() for column in columns}

    def add(self, rows: Rows) -> None:
        """Take in some rows. Raises DataError for more than MOST_WORDS words in a column."""
        for column, met in self.met.items():
            met |= {*_words(rows.cells[column], self.missing)[0]}
            if len(met) > MOST_WORDS:
                raise DataError(
                    f"{self.where}: column '{column}' has more than {MOST_WORDS} different words, "
                    f"such as {quoted(sorted(met)[:3])}; leave it out, group the words, or correct "
                    "them if they should be numbers."
                )

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The words of each column, in order."""
        return {column: tuple(sorted(met)) for column, met in self.met.items()}


def indicators(
    cells: pa.Array, words: Sequence[str], missing: tuple[str, ...], complain: Complain
) -> NDArray[np.float64]:
    """Cells (N,) as 0 and 1 (N, words), NaN for empty cells. Complains about an unknown word."""
    met, places = _words(cells, missing)
    known = {word: place for place, word in enumerate(words)}
    unknown = [word for word in met if word not in known]
    if unknown:
        row = int((places == met.index(unknown[0])).argmax())
        raise complain(row, f"'{unknown[0]:.64}' is none of the known words: {', '.join(words)}")
    table = np.vstack([np.eye(len(words))[[known[word] for word in met]], [np.nan] * len(words)])
    rows: NDArray[np.float64] = table[places]
    return rows


def _words(cells: pa.Array, missing: tuple[str, ...]) -> tuple[list[str], NDArray[np.int64]]:
    return to_words(trimmed(cells.cast(pa.string()), missing))
