"""The places of the series of a panel in one table of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

MARK = " / "
"""The text that joins the parts of a series id in several columns."""


def id_parts(name: str, columns: int) -> list[str]:
    return name.split(MARK) if columns > 1 else [name]


End: TypeAlias = int | tuple[int, ...]
"""The step of the grid at which a part ends, for all items or for each."""


@dataclass(frozen=True, eq=False)
class Items:
    """S series, one after another, each a run of rows on one grid of time steps.

    `names` (S); `bounds` (S + 1): item i has the rows [bounds[i], bounds[i + 1]); `places` (S): the
    step of the common grid of its first row.
    """

    names: Sequence[str]
    bounds: NDArray[np.int64]
    places: NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.bounds) - 1 == len(self.places):
            raise ValueError(
                f"{len(self.names)} names, {len(self.bounds)} bounds and {len(self.places)} places "
                "do not belong to the same items"
            )

    def __len__(self) -> int:
        return len(self.places)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.bounds)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The step of the grid of each row (N,)."""
        return np.arange(self.bounds[-1]) + np.repeat(self.places - self.bounds[:-1], self.lengths)

    def locate(self, row: int) -> tuple[int, int]:
        """The item of a row of the table, and the row's step of the grid."""
        item = int(np.searchsorted(self.bounds, row, side="right")) - 1
        return item, int(self.places[item] + row - self.bounds[item])

    def rows_before(self, step: End) -> NDArray[np.int64]:
        """The number of rows of each item before a step of the grid."""
        return np.clip(np.asarray(step) - self.places, 0, self.lengths)

    def before(self, step: End) -> NDArray[np.bool_]:
        """Which rows (N,) lie before a step of the grid."""
        ends = np.broadcast_to(step, len(self))
        return np.asarray(self.steps < np.repeat(ends, self.lengths))

    def windows(
        self, past: int, horizon: int, first: End, last: End, padding: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count windows, one row apart, whose `horizon` steps lie wholly in steps [first, last).

        Returns for each item the first row, counted within it, at which a past begins, and the
        number of windows. A past may begin `padding` rows before its item.
        """
        begin = np.maximum(np.asarray(first) - past - self.places, -padding)
        end = np.minimum(self.lengths, np.asarray(last) - self.places) - past - horizon + 1
        return begin, np.maximum(end - begin, 0)

    @classmethod
    def single(cls, rows: int) -> "Items":
        """One nameless series, whose rows are the grid."""
        return cls(("",), np.array([0, rows]), np.array([0]))
