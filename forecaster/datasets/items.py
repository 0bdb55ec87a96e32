"""Where the series of a panel lie in one table of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MARK = " / "
"""What joins the parts of a series id that stands in several columns."""


def id_parts(name: str, columns: int) -> list[str]:
    """The parts of a series id in so many columns."""
    return name.split(MARK) if columns > 1 else [name]


@dataclass(frozen=True, eq=False)
class Items:
    """S series, one after another, each a run of rows on one grid of time steps.

    `names` (S); `bounds` (S + 1): item i has the rows [bounds[i], bounds[i + 1]); `places` (S): the
    step of the common grid at which its first row stands.
    """

    names: Sequence[str]
    bounds: NDArray[np.int64]
    places: NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.bounds) - 1 == len(self.places):
            raise ValueError(
                f"{len(self.names)} names, {len(self.bounds)} bounds and {len(self.places)} places "
                "are not those of the same items"
            )

    def __len__(self) -> int:
        return len(self.places)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each item."""
        return np.diff(self.bounds)

    @classmethod
    def single(cls, rows: int) -> "Items":
        """One nameless series, whose rows are the grid."""
        return cls(("",), np.array([0, rows]), np.array([0]))
