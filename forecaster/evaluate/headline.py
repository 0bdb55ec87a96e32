"""What was found on the test split in one sentence, in units and percent."""

from collections.abc import Mapping

import numpy as np

from forecaster.base.spelling import rounded
from forecaster.datasets.calendar import parse_step, step_length
from forecaster.datasets.windows import Windows
from forecaster.evaluate.backtest import Evaluation
from forecaster.evaluate.figures import Errors
from forecaster.evaluate.intervals import SHARES, percent
from forecaster.evaluate.metrics import forecast_with, score
from forecaster.parts import Part
from forecaster.plan.splits import Splits

_LENGTHS = {60: "minute", 3600: "hour", 86_400: "day", 604_800: "week"}
"""Cycles by their length in seconds."""
_CALENDAR = {("B", 5): "week", ("W", 52): "year", ("M", 12): "year", ("Q", 4): "year"}
"""Cycles by the first letter of the step and the number of steps."""


def headline(splits: Splits, found: Evaluation, parts: Mapping[str, Part], windows: Windows) -> str:
    """The typical error, in the unit of the target and as a share of its mean size; how it
    compares with repeating the last cycle of a season, or the last value, whichever is best; and
    what the band of the first share covered.

    Of several targets, the share is the median, and their scaled errors are compared. `parts` are
    those of the floors, `windows` all of the test split.
    """
    of_model, sizes = found.errors(found.model), _size(splits)
    units = of_model.in_units("absolute", 1)
    shares = units[sizes > 0] / sizes[sizes > 0]
    if many := len(found.targets) > 1:
        text = f"Typical error of {len(found.targets):,} columns, in the median"
        text += f": {np.median(shares):.1%} of a column's mean size" if len(shares) else ""
    else:
        what = "a series" if splits.schema.wide else found.targets[0]
        text = f"Typical error of {what}: {rounded(units[0])}"
        text += f" ({shares[0]:.1%} of its mean size)" if len(shares) else ""

    def size(errors: Errors) -> float:
        return float(errors.mean("absolute", "all") if many else errors.in_units("absolute", 1)[0])

    whole = size(of_model)
    naive = {"last value": "the last value"} | {
        f"seasonal naive, {season}": f"the last {cycle(splits.schema.freq, season)}"
        for season in splits.plan.dataset.seasons
    }
    errors: dict[str, float] = {}
    for name in naive.keys() & found.floors.keys():
        repeated = found.floors[name]
        if windows.shift is not None:  # what repeats knows nothing of the covariates
            repeated = score(forecast_with(parts[name]), windows.whole)
        errors[name] = size(found.errors(repeated))
    name = min(sorted(errors), key=lambda name: errors[name], default="")
    if name and whole > 0 and (least := errors[name]) > 0:
        which = "smaller" if least >= whole else "LARGER"
        text += f", {max(least / whole, whole / least):.1f} times {which} than repeating "
        text += naive[name]
    count = found.model.windows
    text += f", on {count:,} test window{'s' * (count > 1)}"
    share = percent(SHARES[0])
    band = found.intervals and found.intervals.band(share)
    if not band or band["coverage"] is None:
        return f"{text}; there is no {share} % band."
    since = ", and was calibrated again since" if found.recalibrated else ""
    return f"{text}; the {share} % band held {band['coverage']:.0%} of the values{since}."


def cycle(freq: str, steps: int) -> str:
    """A cycle of `steps` steps in words: week, year, or "12 steps"."""
    if (length := step_length(freq)) is not None:
        seconds = length * steps // 1_000_000
        if 31_000_000 < seconds < 32_000_000:
            return "year"
        return _LENGTHS.get(seconds, f"{steps} steps")
    count, unit, _ = parse_step(freq)
    return _CALENDAR.get((unit[0], steps), f"{steps} steps") if count == 1 else f"{steps} steps"


def _size(splits: Splits) -> np.ndarray:
    """The mean absolute value of each target in the test steps, in units, (K,)."""
    series = splits.plan.series
    items = series.layout
    first, last = splits.plan.borders.parts["test"]
    tested = items.before(last) & ~items.before(first)
    values = series.values[tested][:, list(splits.schema.target_positions)]
    counts = (~np.isnan(values)).sum(axis=0)
    return np.asarray(np.nansum(np.abs(values), axis=0, dtype=float) / np.maximum(counts, 1))
