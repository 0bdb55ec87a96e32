"""Standardisation with the statistics of the training rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", NDArray[np.floating[Any]], "Tensor")


@dataclass(frozen=True)
class Scaler:
    """(value - mean) / std, column by column."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def fit(cls, values: NDArray[np.float64]) -> Self:
        """Mean and population standard deviation of `values` (N, C): the training rows, no others.

        A constant column gets std 1. Raises DataError for values too large to be squared.
        """
        from sklearn.preprocessing import StandardScaler

        with np.errstate(over="ignore", invalid="ignore"):
            fitted = StandardScaler().fit(values)
        too_large = ~np.isfinite(fitted.var_)
        if too_large.any():
            column = int(too_large.argmax())
            raise DataError(
                f"column {column + 1} cannot be standardised: its values reach "
                f"{np.abs(values[:, column]).max():g}, too large for a variance."
            )
        return cls(tuple(fitted.mean_.tolist()), tuple(fitted.scale_.tolist()))

    def transform(self, values: Array) -> Array:
        """Values (..., C) in units to standardised ones."""
        mean, std = self._like(values)
        scaled: Array = (values - mean) / std
        return scaled

    def inverse(self, values: Array) -> Array:
        """Standardised values (..., C) back to units."""
        mean, std = self._like(values)
        restored: Array = values * std + mean
        return restored

    def select(self, indices: Sequence[int]) -> "Scaler":
        """The scaler of the columns at `indices`, in that order."""
        return Scaler(
            tuple(self.mean[index] for index in indices),
            tuple(self.std[index] for index in indices),
        )

    def to_dict(self) -> dict[str, list[float]]:
        """For JSON, exactly."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, state: dict[str, list[float]]) -> Self:
        """What `to_dict` gave."""
        return cls(tuple(state["mean"]), tuple(state["std"]))

    def _like(self, values: Array) -> tuple[Array, Array]:
        if isinstance(values, np.ndarray):
            return np.asarray(self.mean), np.asarray(self.std)
        return values.new_tensor(self.mean), values.new_tensor(self.std)
