"""Irregular steps that follow a rule: those of summer time, and closed hours."""

from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.datasets.calendar import DAY, DAYS

Steps: TypeAlias = NDArray[np.int64]

HOUR, WEEK, MONDAY = DAY // 24, 7 * DAY, 4 * DAY
CHANGES, NIGHT = (3, 4, 9, 10, 11), 4
"""The months whose Sundays may change the clocks, before the hour NIGHT."""
WEEKS, OPEN = 4, 0.9
"""The fewest weeks that show a rule, and how often rows are there in open hours at least."""


def of_summer_time(times: pd.DatetimeIndex, step: int) -> bool:
    """Whether each of these missing or repeated steps may be one that a change of the clocks skips
    or repeats: on one Sunday a year before 4 o'clock, an hour of them at most."""
    sundays = (times.day_of_week == 6) & times.month.isin(CHANGES) & (times.hour < NIGHT)
    counts = times.normalize().value_counts()
    years = pd.DatetimeIndex(counts.index).year
    return bool(sundays.all() and (counts * step <= HOUR).all() and years.is_unique)


def open_hours(times: pd.DatetimeIndex, seen: NDArray[np.bool_], steps: Steps, step: int) -> Steps:
    """The places in the week, in steps from Monday on, that never have a row, while the others
    nearly always do; empty without such a rule.

    `seen` (N,) says which rows there are, `steps` (N,) the place of each on the grid `times`.
    """
    nothing = np.empty(0, np.int64)
    if step > DAY or WEEK % step or len(times) * step < WEEKS * WEEK:
        return nothing
    slots = WEEK // step
    place = slots_of(times, step)[steps]
    shown, all_ = np.bincount(place[seen], minlength=slots), np.bincount(place, minlength=slots)
    used = shown > 0
    if used.all() or shown[used].sum() < OPEN * all_[used].sum():
        return nothing
    return np.flatnonzero(~used)


def slots_of(times: pd.DatetimeIndex, step: int) -> Steps:
    """The place in the week of each time, in steps from Monday on."""
    return np.asarray((times.asi8 - MONDAY) // step % (WEEK // step))


def hours_in_words(closed: Steps, step: int) -> str:
    """The open hours: "Mon to Fri from 08:00 to 22:00", or how many steps of the week."""
    slots, day = WEEK // step, DAY // step
    used = np.ones(slots, dtype=bool)
    used[closed] = False
    days = np.flatnonzero(used.reshape(7, day).any(axis=1))
    names = [DAYS[each].capitalize() for each in days]
    week = ", ".join(names)
    if len(days) > 1 and np.ptp(days) == len(days) - 1:
        week = f"{names[0]} to {names[-1]}"
    each = used.reshape(7, day)[days]
    alike = (each == each[0]).all()
    hours = np.flatnonzero(each[0])
    if not alike or np.ptp(hours) != len(hours) - 1:
        return f"{int(used.sum()):,} of the {slots:,} steps of a week, {week}"
    if day == 1:
        return week
    first, last = (pd.Timestamp(int(hour) * step, unit="us") for hour in (hours[0], hours[-1]))
    return f"{week}, {first:%H:%M} to {last:%H:%M}"
