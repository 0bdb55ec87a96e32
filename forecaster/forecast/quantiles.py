"""Quantiles about a forecast: offsets of `Intervals`, as wide as a window calls for, interpolated.

Evaluation, service and export use the same functions.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from forecaster.forecast.intervals import Intervals

LEAST = 0.3
"""The smallest share of the usual deviation that counts: calmer histories do not narrow the
intervals further."""


class Quantiles(nn.Module):
    """The quantiles of intervals, on tensors."""

    offsets: Tensor
    levels: Tensor
    weights: Tensor
    usual: Tensor
    phases: Tensor
    of_series: Tensor

    def __init__(self, intervals: Intervals) -> None:
        super().__init__()
        conditions, series = intervals.conditions, intervals.of_series
        # a window widens all offsets alike, so quantiles rise where these do
        offsets = np.sort(intervals.offsets[..., intervals.backed], axis=-1)
        offsets, levels = np.moveaxis(offsets, -1, 0), np.array(intervals.levels)
        sides = (levels - 0.5).reshape(-1, 1, 1)
        offsets = np.where(sides < 0, np.minimum(offsets, 0), np.maximum(offsets, 0) * (sides > 0))
        self.by_series = series is not None
        self.season = 0 if conditions is None else conditions.season
        arrays = {"offsets": offsets, "levels": levels}
        if series is not None:
            arrays["of_series"] = np.concatenate([series, np.ones_like(series[:1])])
        if conditions is not None:
            arrays |= {name: np.array(getattr(conditions, name), dtype=np.float64)
                       for name in ("weights", "usual", "phases")}  # fmt: skip
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array).double())

    def forward(
        self,
        point: Tensor,
        past: Tensor,
        ahead: Tensor,
        observed: Tensor | None = None,
        levels: Tensor | None = None,
        item: Tensor | None = None,
    ) -> Tensor:
        """Quantiles (B, T, K, Q) about the `point` forecast (B, T, K), rising with the level.

        All is scaled. past (B, P, K) are the targets, with a value where `observed`; ahead
        (B, T, F) are the known features, the calendar first; levels (Q,) lie within the range of
        ours, which are the default; item (B,) are the series of a panel, S for one that was not in
        training.
        """
        offsets = self.offsets.to(point.dtype)[:, None]
        if (widths := self.widths(past, ahead, observed, item)) is not None:
            offsets = widths.to(point.dtype) * offsets
        quantiles = point + offsets
        if levels is not None:
            quantiles = interpolated(quantiles, self.levels, levels, point)
        return quantiles.movedim(0, -1)

    def widths(
        self, past: Tensor, ahead: Tensor, observed: Tensor | None, item: Tensor | None
    ) -> Tensor | None:
        """Factors of the offsets, (B, T, K), (B, 1, K), or None if they are the same for all."""
        widths = None
        if self.season:
            place = parts_of_cycle(ahead, self.weights, self.season, len(self.phases))
            recent = widening(deviation(past, self.season, observed), self.usual)
            widths = recent[:, None] * self.phases[place]
        if self.by_series and item is not None:
            factors = self.of_series[item][:, None]
            widths = factors if widths is None else widths * factors
        return widths


def parts_of_cycle(ahead: Tensor, weights: Tensor, season: int, parts: int) -> Tensor:
    """The part of the cycle in which each step lies, (B, T), by its known features (B, T, F): see
    `Conditions`."""
    features = ahead[..., : len(weights)].double() + 0.5
    phase = torch.floor(features @ weights + 1e-2).long() % season  # rounding is far below 1e-2
    return phase * parts // season


def deviation(past: Tensor, season: int, observed: Tensor | None = None) -> Tensor:
    """The root mean square distance of windows' newest values from their mean cycle, (B, K).

    past (B, P, K), with a value where `observed`. The cycle is the mean of the look-back's whole
    cycles, or of all its values if it does not hold two; the newest values are a quarter of the
    look-back, but at least one cycle. nan where nothing is observed.
    """
    steps, columns = past.shape[1:]
    length = season if steps >= 2 * season else 1
    whole = steps // length * length
    shape = (-1, whole // length, length, columns)
    values = past[:, -whole:].double().reshape(shape)
    seen = torch.ones_like(values)
    if observed is not None:
        seen = observed[:, -whole:].double().reshape(shape)
    cycle = (values * seen).sum(dim=1) / seen.sum(dim=1).clamp(min=1)
    squares = (values - cycle[:, None]).square() * seen
    newest = max(season, steps // 4)
    sums, counts = (x.reshape(-1, whole, columns)[:, -newest:].sum(dim=1) for x in (squares, seen))
    return (sums / counts).sqrt()


def widening(recent: Tensor, usual: Tensor) -> Tensor:
    """The factor (B, K) of windows with a `deviation`: its ratio to usual, to the power 3/4.

    With 1/2, the bands of restless times hold too little, and 1 takes each deviation for exact
    (benchmarks/verdicts.py). The ratio counts as LEAST at least; the factor is 1 where nothing is
    observed or usual.
    """
    ratio = recent / usual
    root = torch.where(torch.isfinite(ratio), ratio, 1.0).clamp(min=LEAST).sqrt()
    return root * root.sqrt()  # torch's power rounds by the size of the batch


def interpolated(quantiles: Tensor, known: Tensor, levels: Tensor, point: Tensor) -> Tensor:
    """Interpolate rising quantiles (n, ...) at the `known` levels (n,) linearly to `levels` (Q,).

    Quantiles below 1/2 lie at or below the `point` forecast (...), those above 1/2 at or above it,
    and that of 1/2 equals it.
    """
    side = (levels - 0.5).view(-1, *(1,) * point.ndim)
    if len(known) > 1:
        right = (known[:, None] < levels).sum(dim=0).clamp(1, len(known) - 1)
        share = (levels - known[right - 1]) / (known[right] - known[right - 1])
        share = share.to(quantiles.dtype).view(side.shape)
        # not a product of matrices, which would round by the size of the batch
        lower, upper = quantiles.index_select(0, right - 1), quantiles.index_select(0, right)
        quantiles = lower * (1 - share) + upper * share
    quantiles = torch.where(side < 0, torch.minimum(quantiles, point), quantiles)
    quantiles = torch.where(side > 0, torch.maximum(quantiles, point), quantiles)
    return torch.where(side == 0, point, quantiles)


def between(
    quantiles: np.ndarray, known: Sequence[float], levels: Sequence[float], point: np.ndarray
) -> np.ndarray:
    """`interpolated` of arrays (..., n) to (..., Q); levels that are known stay as they are."""
    if {*levels} <= {*known}:
        return quantiles[..., [known.index(level) for level in levels]]
    given, at = (torch.tensor(values, dtype=torch.float64) for values in (known, levels))
    tensors = torch.asarray(quantiles).movedim(-1, 0), given, at, torch.asarray(point)
    return interpolated(*tensors).movedim(0, -1).numpy()
