"""How the errors of steps, columns and series go together: whole windows of calibrating errors.

`forecast.paths` and `forecast.totals` are made of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from forecaster.datasets.windows import Windows
from forecaster.evaluate.figures import plain
from forecaster.evaluate.intervals import SHARES, Calibration, sides
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.paths import middles, standing
from forecaster.forecast.quantiles import widening
from forecaster.forecast.totals import quantiles_of

BYTES = 2**21
"""The most bytes of them in a bundle, in half precision: 2 MB."""
FEWEST, MOST = 20, 1000
"""The fewest windows before steps, then columns stand for their neighbours, and the most: windows
overlap, so that more of them know little more. Of the test split as many are judged."""
SERIES = 1000
"""The most series of a panel; others share the windows of a neighbour."""
LARGEST = 1e4
"""The largest error, in widths of the bands: half precision ends at 65,504."""


def with_errors(
    intervals: Intervals, done: Sequence[Calibration], rehearsed: Intervals | None = None
) -> Intervals:
    """The intervals with whole windows of the errors that calibrated them, and with those of a
    rehearsal before that. Of a panel's thinned windows, about as many are forecast anew."""
    if not intervals.levels:
        return intervals
    items, (horizon, columns) = done[0].windows.items, intervals.scale.shape
    budget = sum(len(calibration.chosen) for calibration in done)
    thinned = any(len(one.chosen) < len(one.windows) * one.windows.every for one in done)
    most = max(1, budget // FEWEST) if thinned else SERIES
    series = middles(min(SERIES, most), 1 if items is None else len(items))
    room = max(1, BYTES // (2 * FEWEST * len(series)))
    steps = middles(max(1, room // columns), horizon)
    targets = middles(max(1, room // len(steps)), columns)
    begins = np.unique(np.concatenate([_located(calibration, series)[2] for calibration in done]))
    fit = BYTES // (2 * len(series) * len(steps) * len(targets))
    few = max(FEWEST, budget // len(series)) if thinned else MOST
    count = min(MOST, max(1, fit), few)
    origins = begins[middles(count, len(begins))]
    errors = np.full((len(origins), len(series), len(steps), len(targets)), np.nan, np.float32)
    for calibration in done:
        item, step, values = _standard(calibration, intervals, origins, series)
        places = np.searchsorted(origins, step), np.searchsorted(series, item)
        errors[places] = values[:, steps][..., targets]
    errors = np.nan_to_num(_filled(_filled(errors, 0), 1)).clip(-LARGEST, LARGEST)
    apart = (int(begins[-1]) - int(begins[0]) + horizon) / horizon
    errors = errors.astype(np.float16)
    if rehearsed is not None and rehearsed.errors is not None:
        errors, apart = np.concatenate([rehearsed.errors, errors]), rehearsed.apart + apart
    return replace(intervals, errors=errors, apart=apart)


def _located(
    calibration: Calibration, series: np.ndarray
) -> tuple[Windows, Tensor, np.ndarray, np.ndarray]:
    """Those windows that may be held, of all that there are in a panel: their numbers, items, and
    the steps of the grid at which they begin."""
    windows, chosen = calibration.windows, calibration.chosen
    if windows.items is not None:
        windows = replace(windows, every=1)
        chosen = torch.arange(len(windows))
    item, _, step = windows.locate(chosen)
    on = torch.isin(item, torch.from_numpy(series))
    return windows, chosen[on], step[on].numpy(), item[on].numpy()


def _standard(
    calibration: Calibration, intervals: Intervals, origins: np.ndarray, series: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The items and first steps (n,) of the windows of some series that begin at `origins`, and
    their errors (n, T, K) over the half widths of the bands.

    Windows of a panel that did not calibrate are forecast now.
    """
    windows, numbers, step, item = _located(calibration, series)
    on = np.isin(step, origins)
    if len(windows) == len(calibration.chosen) or windows.items is None:
        places = np.searchsorted(calibration.chosen.numpy(), numbers.numpy()[on])
    else:
        more = Calibration(calibration.model, windows, calibration.levels, chosen=numbers[on])
        calibration, places = more.complete(), np.arange(on.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = calibration.errors[places] / spread_of(calibration, intervals, places)
    return item[on], step[on], errors


def spread_of(calibration: Calibration, intervals: Intervals, places: np.ndarray) -> np.ndarray:
    """The half widths (n, T, K) of the bands about some windows of a calibration."""
    conditions = intervals.conditions
    assert conditions is not None
    recent = torch.from_numpy(calibration.recent[places])
    widths = widening(recent, torch.from_numpy(conditions.usual)).numpy()[:, None]
    widths = widths * conditions.phases[calibration.parts[places]]
    if intervals.of_series is not None:
        widths = widths * intervals.of_series[calibration.item[places]][:, None]
    half = intervals.offsets[..., intervals.backed][..., intervals.half]
    spread: np.ndarray = widths * half
    return spread


def covered(intervals: Intervals, test: Calibration) -> float | None:
    """The share of the totals over the horizon, of test windows whose errors are all known, that
    their bands of the first share hold; None without any, and where too few errors are known.

    The windows are evenly spaced, MOST at most.
    """
    held = intervals.errors
    low, high = sides(SHARES[0])
    if held is None or low * (len(held) + 1) < 0.5 - 1e-9:
        return None
    places = middles(MOST, len(test.chosen))
    items = test.windows.items
    series = np.zeros(len(places), dtype=int)
    if items is not None:
        series = standing(held.shape[1], len(items))[test.item[places]]
    spread, (horizon, columns) = spread_of(test, intervals, places), intervals.scale.shape
    held = held[:, :, standing(held.shape[2], horizon)][..., standing(held.shape[3], columns)]
    sums = np.empty((len(held), len(places), columns))
    for row in np.unique(series):
        on = series == row
        sums[:, on] = np.einsum("ntk,mtk->mnk", spread[on], held[:, row].astype(np.float32))
    freedom = np.full(1, intervals.apart)
    ends = quantiles_of(np.zeros((len(places), 1, columns)), sums[:, :, None], freedom, [high])
    total = np.abs(test.errors[places].sum(axis=1))
    known = ~np.isnan(total)
    return plain((total <= ends[:, 0, :, 0])[known].mean()) if known.any() else None


def _filled(errors: np.ndarray, axis: int) -> np.ndarray:
    """The errors with the next one before along an axis, in a circle, where one is not known."""
    known = ~np.isnan(errors)
    if known.all():
        return errors
    count = errors.shape[axis]
    shape = [-1 if place == axis else 1 for place in range(errors.ndim)]
    twice = np.where(np.concatenate([known, known], axis), np.arange(2 * count).reshape(shape), 0)
    before = np.maximum.accumulate(twice, axis).take(range(count, 2 * count), axis) % count
    filled: np.ndarray = np.take_along_axis(errors, before, axis)
    return filled
