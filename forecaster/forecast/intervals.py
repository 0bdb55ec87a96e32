"""Quantiles about a forecast: calibrated offsets, their widths by window, interpolation.

Offsets are symmetric, and wider where recent values or the season call for it (`Conditions`):
normalised conformal prediction (Papadopoulos, Gammerman and Vovk, 2008). So the intervals contain
the forecast.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from operator import add
from typing import Any

import numpy as np

from forecaster.base.errors import UsageError

TOLERANCE = 0.03
"""How far the coverage of a band may be off before a sentence states it."""
POWER = 0.75
"""The power of the ratio of a window's deviation to the usual one by which its intervals widen:
with 1/2, the bands of restless times hold too little, and 1 takes each deviation for exact
(benchmarks/verdicts.py)."""
LEAST = 0.3
"""The smallest share of the usual deviation that counts: calmer histories do not narrow the
intervals further."""


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

    def widths(
        self, past: np.ndarray, future_known: np.ndarray, observed: np.ndarray | None = None
    ) -> np.ndarray:
        """Factors (B, T, K) of the offsets.

        past (B, P, K) scaled values of the targets, with a value where `observed`; future_known
        (B, T, F), the calendar first.
        """
        by_window = self.of_deviation(deviation(past, self.season, observed))[:, None]
        widths: np.ndarray = by_window * self.phases[self.parts(future_known)]
        return widths

    def of_deviation(self, found: np.ndarray) -> np.ndarray:
        """The factor (B, K) of windows with a `deviation`: its ratio to usual, to the POWER.

        The ratio counts as LEAST at least; the factor is 1 where nothing is observed or usual.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = found / self.usual
        return np.asarray(np.maximum(np.where(np.isfinite(ratio), ratio, 1.0), LEAST) ** POWER)

    def parts(self, future_known: np.ndarray) -> np.ndarray:
        """The part of the cycle in which each step lies, (B, T)."""
        features = future_known[..., : len(self.weights)].astype(float) + 0.5
        phase = np.floor(features @ np.array(self.weights) + 1e-2).astype(int) % self.season
        part: np.ndarray = phase * len(self.phases) // self.season
        return part


def deviation(past: np.ndarray, season: int, observed: np.ndarray | None = None) -> np.ndarray:
    """The root mean square distance of windows' newest values from their mean cycle, (B, K).

    past (B, P, K), with a value where `observed`. The cycle is the mean of the look-back's whole
    cycles, or of all its values if it does not hold two; the newest values are a quarter of the
    look-back, but at least one cycle. nan where nothing is observed.
    """
    batch, steps, columns = past.shape
    length = season if steps >= 2 * season else 1
    whole = steps // length * length
    shape = (batch, whole // length, length, columns)
    values = past[:, -whole:].reshape(shape).astype(float)
    seen = np.ones(shape) if observed is None else observed[:, -whole:].reshape(shape).astype(float)
    cycle = (values * seen).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    squares = np.square(values - cycle[:, None]) * seen
    newest = slice(-max(season, steps // 4), None)
    sums, counts = (
        part.reshape(batch, whole, columns)[:, newest].sum(axis=1) for part in (squares, seen)
    )
    with np.errstate(invalid="ignore"):
        deviations: np.ndarray = np.sqrt(sums / counts)
    return deviations


@dataclass(frozen=True, eq=False)
class Intervals:
    """How a forecast gets quantiles, in scaled values: standard deviations of a column.

    `nominal` are the requested levels. `offsets` (T, K, Q) is added to the forecast, times the
    widths of the `conditions` if there are any; it is infinite for levels that too few windows
    support. `scale` (T, K) is the root mean square of the calibrating errors over those widths;
    `windows` is the number of calibrating windows. The series of a panel share them, each in its
    own standard deviations, times its width (K,) in `of_series` (S, K); a series that was not in
    training has a width of 1.
    """

    nominal: tuple[float, ...]
    offsets: np.ndarray
    scale: np.ndarray
    windows: int
    conditions: Conditions | None = None
    of_series: np.ndarray | None = None

    @cached_property
    def backed(self) -> np.ndarray:
        """Which of the levels enough windows support, (Q,)."""
        finite: np.ndarray = np.isfinite(self.offsets).all(axis=(0, 1))
        return finite

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """The supported levels, rising."""
        return tuple(level for level, on in zip(self.nominal, self.backed, strict=True) if on)

    def widths(
        self,
        past: np.ndarray,
        future_known: np.ndarray,
        observed: np.ndarray | None = None,
        item: np.ndarray | None = None,
    ) -> np.ndarray:
        """Factors of the offsets, (B, T, K) as `Conditions.widths`, or one for all, (1, 1, 1).

        `item` (B,) are the series of a panel, S for one that was not in training.
        """
        factor = np.ones((1, 1, 1))
        if self.conditions is not None:
            factor = self.conditions.widths(past, future_known, observed)
        if self.of_series is None or item is None:
            return factor
        factors = np.concatenate([self.of_series, np.ones_like(self.of_series[:1])])
        widths: np.ndarray = factor * factors[item][:, None]
        return widths

    def quantiles(
        self, point: np.ndarray, levels: Sequence[float], widths: np.ndarray
    ) -> np.ndarray:
        """The quantiles at `levels`, (..., T, K, len(levels)), rising and about the forecast.

        point (..., T, K) scaled; widths (..., T, K) are `widths` of their windows.
        """
        offsets = self.offsets[..., self.backed]
        shape = np.broadcast_shapes(point.shape, widths.shape, offsets.shape[:-1])
        ends = _levels_last(shape, offsets.shape[-1], np.result_type(point, widths, offsets))
        for q in range(offsets.shape[-1]):
            np.add(point, widths * offsets[..., q], out=ends[..., q])
        return between(rising(ends), self.levels, levels, point)

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

    def check(self, levels: Sequence[float]) -> None:
        """Raise UsageError naming the first level outside the range of ours, and that range."""
        known = self.levels
        for level in levels:
            if not self.reach([level]):
                raise UsageError(
                    f"this model gives quantiles from {known[0]:g} to {known[-1]:g}, got {level:g}"
                    if known
                    else f"{self.windows} calibrating windows support no quantile, got {level:g}"
                )


def between(
    quantiles: np.ndarray, own: Sequence[float], levels: Sequence[float], point: np.ndarray
) -> np.ndarray:
    """Interpolate sorted quantiles (..., Q) at the levels `own` linearly to `levels`.

    Quantiles below 1/2 lie at or below the `point` forecast (...), those above 1/2 at or above it,
    and that of 1/2 equals it.
    """
    values = _levels_last(point.shape, len(levels), np.result_type(quantiles, point))
    for q, (level, near) in enumerate(zip(levels, _near(tuple(own), tuple(levels)), strict=True)):
        if level == 0.5:
            values[..., q] = point
            continue
        at = reduce(add, (quantiles[..., place] * weight for place, weight in near))
        (np.minimum if level < 0.5 else np.maximum)(at, point, out=values[..., q])
    return values


@lru_cache(maxsize=64)
def _near(own: tuple[float, ...], levels: tuple[float, ...]) -> list[list[tuple[int, float]]]:
    """For each of `levels`, the places of the levels beside it among `own`, and their weights."""
    weights = np.array([np.interp(levels, own, column) for column in np.eye(len(own))]).T
    return [[(int(place), row[place].item()) for place in np.flatnonzero(row)] for row in weights]


def rising(quantiles: np.ndarray) -> np.ndarray:
    """Quantiles (..., Q) sorted where they cross."""
    crossing = (quantiles[..., q] > quantiles[..., q + 1] for q in range(quantiles.shape[-1] - 1))
    return np.sort(quantiles, axis=-1) if any(places.any() for places in crossing) else quantiles


def _levels_last(shape: tuple[int, ...], levels: int, kind: np.dtype[Any]) -> np.ndarray:
    """An empty array (*shape, levels) in which the values of each level are contiguous."""
    return np.moveaxis(np.empty((levels, *shape), dtype=kind), 0, -1)
