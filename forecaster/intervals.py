"""Quantiles about a forecast: calibrated offsets by step and column, and what is between levels.

Split-conformal calibration in its one-sided form, so that intervals need not be symmetric: the
offset of level a is an order statistic of the signed errors y - q_a of windows that neither trained
nor stopped the model. Where every q_a is the point forecast this is a conformal predictive system
(Vovk et al., COPA 2017); where the model has quantiles of its own it is conformalised quantile
regression (Romano, Patterson and Candès, NeurIPS 2019, theorem 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from forecaster.errors import UsageError

TOLERANCE = 0.03
"""How far the coverage of a band may be off before it is said in words."""


def conformal_offsets(errors: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """What to add to the path of each level, (..., Q), by its errors y - path.

    errors (n, ..., 1) about one path, or (n, ..., Q) about the path of each level. Of the n sorted
    errors, levels above 1/2 take number ceil(a (n + 1)), so that a new value lies at or below with
    probability a at least; levels below 1/2 take number floor(a (n + 1)), so that it lies below
    with probability a at most; 1/2 takes the middle of both. A level that n errors cannot back gets
    an infinite offset. Errors that are nan, of values that are missing, do not count.

    That probability holds where old and new errors are exchangeable. Those of overlapping windows
    are not, n of them tell about as much as n / T would; the coverage on the test split is
    therefore part of the result.
    """
    errors = np.sort(errors, axis=0)  # nan last
    n = (~np.isnan(errors[..., 0])).sum(axis=0)
    offsets = np.empty((*errors.shape[1:-1], len(levels)))
    for q, level in enumerate(levels):
        own = errors[..., q if errors.shape[-1] > 1 else 0]
        place = np.round(level * (n + 1), 9)  # 0.7 * 10 is a little more than 7
        lower = _order(own, np.floor(place).astype(int), n)
        upper = _order(own, np.ceil(place).astype(int), n)
        offsets[..., q] = lower if level < 0.5 else upper
        if level == 0.5:
            middle = n > 0
            offsets[..., q] = np.where(middle, (np.where(middle, lower, 0) + upper) / 2, np.inf)
    return offsets


def _order(errors: np.ndarray, number: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Number `number` (...) of n sorted errors (N, ...) from 1; infinite below 1 and above n."""
    place = np.clip(number - 1, 0, len(errors) - 1)
    there = np.take_along_axis(errors, place[None], axis=0)[0].astype(float)
    return np.where(number < 1, -np.inf, np.where(number > n, np.inf, there))


@dataclass(frozen=True, eq=False)
class Intervals:
    """How a model's paths become quantiles, in scaled values: standard deviations of a column.

    `nominal` are the levels that were asked for. `offsets` (T, K, Q) is added to the paths; it is
    infinite for levels that too few windows back. `scale` (T, K) is the root mean square of the
    calibrating errors; `windows` is how many there were, 0 for a model whose own quantiles are
    taken as they are. The series of a panel share them, each in its own standard deviations.
    """

    nominal: tuple[float, ...]
    offsets: np.ndarray
    scale: np.ndarray
    windows: int

    @classmethod
    def uncalibrated(cls, levels: tuple[float, ...], horizon: int, targets: int) -> "Intervals":
        """For a model that has quantiles of its own."""
        shape = (horizon, targets)
        return cls(levels, np.zeros((*shape, len(levels))), np.zeros(shape), 0)

    @cached_property
    def backed(self) -> np.ndarray:
        """Which of the levels can be had, (Q,)."""
        finite: np.ndarray = np.isfinite(self.offsets).all(axis=(0, 1))
        return finite

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """The levels that can be had, rising."""
        return tuple(level for level, on in zip(self.nominal, self.backed, strict=True) if on)

    def unsorted(self, paths: np.ndarray, offsets: np.ndarray | None = None) -> np.ndarray:
        """The quantiles as calibrated, (..., T, K, len(levels)), possibly crossing.

        paths (..., T, K, 1 or Q) scaled; `offsets` (T, K, len(levels)) take the place of ours.
        """
        backed = self.backed
        own = paths if paths.shape[-1] == 1 else paths[..., backed]
        quantiles: np.ndarray = own + (self.offsets[..., backed] if offsets is None else offsets)
        return quantiles

    def quantiles(self, paths: np.ndarray, levels: Sequence[float]) -> np.ndarray:
        """The quantiles at `levels`, (..., T, K, len(levels)), from paths (..., T, K, 1 or Q)."""
        return between(np.sort(self.unsorted(paths), axis=-1), self.levels, levels)

    def rescaled(self, ratio: np.ndarray) -> "Intervals":
        """The same in units, for targets that are scaled anew.

        ratio: old by new standard deviation, (K,), or (S, K) of a panel, whose median counts.
        """
        ratio = np.median(np.atleast_2d(ratio), axis=0)
        return replace(self, offsets=self.offsets * ratio[:, None], scale=self.scale * ratio)

    def reach(self, levels: Sequence[float]) -> bool:
        """Whether all of `levels` lie within the range of ours."""
        own = self.levels
        return bool(own) and all(own[0] <= level <= own[-1] for level in levels)

    def check(self, levels: Sequence[float]) -> None:
        """Raises UsageError naming the first level outside of ours, and their range."""
        own = self.levels
        for level in levels:
            if not self.reach([level]):
                raise UsageError(
                    f"this model gives quantiles from {own[0]:g} to {own[-1]:g}, got {level:g}"
                    if own
                    else f"{self.windows} calibrating windows back no quantile, got {level:g}"
                )


def between(quantiles: np.ndarray, own: Sequence[float], levels: Sequence[float]) -> np.ndarray:
    """Sorted quantiles (..., Q) at the levels `own`, linearly between them at `levels`."""
    weights = np.array([np.interp(levels, own, column) for column in np.eye(len(own))])
    at: np.ndarray = quantiles @ weights.reshape(len(own), len(levels))
    return at
