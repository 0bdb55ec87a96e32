"""Irregular rows: those that follow a rule, as in summer time and closed hours, and the others.

They are refused, or repaired as the policy states.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.calendar import DAY, DAYS, holiday_feature, step_length
from forecaster.datasets.reader.grid import find_step
from forecaster.datasets.reader.places import SAMPLE, Irregular, Places
from forecaster.datasets.reader.roles import Roles
from forecaster.datasets.reading import Reading

Steps: TypeAlias = NDArray[np.int64]
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges [first, end) of the steps of a week, the first of which begins on Monday."""

HOUR, WEEK, MONDAY = DAY // 24, 7 * DAY, 4 * DAY
CHANGES, NIGHT = (3, 4, 9, 10, 11), 4
"""The months whose Sundays may change the clocks, before the hour NIGHT, on either hemisphere."""
FEWEST_ALIKE, LONGER = 6, 1.6
"""The fewest distances, one after another and alike, that are another step, LONGER than usual:
holes are rarely alike. Found by trying some 190 files."""

MIXED = 0.1
"""The share of rows that repeat a stamp with other values from which they are other series; fewer
are mistakes, which averaging mends."""

FEWEST, DENSE, UNEVEN, STEADY = 3, 0.6, 0.15, 0.9
"""A series has another step than its table if it has FEWEST rows or more, on at most DENSE of the
table's steps, and STEADY of their distances differ by less than UNEVEN, as those of months do.
Set on made-up panels of several steps (tests/test_cases.py)."""

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


def check_steps(places: Places) -> None:
    """Raise DataError for series with longer steps than the table, or than those of the model.

    Their rows would be taken for the values of single steps: a total of a month for each day.
    """
    reading, freq, items = places.reading, places.freq, places.items
    if reading.policy in ("resample", "rows"):
        return
    rows = sum(np.bincount(owner, minlength=len(items)) for owner in places.owners)
    sparse = np.flatnonzero((rows >= FEWEST) & (rows <= DENSE * items.lengths))[: SAMPLE[0]]
    other: dict[str, list[str]] = {}
    for series in sparse:
        parts = zip(places.owners, places.stamps, strict=True)
        stamps = np.unique(np.concatenate([times[owner == series] for owner, times in parts]))
        with suppress(DataError):
            step, usual = find_step(stamps, np.zeros(len(stamps), np.int64), "")
            steady = (np.abs(np.diff(stamps) / usual - 1) < UNEVEN).mean()
            if step != freq and steady >= STEADY:
                other.setdefault(step, []).append(items.names[series])
    owner, sample = places.sample
    if reading.complete and not other and len(sample) > FEWEST and places.step:
        with suppress(DataError):
            step, usual = find_step(sample, owner, "")
            if usual < places.step / 2:
                other[step] = []
    if not reading.complete and not places.several and (changed := _changes(sample)):
        raise DataError(
            f"{places.where}: the step changes from {changed} to {freq}, or back; "
            "give the rows of each step a file of their own."
        )
    if other and reading.complete:
        raise DataError(
            f"{places.where}: the rows have steps of {quoted([*other])}, the model of "
            f"{freq}; give it rows of {freq}, or train one on such rows."
        )
    if other and len(items) > 1:
        which = " and ".join(f"{quoted(names)} of {step}" for step, names in other.items())
        raise DataError(
            f"{places.where}: the step of the table is {freq}, but that of {which}; give "
            "the series of each step a file of their own, or write the steps between as rows."
        )


def _changes(stamps: NDArray[Any]) -> str:
    """The length of other steps that follow one another in the one series, "" if there are
    none: holes are rarely alike."""
    apart = np.diff(np.unique(stamps))
    usual = int(np.median(apart)) if len(apart) else 0
    far = np.flatnonzero(apart > LONGER * usual)
    runs = far[: max(0, len(far) - FEWEST_ALIKE + 1)]
    runs = runs[far[FEWEST_ALIKE - 1 :] - runs == FEWEST_ALIKE - 1]
    gaps = apart[runs[:, None] + np.arange(FEWEST_ALIKE)]
    alike = (np.abs(gaps / gaps.mean(axis=1, keepdims=True) - 1) < UNEVEN).all(axis=1)
    if not alike.any():
        return ""
    return f"about {pd.Timedelta(int(np.median(gaps[alike.argmax()])), 'us')}"


def excuse(
    places: Places, odd: Irregular, seen: NDArray[np.bool_], repeated: Steps
) -> tuple[Reading, Irregular, Steps]:
    """The reading with closed hours and holidays, if there are any; the irregularities that follow
    no rule; the rows that are missing by a rule: closed, or skipped in summer time.

    `seen` and `repeated` are those of `Places.fill`.
    """
    items, times, step, messages = places.items, places.times, places.step, places.clock.said
    reading = replace(places.reading, freq=places.freq)
    holidays, missing, excused = reading.holidays, odd["gaps"], odd["gaps"][:0]
    if not reading.complete:
        reading = replace(reading, holidays="")
    regular = not len(missing) and not len(repeated)
    if reading.policy == "rows" or regular or (step or 0) > DAY:
        return reading, odd, excused
    steps = items.steps
    again = np.unique(steps[repeated])
    if not reading.complete:
        if step and (closed := open_hours(times, seen, steps, step)):
            reading = replace(reading, closed=closed)
            messages.append(
                f"Open hours: rows from {hours_in_words(closed, step)}; the other steps of a week "
                "are closed, and missing."
            )
        off = replace(reading, holidays=holidays)
        if holidays and closed_on_holidays(times, seen, steps, off):
            reading = off
            messages.append(f"Public holidays of {holidays} are closed, and missing.")
    inside = is_closed(times[steps[missing]], reading)
    excused, missing = missing[inside], missing[~inside]
    changes = times[np.unique(steps[missing])], times[again]
    if (
        step is not None
        and not places.clock.zoned
        and not len(odd["off"])
        and (len(missing) or len(again))
        and all(of_summer_time(change, step) for change in changes)
        and len(odd["unsorted"]) <= len(odd["duplicates"])
    ):
        messages.append(
            f"Summer time: skipped by the clock, and missing: {len(missing):,} steps; "
            f"repeated, and averaged: {len(odd['duplicates']):,}."
        )
        return reading, dict.fromkeys(odd, missing[:0]), np.union1d(excused, missing)
    return reading, {**odd, "gaps": missing}, excused


def judge(places: Places, odd: Irregular, roles: Roles) -> None:
    """Raise DataError if the policy does not allow the irregularities."""
    by_sort = {
        "unsorted": "rows out of order",
        "gaps": f"missing steps of {places.freq}",
        "duplicates": "repeated stamps",
    }
    by_resample = {
        "differing": "repeated stamps with other values",
        "off": f"stamps that do not fit a step of {places.freq}",
    }
    refused = {
        "error": by_sort | by_resample, "sort": by_resample, "resample": {},
        "rows": {"unsorted": by_sort["unsorted"]},
    }[places.reading.policy]  # fmt: skip
    complaints = [
        f"{what}: {len(rows)} (the first is {places.shown(kind, int(rows[0]))})"
        for kind, what in refused.items()
        if len(rows := odd[kind])
    ]
    if complaints:
        remedies = _remedies(places, odd, roles)
        raise DataError(f"{places.where}: {'; '.join(complaints)}. {' '.join(remedies)}")


def _remedies(places: Places, odd: Irregular, roles: Roles) -> list[str]:
    """What to do about irregularities: only what leads to the right series."""
    reading, step = places.reading, places.step
    gaps, duplicates = len(odd["gaps"]), len(odd["duplicates"])
    if duplicates and not reading.complete and (parts := roles.other_parts(reading)):
        return [parts + "."]
    alone = duplicates and not places.several
    if alone and (apart := roles.distinguishing(reading)):
        return [
            f"Column{'s' * (len(apart) > 1)} {quoted(apart)} tell{'s' * (len(apart) == 1)} "
            "apart the rows of one stamp: "
            f"{spelled('id', [*apart])} reads them as several series."
        ]
    remedies = []
    differing = len(odd["differing"])
    mixed = differing and duplicates > MIXED * places.count
    if not mixed and (differing or len(odd["off"])):
        remedies.append(
            f"{spelled('policy', 'resample')} averages the rows that share a step, and leaves "
            "gaps missing."
        )
    elif not mixed:
        remedies.append(
            f"{spelled('policy', 'sort')} orders the rows, drops repetitions and leaves gaps "
            "missing."
        )
    if gaps and reading.future_covariates and not reading.fill:
        remedies.append(f"{spelled('fill', 'linear')} fills what is known ahead.")
    if alone:
        remedies.append(
            f"If the file holds several series, {spelled('id')} names the columns that "
            "identify them."
        )
    if duplicates and not reading.complete:
        remedies.append(
            f"If several columns give the time, {spelled('time')} names them, as in "
            f"{spelled('time', ['Date', 'Hour'])}."
        )
    daily = places.freq == "B" or (step is not None and step <= DAY)
    if gaps and daily and not reading.complete and not reading.holidays:
        remedies.append(
            f"If they are public holidays, {spelled('holidays')} names the country or state "
            "whose they are, such as DE, and they count as closed."
        )
    if (gaps or duplicates) and not places.clock.zoned and step is not None and step < DAY:
        remedies.append(
            "Local time with daylight saving does this; stamps in UTC or with their offset do not."
        )
    return remedies
