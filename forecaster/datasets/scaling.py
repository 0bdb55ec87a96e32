"""Standardisation with the statistics of the training rows."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecaster.base.errors import DataError
from forecaster.datasets.card import End
from forecaster.datasets.dataset import Items

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.floating[Any]]

ROWS = 2**22
"""The rows of a panel that are processed together."""


class Scaler:
    """(value - mean) / std, column by column; missing values stay missing.

    `mean` and `std` are float64, (C,), or (S, C) with separate ones for each item of a panel.
    """

    def __init__(self, mean: ArrayLike, std: ArrayLike) -> None:
        self.mean = np.asarray(mean, dtype=np.float64)
        self.std = np.asarray(std, dtype=np.float64)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Scaler)
            and np.array_equal(self.mean, other.mean)
            and np.array_equal(self.std, other.std)
        )

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def fit(cls, values: Array, names: Sequence[str] = ()) -> Self:
        """Mean and population standard deviation of `values` (N, C), which are the training rows.

        Errors call the columns by `names`. Missing values are left out; a constant column gets
        std 1. Raises DataError for a column without values, and for values too large to be squared.
        """
        from sklearn.preprocessing import StandardScaler

        empty = np.isnan(values).all(axis=0)
        if empty.any():
            raise DataError(
                f"column {_called(names, int(empty.argmax()))} has no value in the {len(values)} "
                "training rows."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            fitted = StandardScaler().fit(values)
        _check_finite(fitted.var_, np.nanmax(np.abs(values), axis=0), names)
        return cls(fitted.mean_, fitted.scale_)

    @classmethod
    def fit_items(
        cls,
        values: Array,
        items: Items,
        last: End,
        otherwise: int,
        names: Sequence[str] = (),
    ) -> Self:
        """Mean and standard deviation of each item's rows before step `last` of the grid, (S, C).

        An item with fewer than two such rows is standardised by its first `otherwise` rows: if that
        is the look-back, they precede each of its forecasts. A column without any value there gets
        mean 0 and std 1. Raises DataError as `fit` does.
        """
        mean, std = np.empty((2, len(items), values.shape[1]))
        rows = items.rows_before(last)
        rows = np.where(rows < 2, np.minimum(otherwise, items.lengths), rows)
        cuts = np.searchsorted(items.bounds[:-1], np.arange(0, items.bounds[-1], ROWS))
        for begin, end in pairwise(np.unique([*cuts, len(items)])):
            bounds = items.bounds[begin : end + 1]
            block = np.array(values[bounds[0] : bounds[-1]], dtype=np.float64)
            within = np.arange(len(block)) - np.repeat(bounds[:-1] - bounds[0], np.diff(bounds))
            block[within >= np.repeat(rows[begin:end], np.diff(bounds))] = np.nan
            seen = ~np.isnan(block)
            runs = bounds[:-1] - bounds[0]
            counts = np.maximum(np.add.reduceat(seen, runs, axis=0, dtype=np.int64), 1)
            with np.errstate(over="ignore", invalid="ignore"):
                means = np.add.reduceat(np.where(seen, block, 0), runs, axis=0) / counts
                off = np.where(seen, block - np.repeat(means, np.diff(bounds), axis=0), 0)
                spread = np.sqrt(np.add.reduceat(off**2, runs, axis=0) / counts)
            _check_finite(spread, np.abs(np.where(seen, block, 0)).max(axis=0), names)
            constant = spread <= 1e-12 * np.abs(means)
            mean[begin:end], std[begin:end] = means, np.where(constant, 1, spread)
        return cls(mean, std)

    def transform(self, values: Array) -> Array:
        """Standardise values (..., C) given in units."""
        return np.asarray((values - self.mean) / self.std)

    def inverse(self, values: Array) -> Array:
        """Convert standardised values (..., C) back to units."""
        return np.asarray(values * self.std + self.mean)

    def at(self, item: "Tensor | NDArray[np.integer[Any]] | None", ndim: int) -> "Scaler":
        """The scaler of the items `item` (B,) of a panel, its arrays (B, 1, ..., C) of `ndim`.

        For one series it is this scaler.
        """
        if item is None or self.mean.ndim == 1:
            return self
        index = np.asarray(item if isinstance(item, np.ndarray) else item.cpu())
        shape = (len(index), *(1,) * (ndim - 2), self.mean.shape[1])
        return Scaler(self.mean[index].reshape(shape), self.std[index].reshape(shape))

    def select(self, indices: Sequence[int]) -> "Scaler":
        """The scaler of the columns at `indices`, in that order."""
        return Scaler(self.mean[..., list(indices)], self.std[..., list(indices)])

    def to_dict(self) -> dict[str, list[Any]]:
        """For JSON, exactly."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @classmethod
    def from_dict(cls, state: dict[str, list[Any]]) -> Self:
        """The scaler from `to_dict`."""
        return cls(state["mean"], state["std"])


def _called(names: Sequence[str], column: int) -> str:
    """The name of a column in an error, or else its number from 1."""
    return f"'{names[column]}'" if names else f"{column + 1}"


def _check_finite(spread: NDArray[Any], largest: NDArray[Any], names: Sequence[str]) -> None:
    """Raise DataError for a column whose spread (..., C) is not finite."""
    too_large = ~np.isfinite(spread).reshape(-1, spread.shape[-1]).all(axis=0)
    if too_large.any():
        column = int(too_large.argmax())
        raise DataError(
            f"column {_called(names, column)} cannot be standardised: its values reach "
            f"{largest[column]:g}, too large for a variance."
        )
