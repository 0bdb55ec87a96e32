"""The options that set one value of the configuration.

`forecaster train`, `config` and `data check` take their options from this table; the field of
`RunConfig` that an option sets has its help and its type. To add an option, add an entry.
"""

import csv
from collections.abc import Callable
from typing import Literal, TypeVar

from forecaster.base.errors import UsageError

T = TypeVar("T")

Features = Literal["M", "S", "MS"]
Policy = Literal["error", "sort", "resample"]
Order = Literal["day-first", "month-first", "year-first"]
Decimal = Literal[".", ","]
Separator = Literal[",", ";", "|", "tab"]
Split = Literal["calendar", "series"]
Blend = Literal[
    "all", "none", "last value", "seasonal naive", "cycle mean", "smoothing", "boosted",
    "ridge", "calendar ridge", "level ridge", "chronos",
]  # fmt: skip
Device = Literal["auto", "cpu", "cuda"]


def numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise ValueError("comma-separated numbers from 1, such as 96,336")
    return [int(part) for part in parts]


def names(text: str) -> list[str]:
    """The names in a text with commas between; a name in quotes may have a comma itself."""
    parts = next(csv.reader([text], skipinitialspace=True), [])
    return [part.strip() for part in parts if part.strip()]


def seconds(text: str) -> float:
    """A time such as 90, 90s, 5m or 1.5h, in seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    if not number.replace(".", "", 1).isdecimal() or not float(number):
        raise ValueError("seconds above 0, or a time such as 90s, 5m or 1h")
    return float(number) * _UNITS[unit]


_UNITS = {"s": 1, "m": 60, "h": 3600}


def parse(option: str, read: Callable[[str], T], text: str) -> T:
    """The value of an option's text. Raises UsageError stating what `read` expects."""
    try:
        return read(text)
    except ValueError as error:
        raise UsageError(f"{option}: expected {error}, got '{text}'") from None


_COLUMNS = ("target", "past_covariates", "future_covariates", "static", "categorical", "features")
_FORM = ("time", "stamps", "decimal", "separator", "sheet", "id", "freq")
_VALUES = ("policy", "missing", "fill", "min", "max", "split", "holidays", "drop_last")
FLAGS = {
    "attn": "attn.name",
    "horizon": "window.horizon",
    "data": "data.name",
    **{name: f"data.{name}" for name in (*_COLUMNS, *_FORM)},
    "season": "data.seasons",
    **{name: f"data.{name}" for name in _VALUES},
    "lookback": "window.past",
    **{name: f"train.{name}" for name in ("epochs", "time_limit")},
    "blend": "blend",
    "part": "part",
    "refit": "train.refit",
    "register": "track.register_model",
    **{name: name for name in ("seed", "device")},
}
"""The value that each such option sets, by its dotted name, in the order of --help."""
