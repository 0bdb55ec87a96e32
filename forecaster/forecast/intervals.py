"""Quantiles about a forecast: calibrated offsets, their widths by window, interpolation.

Offsets are symmetric, and wider where recent values or the season call for it (`Conditions`):
normalised conformal prediction (Papadopoulos, Gammerman and Vovk, 2008). So the intervals contain
the forecast.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


def tolerance(share: float, values: int) -> float:
    """How far the coverage of a band may be off before a sentence states it: 3 %, and what happens
    by chance, in two standard deviations of a share of `values`, windows times columns."""
    return max(0.03, 2 * math.sqrt(share * (1 - share) / max(values, 1)))


def ranked(errors: np.ndarray) -> np.ndarray:
    """The rank of each error (M, ...) along the first axis, from 0."""
    order = np.argsort(errors, axis=0, kind="stable")
    return np.argsort(order, axis=0).astype(np.int16)


@dataclass(frozen=True, eq=False)
class Conditions:
    """How much wider than usual the intervals of a window are, by what is known at its forecast.

    `season` steps make a cycle; floor(sum_f weights_f (feature_f + 1/2)) is the position of a step
    in it; empty `weights` mean that the calendar does not determine it. `usual` (K,) is the root
    mean square of `deviation` over the calibrating windows; `phases` (N, K) are the widths of N
    equal parts of the cycle, about 1.
    """

    season: int
    weights: tuple[float, ...]
    usual: np.ndarray
    phases: np.ndarray


@dataclass(frozen=True, eq=False)
class Intervals:
    """How a forecast gets quantiles, in scaled values: standard deviations of a column.

    `nominal` are the requested levels. `offsets` (T, K, Q) is added to the forecast, times the
    widths of the `conditions` if there are any; it is infinite for levels that too few windows
    support. `scale` (T, K) is the root mean square of the calibrating errors over those widths;
    `windows` is the number of calibrating windows. The series of a panel share them, each in its
    own standard deviations, times its width (K,) in `of_series` (S, K); a series that was not in
    training has a width of 1.

    `errors` (M, S', T', K') are whole windows of calibrating errors over the half width of the
    bands at level `half`, those of the series of a panel from one origin: how the errors of series,
    steps and columns go together. Some stand for their neighbours where there are too many
    (`paths.middles`). The windows of a series span `apart` horizons.
    """

    nominal: tuple[float, ...]
    offsets: np.ndarray
    scale: np.ndarray
    windows: int
    conditions: Conditions | None = None
    of_series: np.ndarray | None = None
    errors: np.ndarray | None = None
    apart: float = 0.0

    @cached_property
    def backed(self) -> np.ndarray:
        """Which of the levels enough windows support, (Q,)."""
        finite: np.ndarray = np.isfinite(self.offsets).all(axis=(0, 1))
        return finite

    @cached_property
    def half(self) -> int:
        """The place among `levels` of the upper end of the band whose half width is the unit of the
        errors: that of 80 %, or the next to it. A rarer level is not known as well."""
        return min(range(len(self.levels)), key=lambda place: abs(self.levels[place] - 0.9))

    @property
    def held(self) -> tuple[int, ...]:
        """The shape (M, S', T', K') of the errors; zeros without any."""
        return (0, 0, 0, 0) if self.errors is None else self.errors.shape

    @cached_property
    def ranks(self) -> np.ndarray:
        """The rank of each of the `errors` among the M windows, from 0."""
        assert self.errors is not None
        return ranked(self.errors)

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """The supported levels, rising."""
        return tuple(level for level, on in zip(self.nominal, self.backed, strict=True) if on)

    def rescaled(self, ratio: np.ndarray) -> "Intervals":
        """The same intervals in units, for targets with a new scaler.

        ratio: old by new standard deviation, (K,), or (S, K) of a panel, whose median counts.
        """
        factors, conditions = np.atleast_2d(ratio), self.conditions
        ratio = np.median(factors, axis=0)
        return replace(
            self,
            of_series=None if self.of_series is None else self.of_series * factors / ratio,
            offsets=self.offsets * ratio[:, None],
            scale=self.scale * ratio,
            conditions=conditions and replace(conditions, usual=conditions.usual * ratio),
        )

    def reach(self, levels: Sequence[float]) -> bool:
        """Whether all of `levels` lie within the range of ours."""
        known = self.levels
        return bool(known) and all(known[0] <= level <= known[-1] for level in levels)

    def widest(self, share: float) -> float | None:
        """`share`, or that of our widest interval if that is less; None without an interval."""
        levels = self.levels
        widest = min(share, round(1 - 2 * max(levels[0], 1 - levels[-1]), 9)) if levels else 0.0
        return widest if widest > 0 else None
