"""Irregular steps that follow a rule: those of summer time, and closed hours."""

from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.datasets.calendar import DAY, DAYS, holiday_feature, step_length
from forecaster.datasets.reading import Reading

Steps: TypeAlias = NDArray[np.int64]
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges [first, end) of the steps of a week, the first of which begins on Monday."""

HOUR, WEEK, MONDAY = DAY // 24, 7 * DAY, 4 * DAY
CHANGES, NIGHT = (3, 4, 9, 10, 11), 4
"""The months whose Sundays may change the clocks, before the hour NIGHT, on either hemisphere."""
WEEKS, OPEN = 4, 0.9
"""The fewest weeks that show a rule, a month of them, and how often rows are there in open hours
at least: the rest leaves room for holidays and faults."""


def of_summer_time(times: pd.DatetimeIndex, step: int) -> bool:
    """Whether each of these missing or repeated steps may be one that a change of the clocks skips
    or repeats: on one Sunday a year before 4 o'clock, an hour of them at most."""
    sundays = (times.day_of_week == 6) & times.month.isin(CHANGES) & (times.hour < NIGHT)
    counts = times.normalize().value_counts()
    years = pd.DatetimeIndex(counts.index).year
    return bool(sundays.all() and (counts * step <= HOUR).all() and years.is_unique)


def open_hours(times: pd.DatetimeIndex, seen: NDArray[np.bool_], steps: Steps, step: int) -> Ranges:
    """The steps of the week that never have a row, while the others nearly always do; empty without
    such a rule.

    `seen` (N,) says which rows there are, `steps` (N,) the place of each on the grid `times`.
    """
    if DAY % step or len(times) * step < WEEKS * WEEK:
        return ()
    slots = WEEK // step
    place = _slots(times, step)[steps]
    shown, all_ = np.bincount(place[seen], minlength=slots), np.bincount(place, minlength=slots)
    used = shown > 0
    if shown[used].sum() < OPEN * all_[used].sum():
        return ()
    edges = np.flatnonzero(np.diff(~used, prepend=False, append=False))
    return tuple((int(first), int(end)) for first, end in edges.reshape(-1, 2))


def is_closed(times: pd.DatetimeIndex, reading: Reading) -> NDArray[np.bool_]:
    """Whether each time lies in a closed range of the week, or on a closed public holiday."""
    inside = np.zeros(len(times), dtype=bool)
    if reading.holidays:
        inside = holiday_feature(times, reading.holidays)[:, 0] > 0
    step = step_length(reading.freq or "")
    if reading.closed and step is not None:
        slots = _slots(times, step)
        for first, end in reading.closed:
            inside |= (first <= slots) & (slots < end)
    return inside


def closed_on_holidays(
    times: pd.DatetimeIndex, seen: NDArray[np.bool_], steps: Steps, reading: Reading
) -> bool:
    """Whether the steps of a `reading` with `holidays` that lie on them nearly never have a row,
    beside those of closed hours; the rest is as for `open_hours`."""
    off = is_closed(times, replace(reading, closed=()))
    off &= ~is_closed(times, replace(reading, holidays=""))
    return bool(off[steps].any()) and bool((~seen[off[steps]]).mean() >= OPEN)


def _slots(times: pd.DatetimeIndex, step: int) -> Steps:
    """The place in the week of each time, in steps from Monday on."""
    return np.asarray((times.as_unit("us").asi8 - MONDAY) // step % (WEEK // step))


def hours_in_words(closed: Ranges, step: int) -> str:
    """The open hours: "Mon to Fri from 08:00 to 22:00", or how many steps of the week."""
    slots, day = WEEK // step, DAY // step
    used = np.ones(slots, dtype=bool)
    for first, end in closed:
        used[first:end] = False
    days = np.flatnonzero(used.reshape(7, day).any(axis=1))
    names = [DAYS[day_hours].capitalize() for day_hours in days]
    week = ", ".join(names)
    if len(days) > 1 and np.ptp(days) == len(days) - 1:
        week = f"{names[0]} to {names[-1]}"
    day_hours = used.reshape(7, day)[days]
    alike = (day_hours == day_hours[0]).all()
    hours = np.flatnonzero(day_hours[0])
    if not alike or np.ptp(hours) != len(hours) - 1:
        return f"{int(used.sum()):,} of the {slots:,} steps of a week, {week}"
    if day == 1:
        return week
    begin, last = (pd.Timestamp(int(hour) * step, unit="us") for hour in (hours[0], hours[-1]))
    return f"{week}, {begin:%H:%M} to {last:%H:%M}"
