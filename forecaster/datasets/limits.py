"""Limits of targets, which no forecast passes: zero for counts, or what the user says."""

import numpy as np
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.spelling import spelled
from forecaster.datasets.card import End
from forecaster.datasets.dataset import Series

Limit = tuple[float | None, float | None]
"""The least and the largest value of a target; None: any."""


def find_limits(
    series: Series,
    targets: tuple[str, ...],
    last: End,
    low: float | None,
    high: float | None,
    *,
    counts: bool,
) -> tuple[Limit, ...]:
    """The limits of each target; () without any.

    Where `counts` may be found, `low` is 0 by default for whole numbers of which none is negative
    before step `last`. Raises DataError for any value beyond a limit that was given.
    """
    limits: list[Limit] = []
    for name in targets:
        column = series.columns.index(name)
        least, most, _ = _seen(series, column, len(series.times))
        for value, limit, beyond, option in (
            (least, low, "below", "min"),
            (most, high, "above", "max"),
        ):
            if limit is not None and (value < limit if option == "min" else value > limit):
                raise DataError(
                    f"{series.source}: expected no value of '{name}' {beyond} {limit:g}, got "
                    f"{value:g}; choose another {spelled(option)}, or correct the value"
                )
        lower = low
        if low is None and counts:
            least, _, whole = _seen(series, column, last)
            lower = 0.0 if whole and least >= 0 else None
        limits.append((lower, high))
    return tuple(limits) if any(pair != (None, None) for pair in limits) else ()


def ends(limits: tuple[Limit, ...]) -> NDArray[np.float64]:
    """The limits as numbers (targets, 2), infinite where there are none."""
    numbers = np.array(limits, dtype=np.float64)  # nan for None
    return np.where(np.isnan(numbers), [-np.inf, np.inf], numbers)


def _seen(series: Series, column: int, last: End) -> tuple[float, float, bool]:
    """The least and the largest value before step `last`, and whether all are whole numbers."""
    values = series.values[series.layout.before(last), column]
    values = values[~np.isnan(values)]
    if not len(values):
        return np.inf, -np.inf, False
    return float(values.min()), float(values.max()), bool((values == np.floor(values)).all())
