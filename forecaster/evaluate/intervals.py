"""Calibrate the intervals of a model, and measure them on windows that it never saw."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from scipy.special import ndtri, stdtrit  # type: ignore[import-untyped]
from torch import Tensor

from forecaster import record
from forecaster.base import machine, signals
from forecaster.datasets.scaling import Scaler
from forecaster.datasets.windows import Batch, Windows, evenly
from forecaster.evaluate.figures import By, Ends, IntervalMetric, QuantileMetric, plain, shown
from forecaster.evaluate.metrics import Score, score
from forecaster.forecast.intervals import Conditions, Intervals, tolerance
from forecaster.forecast.quantiles import (
    Quantiles,
    between,
    deviation,
    parts_of_cycle,
    widening,
)
from forecaster.model import Task
from forecaster.parts import Blend

SHARES = (0.8, 0.95)
"""The shares of the intervals that are judged; sentences and figures use the first."""
MOST_ERRORS = 2**25
"""The number of errors held at once while calibrating: 128 MB, in several copies."""
SINCE = " The intervals that are served were calibrated again since, with these errors."
FEWEST = 40
"""The fewest windows that calibrate, however wide they are: enough to support the level 97.5 %."""
FEW = 10
"""How many errors of the usual size count at each step beside its own, where errors are pooled."""
PARTS = 24
"""The largest number of parts of the cycle with separate widths."""


class Calibration:
    """Intervals from the model's errors on the observed values of `windows`.

    Evenly spaced windows are `chosen` to represent all: as many as MOST_ERRORS allows, but at least
    FEWEST, of which each of several `blocks` has its share; unless they are given.
    """

    def __init__(
        self,
        model: Blend,
        windows: Windows,
        levels: tuple[float, ...],
        *,
        blocks: int = 1,
        chosen: Tensor | None = None,
    ) -> None:
        task, horizon, targets = model.task, windows.horizon, len(windows.targets)
        most = max(FEWEST, MOST_ERRORS // (horizon * targets))
        self.model, self.windows, self.levels = model, windows, levels
        self.chosen = evenly(windows, -(-most // blocks)) if chosen is None else chosen
        count = len(self.chosen)
        self.errors = np.empty((count, horizon, targets), dtype=np.float32)
        bins = min(task.season, PARTS) if task.phase else 1
        ones = np.ones(targets), np.ones((bins, targets))
        self.conditions = Conditions(task.season, task.phase, *ones)
        self.recent = np.empty((count, targets))
        self.parts = np.empty((count, horizon), dtype=int)
        self.item = np.zeros(count, dtype=int)
        self.passed = 0

    @machine.exact()
    def complete(self) -> Self:
        """Forecast and add every chosen window."""
        with torch.inference_mode():
            for places in torch.arange(len(self.chosen)).split(self.windows.evaluation_batch):
                signals.check()
                batch = self.windows.batch(self.chosen[places])
                self.add(places.numpy(), batch, self.model(*batch.asked))
        return self

    def add(self, places: np.ndarray, batch: Batch, ahead: Tensor) -> None:
        """Add the forecast `ahead` (B, T, K) of a batch, at `places` (B,) in `chosen`."""
        error = batch.target - ahead
        if batch.target_observed is not None:
            error = error.masked_fill(~batch.target_observed, torch.nan)
        self.errors[places] = error.cpu().numpy()
        task = self.model.task
        past, known, observed, item = seen_by(batch, task)
        weights = known.new_tensor(task.phase, dtype=torch.float64)
        bins = len(self.conditions.phases)
        self.recent[places] = deviation(past, task.season, observed).cpu().numpy()
        self.parts[places] = parts_of_cycle(known, weights, task.season, bins).cpu().numpy()
        if item is not None:
            self.item[places] = item.cpu().numpy()

    def take(self, batch: Batch, ahead: Tensor, skipped: int = 0) -> None:
        """Add what is `chosen` of the next batch of a pass over our windows, before which there are
        `skipped` others."""
        begin = self.passed - skipped
        self.passed += len(ahead)
        first, last = np.searchsorted(self.chosen.numpy(), [begin, begin + len(ahead)])
        if first == last:
            return
        if last - first < len(ahead):
            places = self.chosen[first:last] - begin
            batch = Batch._make(None if x is None else x[places.to(x.device)] for x in batch)
            ahead = ahead[places.to(ahead.device)]
        self.add(np.arange(first, last), batch, ahead)

    def score(self, windows: Windows) -> Score:
        """The score on `windows`, the last of which are ours: each is forecast once for both."""
        skipped = len(windows) - len(self.windows)

        def forecast(batch: Batch) -> Tensor:
            ahead: Tensor = self.model(*batch.asked)
            self.take(batch, ahead, skipped)
            return ahead

        return score(forecast, windows)

    def intervals(self) -> Intervals:
        return together([self])


def together(
    done: Sequence[Calibration], horizons: float | None = None, *, pooled: bool = False
) -> Intervals:
    """Intervals from the errors of several calibrations, which span `horizons` if that is given.

    They are `fitted`, where `pooled` is explained.
    """
    errors, recent, parts, item = (
        np.concatenate([getattr(calibration, name) for calibration in done])
        for name in ("errors", "recent", "parts", "item")
    )
    first = done[0]
    if horizons is None:
        horizons = sum(calibration.windows.horizons for calibration in done)
    panel = first.windows.items
    items = None if panel is None else (item, len(panel))
    about = first.conditions, horizons, first.levels
    return fitted(errors, recent, parts, *about, items=items, pooled=pooled)


def fitted(
    errors: np.ndarray,
    recent: np.ndarray,
    parts: np.ndarray,
    conditions: Conditions,
    horizons: float,
    levels: tuple[float, ...],
    *,
    items: tuple[np.ndarray, int] | None = None,
    pooled: bool = False,
) -> Intervals:
    """Symmetric intervals about a point forecast, by the sizes of its errors (n, T, K).

    recent (n, K) is the `deviation` of the windows, parts (n, T) are their parts of the cycle;
    `conditions` defines both; `items` are the series (n,) of a panel, and how many it has. nan
    errors do not count.

    The width of a window is the product of five factors: that of its recent deviation; that of the
    part of the cycle, the mean size of errors there, shrunk as by 4 further cycles of average
    errors; that of its series in a panel, the root mean square of errors relative to that of all at
    the same steps, shrunk as by 2 further horizons of it; the root mean square, by step and column,
    of errors divided by these three; and, by column and level, an order statistic of the sizes of
    errors divided by these four, over all steps together. The windows span only so many `horizons`,
    so the last factor is widened from that of the normal to that of Student's t distribution with
    twice as many degrees of freedom.

    If few errors are known and they are `pooled`, the root mean square of a step is shrunk as by
    FEW further errors of the usual size, and a level is supported by the errors of all steps.
    """
    n, horizon, _ = errors.shape
    observed = (~np.isnan(errors)).sum(axis=0)
    usual = _rms(recent)
    conditions = replace(conditions, usual=usual)
    factors = widening(torch.from_numpy(recent), torch.from_numpy(usual)).numpy()
    errors = errors / factors[:, None].astype(errors.dtype)
    sizes = _over(np.abs(errors), _rms(errors))
    cycles = horizons * horizon / conditions.season
    phases = conditions.phases.copy()
    whole = _mean(sizes.reshape(n * horizon, -1))
    for part in range(len(phases) if len(phases) > 1 else 0):
        here = _over(_mean(sizes[parts == part]), whole)
        phases[part] = (cycles * np.where(whole * here > 0, here, 1) + 4) / (cycles + 4)
    errors = errors / phases.astype(errors.dtype)[parts]
    of_series = None
    if items is not None:
        of_series = _of_series(_over(errors, _rms(errors)), *items, horizons)
        errors = errors / of_series.astype(errors.dtype)[items[0]][:, None]
    scale = _rms(errors)
    if pooled:
        usual = _rms(errors.reshape(n * horizon, -1))
        scale = np.sqrt((observed * scale**2 + FEW * usual**2) / (observed + FEW))
        observed = np.broadcast_to(observed.sum(axis=0), observed.shape)
    sizes = np.sort(_over(np.abs(errors), scale).reshape(n * horizon, -1), axis=0)
    known = (~np.isnan(sizes)).sum(axis=0)
    offsets = np.empty((*scale.shape, len(levels)))
    for q, level in enumerate(levels):
        number = np.ceil(np.round(abs(2 * level - 1) * (known + 1), 9)).astype(int)
        place = np.clip(number, 1, np.maximum(known, 1)) - 1
        size = np.take_along_axis(sizes, place[None], axis=0)[0]
        wider = 1.0 if level == 0.5 else stdtrit(2 * horizons, level) / ndtri(level)
        side = np.sign(level - 0.5)
        backed = min(level, 1 - level) * (observed + 1) >= 1 - 1e-9
        offsets[..., q] = np.where(backed, side * wider * scale * np.nan_to_num(size), np.inf)
    return Intervals(levels, offsets, scale, n, replace(conditions, phases=phases), of_series)


def _of_series(errors: np.ndarray, item: np.ndarray, count: int, horizons: float) -> np.ndarray:
    """The width (S, K) of each series, by errors (n, T, K) of about the same size at all steps."""
    squares = np.square(errors, dtype=float)
    known = (~np.isnan(squares)).sum(axis=1)
    sums, counts = np.zeros((2, count, errors.shape[2]))
    np.add.at(sums, item, np.nansum(squares, axis=1))
    np.add.at(counts, item, known)
    usual = _over(sums.sum(axis=0), counts.sum(axis=0))
    apart = counts * horizons / max(len(errors) * errors.shape[1], 1)
    width = np.sqrt(_over(sums / np.maximum(counts, 1) * apart + 2 * usual, (apart + 2) * usual))
    return np.where(width > 0, width, 1.0)


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the first axis, ignoring nan; 0 if there is no value."""
    counts = (~np.isnan(values)).sum(axis=0)
    mean: np.ndarray = np.nansum(values, axis=0, dtype=float) / np.maximum(counts, 1)
    return mean


def _rms(values: np.ndarray) -> np.ndarray:
    root: np.ndarray = np.sqrt(_mean(np.square(values, dtype=float)))
    return root


def _over(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The ratio of values and scale; 0 where the scale is 0."""
    ratio: np.ndarray = values / np.where(scale > 0, scale, np.inf).astype(values.dtype)
    return ratio


def seen_by(batch: Batch, task: Task) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The past of the targets, the future known features, where the past is observed, the items."""
    targets = list(task.targets)
    seen = None if batch.observed is None else batch.observed[..., targets]
    return batch.past[..., targets], batch.future_known, seen, batch.item


class Coverage:
    """Measures the quantiles of intervals about a model's forecasts, window by window.

    `scaler` is that of the targets; `again` takes the errors.
    """

    def __init__(
        self,
        model: Blend,
        intervals: Intervals,
        scaler: Scaler,
        *,
        again: Calibration | None = None,
    ) -> None:
        self.model, self.intervals, self.scaler = model, intervals, scaler
        self.quantiles = Quantiles(intervals)
        self.again = again
        # sums over windows of scaled values, by step and column
        shape, self.windows = intervals.scale.shape, 0
        self.pinball = np.zeros((len(intervals.levels), shape[1]))
        self.observed = np.zeros(shape)
        self.metrics = shown(IntervalMetric)
        self.sums = {
            share: {metric.name: np.zeros(shape) for metric in self.metrics}
            for share in SHARES
            if intervals.reach(sides(share))
        }

    def take(self, batch: Batch, ahead: Tensor) -> Tensor:
        """Measure the quantiles about the forecast `ahead` (B, T, K) of a batch; returns it."""
        if self.again is not None:
            self.again.take(batch, ahead)
        past, known, seen, item = seen_by(batch, self.model.task)
        point = ahead.float()
        quantiles = self.quantiles.to(point.device)(point, past, known, seen, item=item)
        observed = batch.target_observed
        self.add(
            batch.within(quantiles).cpu().numpy(),
            batch.within(point).cpu().numpy(),
            batch.target.float().cpu().numpy(),
            None if observed is None else observed.cpu().numpy(),
            self.scaler.at(batch.item, 3).std,
        )
        return ahead

    def add(
        self,
        quantiles: np.ndarray,
        point: np.ndarray,
        truth: np.ndarray,
        observed: np.ndarray | None,
        std: np.ndarray,
    ) -> None:
        """Add scaled quantiles (B, T, K, levels) about point (B, T, K), and truth (B, T, K).

        observed (B, T, K), None if nothing is missing; std, the standard deviations of the columns
        in units, (K,) or (B, 1, K).
        """

        def total(values: np.ndarray) -> np.ndarray:
            """The sum over the windows of observed values, (T, K)."""
            known = values if observed is None else np.where(observed, values, 0)
            summed: np.ndarray = known.sum(axis=0, dtype=float)
            return summed

        self.windows += len(truth)
        self.observed += len(truth) if observed is None else observed.sum(axis=0)
        for q, level in enumerate(self.intervals.levels):
            error = truth - quantiles[..., q]
            loss = total(np.maximum(level * error, (level - 1) * error))
            self.pinball[q] += loss.sum(axis=0)
        std = std.astype(quantiles.dtype)
        for share, sums in self.sums.items():
            ends = between(quantiles, self.intervals.levels, sides(share), point)
            bounds = Ends(ends[..., 0], ends[..., 1], truth, std, share)
            for metric in self.metrics:
                sums[metric.name] += total(metric.of(bounds))

    def record(self, names: tuple[str, ...], *, again: bool = False) -> record.IntervalScores:
        """What was found; `names` are those of the columns, and the pinball losses are scaled.
        `again` says that the intervals were calibrated again since."""

        def means(sums: dict[str, np.ndarray], by: By) -> dict[str, Any]:
            """Means over observed values; None if there are none."""
            axis = {"all": None, "step": 1, "column": 0}[by]
            counts = self.observed.sum(axis)
            with np.errstate(invalid="ignore"):
                return {
                    metric.name: plain(sums[metric.name].sum(axis) / counts)
                    for metric in self.metrics
                    if by in metric.by
                }

        levels = self.intervals.levels
        pinball = self.pinball.sum(axis=1) / self.observed.sum()
        bands: dict[str, record.BandScores | None] = dict.fromkeys(map(percent, SHARES))
        for share, sums in self.sums.items():
            by_column = means(sums, "column")
            bands[percent(share)] = record.BandScores(
                by_step=means(sums, "step"),
                columns={
                    column: record.Scores(**{name: row[i] for name, row in by_column.items()})
                    for i, column in enumerate(names)
                },
                **means(sums, "all"),
            )
        quantiles = {
            metric.name: metric.of(np.array(levels), pinball) for metric in shown(QuantileMetric)
        }
        return record.IntervalScores(
            levels=levels,
            calibration_windows=self.intervals.windows,
            again=again,
            pinball=dict(zip(map(str, levels), pinball.tolist(), strict=True)),
            verdict=verdict(bands[percent(SHARES[0])], self.windows * len(names))
            + (SINCE if again else ""),
            **bands,
            **quantiles,
        )


def verdict(found: record.BandScores | None, values: int) -> str:
    """A sentence on whether the intervals of the first share cover what they should; `values` as
    for `tolerance`."""
    name = f"{percent(SHARES[0])} % intervals"
    if found is None:
        return f"Too few calibrating windows for {name}."
    covered, share = found["coverage"] or 0.0, SHARES[0]
    text = f"The {name} cover {covered:.1%} of the test values"
    allowed = tolerance(share, values)
    if covered < share - allowed:
        text += ": they are TOO NARROW here"
    elif covered > share + allowed and found["width"] != 0:
        text += ": they are WIDER than they should be"
    columns = sorted(
        (coverage, column)
        for column, scores in found.columns.items()
        if (coverage := scores["coverage"]) is not None
    )
    if len(columns) > 1:
        (low, least), (high, most) = columns[0], columns[-1]
        text += f"; by column from {low:.0%} ({least}) to {high:.0%} ({most})"
    return f"{text}."


def sides(share: float) -> tuple[float, float]:
    """The levels that bound an interval with equal probability outside on either side."""
    return round((1 - share) / 2, 9), round((1 + share) / 2, 9)


def percent(share: float) -> str:
    return f"{100 * share:g}"


def in_units(values: np.ndarray, scaler: Scaler, item: Tensor | None) -> np.ndarray:
    """Convert scaled values (B, T, K, Q) to units; `item` (B,) are the items of a panel."""
    return np.moveaxis(scaler.at(item, 4).inverse(np.moveaxis(values, -1, -2)), -1, -2)
