"""Totals: sums of forecasts over steps and series, with bands that are calibrated as sums.

The errors of whole calibrating windows are summed as the forecasts are, each as wide as the bands
are now; the sizes of these sums give the band, as those of single errors do for a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import did_you_mean, quoted
from forecaster.datasets.calendar import DAY, parse_step, step_length
from forecaster.datasets.dataset import id_parts
from forecaster.datasets.reader.irregular import is_closed
from forecaster.datasets.reading import Reading
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.notices import Period
from forecaster.forecast.paths import CELLS, errors_of

if TYPE_CHECKING:
    from forecaster.forecast.answer import Answer
    from forecaster.forecast.question import Form

PERIODS = {"day": "D", "week": "W-SUN", "month": "M"}
"""The calendar periods, as pandas has them."""
ALL = "all"
"""The group of all series."""


@dataclass(frozen=True, eq=False)
class Totals:
    """N totals (N, K) of series and steps, and their quantiles (N, K, Q) at `levels`, in units.

    Of which series or group (`names`), from which time on (`starts`) and of how many `steps` they
    are. `cut` are the periods of which the forecast holds a part: they have no total.
    """

    names: Sequence[str | None]
    starts: Sequence[pd.Timestamp]
    steps: Sequence[int]
    sums: np.ndarray
    quantiles: np.ndarray
    levels: Sequence[float]
    cut: Sequence[str] = ()

    def to_json(self, zone: str = "") -> list[dict[str, Any]]:
        """The totals of /predict; `zone` as the stamps of its predictions end."""
        return [
            {
                "name": name,
                "start": start.isoformat() + zone,
                "steps": steps,
                "mean": sums.tolist(),
                "quantiles": dict(zip(map(str, self.levels), ends.T.tolist(), strict=True)),
            }
            for name, start, steps, sums, ends in zip(
                self.names, self.starts, self.steps, self.sums, self.quantiles, strict=True
            )
        ]

    @classmethod
    def from_json(cls, rows: Sequence[Mapping[str, Any]]) -> "Totals":
        """The inverse, of the rows of one or several answers."""
        levels = [*map(float, rows[0]["quantiles"])]
        return cls(
            [row["name"] for row in rows],
            [pd.Timestamp(row["start"]) for row in rows],
            [row["steps"] for row in rows],
            np.array([row["mean"] for row in rows]),
            np.array([[row["quantiles"][str(level)] for level in levels] for row in rows])
            .reshape(len(rows), len(levels), -1).swapaxes(1, 2),
            levels,
        )  # fmt: skip

    def to_frame(self, form: "Form", by: str | None) -> pd.DataFrame:
        """A row for each total, in the form of the data: what it is of, its first time, the
        targets, each followed by its quantiles; series of a wide panel in columns."""
        reading, ids = form.reading, [*form.reading.id]
        names: Sequence[Any] = form.targets
        values = np.concatenate([self.sums[..., None], self.quantiles], axis=-1)
        starts, parts = self.starts, [id_parts(str(name), len(ids)) for name in self.names]
        if by is not None:
            ids, parts = ([] if by == ALL else [by]), [[str(name)] for name in self.names]
        if reading.panel:
            names = [*dict.fromkeys(self.names)]
            rows = len(values) // len(names)
            values, starts = values.reshape(len(names), rows, -1).swapaxes(0, 1), starts[:rows]
        columns = [name + end for name in names for end in ("", *(f" {x}" for x in self.levels))]
        table = pd.DataFrame(values.reshape(len(starts), -1), columns=columns)
        stamps = pd.DatetimeIndex([*starts])
        utc = reading.timezone == "UTC" and stamps.tz is None
        table.insert(0, str(reading.time), stamps.tz_localize("UTC") if utc else stamps)
        for place, column in enumerate(ids):
            table.insert(place, column, [part[place] for part in parts])
        return table


def labels(
    by: str, names: Sequence[str | None], static: Mapping[str, Sequence[Any]], reading: Reading
) -> list[str]:
    """The group of each series: all, or those with one value of a static attribute or of one of
    several id columns. Raises UsageError for another name, and without a panel."""
    ids = [*reading.id]
    if not (ids or reading.panel):
        raise UsageError(f"no sums by '{by}': this model forecasts one series")
    if by == ALL:
        return [ALL] * len(names)
    if by in static:
        return [f"{value:g}" if isinstance(value, float) else str(value) for value in static[by]]
    if by in ids:
        return [id_parts(str(name), len(ids))[ids.index(by)] for name in names]
    known = [ALL, *static, *ids]
    raise UsageError(f"no sums by '{by}': expected {quoted(known)}.{did_you_mean(by, known)}")


def of(
    answer: "Answer",
    intervals: Intervals,
    rows: np.ndarray,
    limits: np.ndarray,
    period: Period | None,
    groups: Sequence[str] | None,
    levels: Sequence[float],
) -> Totals:
    """The totals of an answer with its `spread`: over a period, by default each step, and over
    groups of series, by default each alone. `rows` as `rows_of` gives them; `limits` (K, 2) are
    those of the targets.

    Raises UsageError for a period that steps do not divide, and for levels that too few windows
    support; DataError where no period is whole, and for groups that do not begin together.
    """
    windows, count, low = intervals.held[0], answer.forecasts.shape[1], least(intervals)
    if beyond := [level for level in levels if min(level, 1 - level) < low]:
        support = f"{windows} windows of errors support totals at levels from {low:.3g}"
        raise UsageError(f"{support} to {1 - low:.3g}, got {beyond[0]:g}")
    starts = [*dict.fromkeys(answer.starts)]
    if groups is not None and len(starts) > 1:
        raise DataError(
            f"some forecasts begin at {starts[0]}, others at {starts[1]}: to be summed, all series "
            "must end at the same time"
        )
    lines, cut = list[tuple[Any, ...]](), dict[str, None]()
    for start in starts:
        times = pd.date_range(start, periods=count, freq=answer.form.freq)
        bounds, left = _periods(times, answer.form.freq, period)
        cut.update(dict.fromkeys(left))
        if len(bounds) < 2:
            continue
        members = dict[str | int, list[int]]()
        for place in (place for place, other in enumerate(answer.starts) if other == start):
            members.setdefault(place if groups is None else groups[place], []).append(place)
        opened = ~is_closed(times, answer.form.reading)[:, None]
        steps = np.add.reduceat(opened[: bounds[-1], 0].astype(int), bounds[:-1])
        freedom = intervals.apart * len(intervals.scale) / np.diff(bounds)
        for key, places in members.items():
            sums, errors = _sums(answer, intervals, rows, places, bounds, opened)
            quantiles = quantiles_of(sums, errors, freedom, levels)
            parts = len(places) * steps[:, None]
            lowest, highest = (np.where(np.isinf(end), end, parts * end) for end in limits.T)
            # a limit that the history has passed does not hold
            lowest = np.where(sums < lowest, -np.inf, lowest)
            highest = np.where(sums > highest, np.inf, highest)
            quantiles = np.clip(quantiles, lowest[..., None], highest[..., None])
            name = answer.items[key] if isinstance(key, int) else key
            begins = times[bounds[:-1]]
            lines += zip([name] * len(steps), begins, steps.tolist(), sums, quantiles, strict=True)
    if not lines:
        raise DataError(
            f"no whole {period} lies in the {count} steps of the forecast: ask for the total of "
            "the horizon"
        )
    names, firsts, lengths, points, bands = ([*column] for column in zip(*lines, strict=True))
    return Totals(names, firsts, lengths, np.array(points), np.array(bands), levels, [*cut])


def least(intervals: Intervals) -> float:
    """The lowest level of a total that enough windows of errors support."""
    return 0.5 / (intervals.held[0] + 1) - 1e-9


def check_asked(samples: object, total: object, by: object, levels: Sequence[float]) -> None:
    """Raise UsageError for paths and totals that cannot be asked for together, or at all."""
    if samples is not None and (
        not isinstance(samples, Integral) or isinstance(samples, bool) or samples < 1
    ):
        raise UsageError(f"samples: expected a whole number from 1, got {samples!r}")
    if samples and (levels or total or by):
        raise UsageError("samples: expected no levels, total or by: paths are the whole answer")
    if total not in (None, *get_args(Period)):
        raise UsageError(f"total: expected one of {', '.join(get_args(Period))}, got {total!r}")


def check_period(freq: str, period: Period | None) -> None:
    """Raise UsageError for a calendar period that steps do not divide."""
    length = step_length(freq)
    if period in PERIODS and (length is None or DAY % length) and parse_step(freq)[:2] != (1, "B"):
        raise UsageError(f"a {period} has no whole number of steps of {freq}: expected horizon")


def _periods(
    times: pd.DatetimeIndex, freq: str, period: Period | None
) -> tuple[np.ndarray, list[str]]:
    """The first steps of the whole periods among times, and the end of the last one; the names of
    those that are cut."""
    count = len(times)
    if period is None or period == "horizon":
        return np.arange(0, count + 1, 1 if period is None else count), []
    check_period(freq, period)
    offset = to_offset(freq)
    beside = pd.DatetimeIndex([times[0] - offset, *times, times[-1] + offset])
    every = beside.to_period(PERIODS[period])
    bounds = np.flatnonzero(every[1:] != every[:-1])
    first, last = (bounds[0], bounds[-1]) if len(bounds) else (count, count)
    cut = every[1:-1][:first].append(every[1:-1][last:]).unique()
    return bounds, [f"the {period} of {part.start_time.date()}" for part in cut]


def _sums(
    answer: "Answer",
    intervals: Intervals,
    rows: np.ndarray,
    members: Sequence[int],
    bounds: np.ndarray,
    opened: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The sums (P, K) over periods of the forecasts of some series, and those (M, P, K) of the
    errors of the windows; of the `opened` steps (T, 1)."""
    assert answer.spread is not None
    windows, (_, count, targets) = intervals.held[0], answer.forecasts.shape
    end, begins = bounds[-1], bounds[:-1]
    ahead = (answer.forecasts[members].sum(axis=0) * opened)[:end]
    errors, some = 0.0, max(1, CELLS // (windows * count * targets))
    for first in range(0, len(members), some):
        here = members[first : first + some]
        wider = np.ones(len(here)) if answer.wider is None else answer.wider[here]
        whole = errors_of(intervals, rows[here], wider, count) * answer.spread[here]
        errors = errors + (whole.sum(axis=1) * opened)[:, :end]
    return np.add.reduceat(ahead, begins, axis=0), np.add.reduceat(errors, begins, axis=1)


def quantiles_of(
    sums: np.ndarray, errors: np.ndarray, freedom: np.ndarray, levels: Sequence[float]
) -> np.ndarray:
    """Quantiles (..., P, K, Q) of sums (..., P, K) by the sizes of errors (M, ..., P, K), as those
    of a step (`evaluate.intervals.fitted`): an order statistic, widened from the normal
    distribution to Student's t with `freedom` (P,), how many sums the windows hold side by side."""
    sizes = np.sort(np.abs(errors), axis=0)
    ends = []
    for level in levels:
        number = int(np.ceil(round(abs(2 * level - 1) * (len(sizes) + 1), 9)))
        wider = np.sign(level - 0.5) * _widening(level, freedom)
        ends.append(sums + sizes[max(number, 1) - 1] * np.reshape(wider, (-1, 1)))
    return np.stack(ends, axis=-1) if ends else np.empty((*sums.shape, 0))


def _widening(level: float, freedom: np.ndarray) -> np.ndarray:
    """The quantile of Student's t over that of the normal distribution, to 1 % from 2 degrees of
    freedom on (Abramowitz and Stegun, 26.7.5); what forecasts does without scipy."""
    z = NormalDist().inv_cdf(level) ** 2
    terms = (
        (z + 1) / 4,
        (5 * z**2 + 16 * z + 3) / 96,
        (3 * z**3 + 19 * z**2 + 17 * z - 15) / 384,
        (79 * z**4 + 776 * z**3 + 1482 * z**2 - 1920 * z - 945) / 92160,
    )
    powers = (term / freedom**power for power, term in enumerate(terms, 1))
    return sum(powers, np.ones_like(freedom))
