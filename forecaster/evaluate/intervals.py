"""Calibrate the intervals of a model, and count what they come to on windows it never saw."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from forecaster.datasets import Batch, Scaler, Windows
from forecaster.intervals import Intervals, between, conformal_offsets
from forecaster.model import ForecastModel

SHOWN = (0.8, 0.95)
"""The intervals that are reported, the first in words and pictures, too."""
TOLERANCE = 0.03
"""How far the coverage of the first may be off before it is said in words."""
RATE = 0.05
"""Largest step of the online form, in root mean squares of the calibrating errors."""
MOST_ERRORS = 2**26
"""How many errors to hold at once while calibrating: 256 MB."""


def calibrate(
    model: ForecastModel, windows: Windows, scaler: Scaler, levels: tuple[float, ...]
) -> Intervals:
    """Offsets by step and column from the model's errors on `windows`.

    `scaler` is that of the targets. Longer horizons are taken some steps at a time.
    """
    count, horizon, targets = len(windows), windows.horizon, len(windows.targets)
    paths = 1 if model.spread is None else len(levels)
    span = max(1, MOST_ERRORS // (count * targets * paths))
    offsets, scale = [], []
    for first in range(0, horizon, span):
        steps = slice(first, first + span)
        errors = np.empty((count, min(span, horizon - first), targets, paths), dtype=np.float32)
        with torch.inference_mode():
            for index in torch.arange(count).split(windows.evaluation_batch):
                batch = windows.batch(index)
                ahead = model.quantiles(*batch[:3])[:, steps]
                errors[index.numpy()] = (batch.target[:, steps, :, None] - ahead).cpu().numpy()
        scale.append(np.sqrt(np.square(errors[..., model.middle], dtype=float).mean(axis=0)))
        offsets.append(conformal_offsets(errors, levels))
    std = np.asarray(scaler.std)
    return Intervals(
        levels, np.concatenate(offsets) * std[:, None], np.concatenate(scale) * std, count
    )


class Coverage:
    """Counts, window by window in time order, what a model's quantiles come to.

    `forecast` is what the evaluation calls in place of the model.
    """

    def __init__(
        self, model: ForecastModel, intervals: Intervals, scaler: Scaler, *, online: bool
    ) -> None:
        self.model, self.intervals, self.scaler = model, intervals, scaler
        self.fixed = Tally(intervals)
        self.online = Online(intervals) if online else None
        self.moving = Tally(intervals)

    def forecast(self, batch: Batch) -> Tensor:
        """The point path, after counting the quantiles about it; a metrics.Forecast."""
        ahead = self.model.quantiles(*batch[:3])
        truth = in_units(batch.target[..., None], self.scaler)
        paths, own = in_units(ahead, self.scaler), self.intervals.levels
        self.fixed.add(self.intervals.quantiles(paths, own), truth)
        if self.online is not None:
            moved = [self.online.step(*window) for window in zip(paths, truth, strict=True)]
            self.moving.add(np.stack(moved), truth)
        return ahead[..., self.model.middle]

    def to_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Plain JSON types; `names` are the columns'."""
        std = np.asarray(self.scaler.std)
        return {
            "levels": list(self.intervals.levels),
            "calibration_windows": self.intervals.windows,
            **self.fixed.to_dict(names, std, ""),
            "online": self.moving.to_dict(names, std, " online") if self.online else None,
        }


class Online:
    """Offsets that follow the errors seen so far, one window a row after another.

    After each row the offset of level a rises by rate * a where the truth lay above the quantile
    and falls by rate * (1 - a) where it did not, so that in the long run a share a lies below
    whatever the series does: the quantile tracking of Angelopoulos, Candès and Tibshirani (NeurIPS
    2023, sec. 2.2), which is adaptive conformal inference (Gibbs and Candès, NeurIPS 2021) on
    offsets in place of levels, and so never infinite. A forecast from row o knows the rows before o
    alone: of an earlier window, the steps that lie there. What is learned of step h is thus h rows
    late, and steps that are large for such a delay swing ever wider; the rate is RATE, but
    1 / h at most, times `Intervals.scale`.
    """

    def __init__(self, intervals: Intervals) -> None:
        self.intervals = intervals
        backed = intervals.backed
        self.offsets = intervals.offsets[..., backed].copy()
        self.up = np.array(intervals.levels)
        horizon = len(self.offsets)
        late = np.arange(1, horizon + 1).reshape(-1, 1, 1)
        self.rate = np.minimum(RATE, 1 / late) * intervals.scale[..., None]
        self.above = np.zeros((horizon, *self.offsets.shape), dtype=bool)
        self.window = 0

    def step(self, paths: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """The sorted quantiles (T, K, levels) of the next window.

        paths (T, K, 1 or Q); truth (T, K, 1) is kept until its rows are past.
        """
        horizon = len(self.above)
        steps = np.arange(min(self.window, horizon))
        above = self.above[(self.window - 1 - steps) % horizon, steps]
        self.offsets[steps] += self.rate[steps] * (above - (1 - self.up))
        quantiles = self.intervals.unsorted(paths, self.offsets)
        self.above[self.window % horizon] = truth > quantiles
        self.window += 1
        return np.sort(quantiles, axis=-1)


class Tally:
    """Sums over windows, by step and column, in units."""

    def __init__(self, intervals: Intervals) -> None:
        self.intervals, self.windows = intervals, 0
        self.levels = np.array(intervals.levels)
        shape = intervals.scale.shape
        self.pinball = np.zeros((len(self.levels), shape[1]))
        self.sides = {name: sides(name) for name in SHOWN if intervals.reach(sides(name))}
        self.covered = {name: np.zeros(shape) for name in self.sides}
        self.width = {name: np.zeros(shape) for name in self.sides}

    def add(self, quantiles: np.ndarray, truth: np.ndarray) -> None:
        """quantiles (B, T, K, levels) sorted, truth (B, T, K, 1), both in units."""
        self.windows += len(truth)
        error = truth - quantiles
        loss = np.maximum(self.levels * error, (self.levels - 1) * error)
        self.pinball += loss.mean(axis=1).sum(axis=0).T
        for name, pair in self.sides.items():
            low, high = np.moveaxis(between(quantiles, self.intervals.levels, pair), -1, 0)
            inside = (low <= truth[..., 0]) & (truth[..., 0] <= high)
            self.covered[name] += inside.sum(axis=0)
            self.width[name] += (high - low).sum(axis=0)

    def to_dict(self, names: tuple[str, ...], std: np.ndarray, which: str) -> dict[str, Any]:
        """Coverage and widths; the pinball losses and the CRPS are on scaled values.

        The CRPS is twice the integral of the pinball loss over all levels, each of ours standing
        for the levels nearest to it.
        """
        pinball = (self.pinball / std).mean(axis=1) / self.windows
        edges = np.concatenate([[0], (self.levels[1:] + self.levels[:-1]) / 2, [1]])
        shown: dict[str, Any] = dict.fromkeys(map(percent, SHOWN))
        for name, covered in self.covered.items():
            covered, width = covered / self.windows, self.width[name] / self.windows
            shown[percent(name)] = {
                "coverage": float(covered.mean()),
                "width": float((width / std).mean()),
                "by_step": {
                    "coverage": covered.mean(axis=1).tolist(),
                    "width": (width / std).mean(axis=1).tolist(),
                },
                "columns": {
                    column: {
                        "coverage": float(covered[:, i].mean()),
                        "width": float(width[:, i].mean() / std[i]),
                        "width_units": float(width[:, i].mean()),
                    }
                    for i, column in enumerate(names)
                },
            }
        return {
            **shown,
            "pinball": dict(zip(map(str, self.levels.tolist()), pinball.tolist(), strict=True)),
            "crps": float(2 * (pinball * np.diff(edges)).sum()),
            "verdict": verdict(shown[percent(SHOWN[0])], which),
        }


def verdict(shown: dict[str, Any] | None, which: str) -> str:
    """In words: do the first of the shown intervals cover what they should?"""
    name = f"{percent(SHOWN[0])} %{which} intervals"
    if shown is None:
        return f"Too few calibrating windows for {name}."
    covered, wanted = shown["coverage"], SHOWN[0]
    text = f"The {name} cover {covered:.1%} of the test values"
    if covered < wanted - TOLERANCE:
        text += ": they are TOO NARROW here"
    elif covered > wanted + TOLERANCE:
        text += ": they are WIDER than they should be"
    columns = sorted((own["coverage"], column) for column, own in shown["columns"].items())
    if len(columns) > 1:
        (low, least), (high, most) = columns[0], columns[-1]
        text += f"; by column from {low:.0%} ({least}) to {high:.0%} ({most})"
    return f"{text}."


def sides(share: float) -> tuple[float, float]:
    """The levels that bound an interval with as much probability outside on either side."""
    return round((1 - share) / 2, 9), round((1 + share) / 2, 9)


def percent(share: float) -> str:
    """0.8 -> "80"."""
    return f"{100 * share:g}"


def in_units(values: Tensor, scaler: Scaler) -> np.ndarray:
    """Scaled values (B, T, K, Q) in units, in float64."""
    last = np.moveaxis(values.double().cpu().numpy(), -1, -2)
    return np.moveaxis(scaler.inverse(last), -1, -2)
