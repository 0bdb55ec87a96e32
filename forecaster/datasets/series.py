"""A series of evenly spaced rows, or a panel of many, in memory."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.names import did_you_mean
from forecaster.datasets.items import Items


@dataclass(frozen=True, eq=False)
class Series:
    """N rows of C columns, one time step apart; the items of a panel come one after another.

    `values` (N, C) are NaN where missing, in float64 (float32 if there are many);
    `times` (G,) is the grid of steps, naive, in microseconds, as written in the file even if its
    card states that they are irregular; `freq` is spelled as by `normalise_freq`; `source` names
    the origin of the series. `items` gives the rows of each series of a panel; None: the rows are
    the grid. `known` (N, K) holds covariates known ahead, complete, named `known_columns`; `static`
    the attributes of the items, by name (S,), as numbers or words.
    """

    values: NDArray[np.floating[Any]]
    times: pd.DatetimeIndex
    columns: tuple[str, ...]
    freq: str
    source: str
    items: Items | None = None
    known: NDArray[np.floating[Any]] | None = None
    known_columns: tuple[str, ...] = ()
    static: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of column names, stamps and values, "sha256:...".

        It does not depend on the format of the file, on the machine or on columns left out.
        """
        sha = hashlib.sha256(json.dumps(self.columns).encode())
        sha.update(self.times.as_unit("us").asi8.astype("<i8").tobytes())
        _update(sha, self.values)
        if self.known is not None:
            sha.update(json.dumps(self.known_columns).encode())
            _update(sha, self.known)
        if self.items is not None:
            sha.update(json.dumps(list(self.items.names)).encode())
            sha.update(self.items.bounds.astype("<i8").tobytes())
            sha.update(self.items.places.astype("<i8").tobytes())
        for name, attribute in self.static.items():
            sha.update(json.dumps([name, attribute.tolist()]).encode())
        return f"sha256:{sha.hexdigest()}"

    @property
    def layout(self) -> Items:
        """The items of a panel, or one nameless series whose rows are the grid."""
        return self.items or Items.single(len(self.values))

    def shown(self, row: int) -> str:
        """The time of a row and, in a panel, its series, in a message."""
        item, step = self.layout.locate(row)
        return f"{self.times[step]}" + (f" of '{self.items.names[item]}'" if self.items else "")

    def with_known(self, columns: Sequence[str], known: Sequence[str]) -> "Series":
        """`select`, and make the `known` columns covariates known ahead.

        Raises DataError for unknown columns, and for a covariate with a missing value.
        """
        chosen = self.select(columns)
        if not known:
            return chosen
        values = self.select(known).values
        if np.isnan(values).any():
            row, column = np.argwhere(np.isnan(values))[0]
            raise DataError(
                f"{self.source}, row {row + 1}, column '{known[column]}': no value, but what is "
                "known ahead must be complete; take it as a past covariate, or leave it out."
            )
        return replace(chosen, known=values, known_columns=tuple(known))

    def select(self, columns: Sequence[str]) -> "Series":
        """The series of `columns`, in that order. Raises DataError for unknown ones."""
        missing = [column for column in columns if column not in self.columns]
        if missing:
            raise DataError(missing_columns(self.source, missing, columns, self.columns))
        places = [self.columns.index(column) for column in columns]
        return replace(self, values=self.values[:, places], columns=tuple(columns))

    def before(self, step: int) -> "Series":
        """The rows before a step of the grid, and the items that have any."""
        if self.items is None:
            known = None if self.known is None else self.known[:step]
            return replace(self, values=self.values[:step], times=self.times[:step], known=known)
        counts, items = self.items.rows_before(step), self.items
        earlier = items.before(step)
        places = np.flatnonzero(counts)
        bounds = np.concatenate([[0], np.cumsum(counts[places])])
        return replace(
            self,
            values=self.values[earlier],
            times=self.times[:step],
            known=None if self.known is None else self.known[earlier],
            items=Items([items.names[int(at)] for at in places], bounds, items.places[places]),
            static={name: attribute[places] for name, attribute in self.static.items()},
        )


def _update(sha: "hashlib._Hash", rows: NDArray[np.floating[Any]]) -> None:
    sha.update(np.ascontiguousarray(rows, dtype=f"<f{rows.itemsize}").data)


def missing_columns(
    where: str, missing: Sequence[str], expected: Sequence[str], got: Sequence[Any]
) -> str:
    free = [str(name) for name in got if name not in expected]
    hint = did_you_mean(str(missing[0]), free) if len(missing) == 1 else ""
    return (
        f"{where}: column{'s' * (len(missing) > 1)} {quoted(missing)} not found.{hint} "
        f"Expected {quoted(expected)}; got {quoted(got)}."
    )


def quoted(names: Sequence[Any]) -> str:
    """Names in a message, the first twenty of them."""
    shown = ", ".join(f"'{name}'" for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
