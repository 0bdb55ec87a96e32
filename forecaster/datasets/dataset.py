"""A data set as it was read, from a card or from a user's file: its rows, items and parts."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.names import did_you_mean, quoted
from forecaster.datasets.card import End, SplitRule
from forecaster.datasets.reading import Reading, Timezone

Features: TypeAlias = Literal["M", "S", "MS"]

MARK = " / "
"""The text that joins the parts of a series id in several columns."""


def id_parts(name: str, columns: int) -> list[str]:
    return name.split(MARK) if columns > 1 else [name]


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


@dataclass(frozen=True, eq=False)
class Dataset:
    """A series, or a panel of many, and how it was read.

    `reading` is complete: it holds everything needed to read the next file of the kind. `series`
    has the columns that are read, `targets` are the columns to forecast (in a wide panel the one
    column of all its series), `features` the default inputs. `main_target` is shown where there is
    room for one. `split` gives the borders of the parts, if they are fixed; `whole` is the series
    before columns were left out, if any were; `past` is the look-back for which samples were made,
    which window.past=auto takes. Data `as_it_is` are not standardised. `said` holds sentences about
    what was found, `counts` the irregularities, in plain JSON.
    """

    name: str
    reading: Reading
    series: Series
    targets: tuple[str, ...]
    features: Features
    main_target: str
    said: tuple[str, ...]
    counts: dict[str, Any]
    split: SplitRule | None = None
    whole: Series | None = None
    past: int | None = None
    as_it_is: bool = False

    @property
    def digest(self) -> str:
        """The digest of the data, independent of the columns used."""
        return (self.whole or self.series).digest

    @property
    def time(self) -> str:
        return self.reading.time or ""

    @property
    def freq(self) -> str:
        return self.series.freq

    @property
    def seasons(self) -> tuple[int, ...]:
        """The cycles in steps, the main one first; (1,) if none was found."""
        return self.reading.seasons

    @property
    def timezone(self) -> Timezone:
        """Whether the stamps are in UTC or, if naive, in the local time of their source."""
        return self.reading.timezone or "naive"


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
