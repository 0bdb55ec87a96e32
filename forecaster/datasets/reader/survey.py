"""What a table says of each series beside its values: ids, stamps, static attributes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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

SAMPLE = 64, 2**20
"""The most series and stamps from which the time step is found."""


class Ids:
    """The numbers of the series by their ids, in the order of their first rows."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.names: dict[str, int] = {}

    def codes(self, rows: Rows, table: RawTable) -> NDArray[np.int64]:
        """The number of the series of each row."""
        if not self.columns:
            return np.full(rows.cells.num_rows, rows.file)
        words, places = self._words(rows, self.columns[0], table)
        for column in self.columns[1:]:
            others, there = self._words(rows, column, table)
            pairs, places = np.unique(places * len(others) + there, return_inverse=True)
            words = [
                self._joined(words[one], others[other], column, rows, table)
                for one, other in zip(*np.divmod(pairs, len(others)), strict=True)
            ]
        names = self.names
        return np.array([names.setdefault(word, len(names)) for word in words])[places]

    def _words(
        self, rows: Rows, column: str, table: RawTable
    ) -> tuple[list[str], NDArray[np.int64]]:
        words, places = to_words(rows.cells[column])
        if (places < 0).any():
            where = table.row(rows, int((places < 0).argmax()))
            raise DataError(f"{where}, column '{column}': no value")
        return words, places

    def _joined(self, before: str, word: str, column: str, rows: Rows, table: RawTable) -> str:
        joined = f"{before}{MARK}{word}"
        if joined.count(MARK) != self.columns.index(column) or joined.split(MARK)[-1] != word:
            raise DataError(
                f"{table.names[rows.file]}, columns {quoted(self.columns)}: '{joined:.80}' cannot "
                f"be split again, because '{MARK}' joins the parts of a series id; write the "
                "values without it."
            )
        return joined


@dataclass
class Occurrences:
    """How often an irregularity was found, and where first."""

    count: int = 0
    first: str = ""

    def add(self, count: int, first: str) -> None:
        self.first = self.first or first
        self.count += count


@dataclass
class Survey:
    """What the stamps of a table show, series by series; with `keep` all of them are kept."""

    keep: bool = False
    first: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    last: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    latest: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    rows: int = 0
    unsorted: Occurrences = field(default_factory=Occurrences)
    kept: list[NDArray[np.int64]] = field(default_factory=list)
    sample: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)

    def add(
        self, codes: NDArray[np.int64], stamps: NDArray[np.int64], named: Callable[[int], str]
    ) -> None:
        """Take in some rows; `named` gives the name of one that is earlier than the one before."""
        none, far = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        more = int(codes.max()) + 1 - len(self.first)
        if more > 0:
            self.first = np.append(self.first, np.full(more, far))
            self.last = np.append(self.last, np.full(more, none))
            self.latest = np.append(self.latest, np.full(more, none))
        self._sample(codes, stamps)
        if self.keep:
            self.kept.append(stamps)
        self.rows += len(codes)
        before = pd.Series(stamps).groupby(codes).shift(fill_value=none).to_numpy(copy=True)
        starts = before == none
        before[starts] = self.latest[codes[starts]]
        self.latest[codes] = stamps
        wrong = stamps < before
        if wrong.any():
            self.unsorted.add(int(wrong.sum()), named(int(wrong.argmax())))
        np.minimum.at(self.first, codes, stamps)
        np.maximum.at(self.last, codes, stamps)

    @property
    def stamps(self) -> NDArray[np.int64]:
        """All stamps, in the order of the rows."""
        return np.concatenate(self.kept)

    @property
    def sampled(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The series and stamps of the rows from which the step is found."""
        codes, stamps = zip(*self.sample, strict=True)
        return np.concatenate(codes), np.concatenate(stamps)

    def _sample(self, codes: NDArray[np.int64], stamps: NDArray[np.int64]) -> None:
        series, rows = SAMPLE
        room = rows - sum(len(part) for part, _ in self.sample)
        if room > 0:
            chosen = np.flatnonzero(codes < series)[:room]
            if len(chosen):
                self.sample.append((codes[chosen], stamps[chosen]))


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
                where = self.table.row(rows, int((codes < 0).argmax()))
                raise DataError(f"{where}, column '{column}': no value of a static attribute")
            unknown = there[item] < 0
            there[item[unknown][::-1]] = codes[unknown][::-1]  # the first row of an item counts
            changed = codes != there[item]
            if changed.any():
                row = int(changed.argmax())
                raise DataError(
                    f"{self.table.row(rows, row)}, column '{column}': {rows.cells[column][row]}, "
                    "but earlier rows have another value for this series; a static attribute is "
                    "constant within a series. A value that changes is a covariate: "
                    f"{spelled('past_covariates')} or {spelled('future_covariates')}."
                )

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
