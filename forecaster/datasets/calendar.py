"""Time steps: their names, the steps that follow a stamp, and the calendar features of stamps."""

import re
from typing import TYPE_CHECKING

from forecaster.base.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

# Step units of pandas, and the calendar features that distinguish their steps (Informer's timeF,
# in its order).
_DATE = ("weekday", "day", "yearday")
_FEATURES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("us", "ms", "s"), ("second", "minute", "hour", *_DATE)),
    "min": ("minute", "hour", *_DATE),
    "h": ("hour", *_DATE),
    **dict.fromkeys(("D", "B"), _DATE),
    "W": ("day", "week"),
    **dict.fromkeys(("ME", "MS", "QE", "QS", "YE", "YS"), ("month",)),
}
# For each feature: the attribute of the stamps, its smallest value, its range.
_SCALES = {
    "second": ("second", 0, 59),
    "minute": ("minute", 0, 59),
    "hour": ("hour", 0, 23),
    "weekday": ("day_of_week", 0, 6),
    "day": ("day", 1, 30),
    "yearday": ("day_of_year", 1, 365),
    "week": ("week", 1, 52),
    "month": ("month", 1, 11),
}
# The names in older tools and other clients.
_ALIASES = {
    "H": "h", "T": "min", "S": "s", "L": "ms", "U": "us", "d": "D", "b": "B", "w": "W", "M": "ME",
    "Q": "QE", "A": "YE", "Y": "YE", "AS": "YS",
}  # fmt: skip
DAY = 86_400_000_000
UNITS = {"D": DAY, "h": DAY // 24, "min": DAY // 1440, "s": 1_000_000, "ms": 1000, "us": 1}
"""The units of a fixed length, in microseconds, the longest first."""
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_ANCHORS = {
    "W": (DAYS, "SUN"),
    **dict.fromkeys(("QE", "YE"), (MONTHS, "DEC")),
    **dict.fromkeys(("QS", "YS"), (MONTHS, "JAN")),
}
_STEP = re.compile(r"(?P<count>[0-9]{0,6})(?P<unit>[A-Za-z]+)(?:-(?P<anchor>[A-Z]{3}))?")


def in_units(length: int) -> tuple[int, str]:
    """A length in microseconds as a number of the largest unit that divides it."""
    unit = next(unit for unit, size in UNITS.items() if length % size == 0)
    return length // UNITS[unit], unit


def parse_step(text: str) -> tuple[int, str, str | None]:
    """The count, unit and anchor of a step."""
    match = _STEP.fullmatch(text.strip())
    if match:
        count = int(match["count"] or 1)
        unit = _ALIASES.get(match["unit"], match["unit"])
        anchors, default = _ANCHORS.get(unit, ((), None))
        anchor = match["anchor"] or default
        if unit in _FEATURES and count > 0 and (anchor is None or anchor in anchors):
            if unit in UNITS:
                count, unit = in_units(count * UNITS[unit])
            return count, unit, anchor
    raise DataError(
        f"unknown time step '{text}'. Expected a whole number (1 if left out) and a unit: "
        f"{' '.join(_FEATURES)}, for example h, 15min, D, W-MON, MS."
    )


def normalise_freq(text: str) -> str:
    """Spell a time step as pandas 3 does.

    Old aliases are understood (H -> h, 15T -> 15min, M -> ME), whole multiples get the larger
    unit (60min -> h, 24h -> D), and anchors are written out (W -> W-SUN). Raises DataError
    naming valid steps.
    """
    count, unit, anchor = parse_step(text)
    return (str(count) if count > 1 else "") + unit + (f"-{anchor}" if anchor else "")


def step_length(freq: str) -> int | None:
    """The length of a step in microseconds, or None if it depends on the calendar."""
    count, unit, _ = parse_step(freq)
    return count * UNITS[unit] if unit in UNITS else None


def future_times(last: "pd.Timestamp", periods: int, freq: str) -> "pd.DatetimeIndex":
    """The `periods` stamps that follow `last`. Raises DataError beyond the year 9999."""
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    offset = to_offset(normalise_freq(freq))
    try:
        times = pd.date_range(last + offset, periods=periods, freq=offset, unit="us")
        too_far = periods > 0 and times[-1].year > 9999
    except (OverflowError, ValueError):  # pandas' OutOfBoundsDatetime is a ValueError
        too_far = True
    if too_far:
        raise DataError(f"{periods} steps of {freq} after {last} lie beyond the year 9999.")
    return times


def calendar_names(freq: str) -> tuple[str, ...]:
    """The calendar features of a step, in order."""
    return _FEATURES[parse_step(freq)[1]]


def calendar_features(times: "pd.DatetimeIndex", freq: str) -> "NDArray[np.float32]":
    """The calendar features (N, F) of N stamps, each scaled to [-0.5, 0.5].

    Informer's `timeF` (Zhou et al. 2021, the authors' code): second/59, minute/59, hour/23,
    weekday/6 with Monday 0, (day-1)/30, (yearday-1)/365, (month-1)/11, (ISO week-1)/52, each
    minus 0.5.
    """
    import numpy as np

    def feature(name: str) -> "NDArray[np.float64]":
        attribute, first, span = _SCALES[name]
        source = times.isocalendar() if name == "week" else times
        count = np.asarray(getattr(source, attribute), dtype=np.float64)
        return (count - first) / span - 0.5

    features = [feature(name) for name in calendar_names(freq)]
    return np.stack(features, axis=1).astype(np.float32)


def check_region(region: str) -> str:
    """Check and return the name of a region with known public holidays: a country or COUNTRY-STATE.

    Raises DataError naming the known regions.
    """
    import holidays

    country, _, state = region.partition("-")
    known = holidays.list_supported_countries()
    if country not in known or (state and state not in known[country]):
        parts = f"; {country} has the parts {', '.join(known[country])}" if country in known else ""
        raise DataError(
            f"no public holidays of '{region}' are known. Expected a country code of two letters, "
            f"such as DE, or a country with a state, such as AU-VIC{parts}."
        )
    return region


def holiday_feature(times: "pd.DatetimeIndex", region: str) -> "NDArray[np.float32]":
    """Whether the date of each of N stamps is a public holiday of the region, (N, 1) of +-0.5.

    The dates are read from the stamps as they are, in UTC or in local time.
    """
    import holidays
    import numpy as np

    country, _, state = check_region(region).partition("-")
    years = range(times[0].year, times[-1].year + 1) if len(times) else ()
    days = holidays.country_holidays(country, subdiv=state or None, years=years)
    dates = np.array(sorted(days), dtype="datetime64[D]")
    off = np.isin(times.to_numpy().astype("datetime64[D]"), dates)
    return (off - np.float32(0.5))[:, None].astype(np.float32)


def phase_weights(freq: str, season: int) -> tuple[float, ...]:
    """Weights w (F,) such that floor(sum_f w_f (feature_f + 1/2)) is a step's place in its season.

    They exist for seasons of a day, a week or a year whose steps the features distinguish;
    otherwise the result is ().
    """
    count, unit, _ = parse_step(freq)
    seconds = UNITS.get(unit, 0) // 1_000_000 * count
    parts = {
        (86400, True): {"hour": 3600, "minute": 60, "second": 1},
        (7 * 86400, True): {"weekday": 86400, "hour": 3600, "minute": 60, "second": 1},
    }.get((season * seconds, seconds > 0))
    if unit in ("ME", "MS") and count == 1 and season == 12:
        parts, seconds = {"month": 1}, 1
    names = calendar_names(freq)
    if parts is None or (season * seconds == 86400 and "hour" not in names):
        return ()
    return tuple(_SCALES[name][2] * parts.get(name, 0) / seconds for name in names)
