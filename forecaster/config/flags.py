"""The options that set one value of the configuration, each declared once.

`forecaster train`, `config` and `data check` take their options from this table, and `config.load`
takes the paths of the values. To add an option, add an entry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from forecaster.base.errors import UsageError

T = TypeVar("T")

Features = Literal["M", "S", "MS"]
Policy = Literal["error", "sort", "resample"]
Order = Literal["day-first", "month-first", "year-first"]
Decimal = Literal[".", ","]
Separator = Literal[",", ";", "|", "tab"]
Split = Literal["calendar", "series"]
Blend = Literal["all", "none"]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Flag:
    """An option of the command line.

    `path` is the value that it sets, `kind` the type that the command line checks; the
    configuration reads what is left as text.
    """

    path: str
    help: str
    kind: Any = str


def numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise ValueError("comma-separated numbers from 1, such as 96,336")
    return [int(part) for part in parts]


def names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


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


FLAGS = {
    "attn": Flag("attn.name", "Attention; see `forecaster attentions`."),
    "horizon": Flag("window.horizon", "Steps to forecast.", int),
    "data": Flag(
        "data.name", "A name of `forecaster data list`; or a file, folder, pattern (docs/data.md)."
    ),
    "target": Flag("data.target", "Columns to predict, comma-separated; by default all."),
    "past_covariates": Flag(
        "data.past_covariates", "Columns to read but not to predict, comma-separated."
    ),
    "future_covariates": Flag("data.future_covariates", "Columns known ahead, comma-separated."),
    "static": Flag("data.static", "Columns that are attributes of a series, comma-separated."),
    "features": Flag(
        "data.features", "M: all to all; S: only the target; MS: all to the target.", Features
    ),
    "time": Flag("data.time", "The time column of a file, or several, such as Date,Hour."),
    "stamps": Flag(
        "data.stamps",
        "What comes first in stamps such as 01/02/2020, if the file does not show it.",
        Order,
    ),
    "decimal": Flag(
        "data.decimal", "The decimal sign of a text file, if the file does not show it.", Decimal
    ),
    "separator": Flag("data.separator", "What separates the fields of a text file.", Separator),
    "id": Flag("data.id", "The columns of a file that name its series, comma-separated."),
    "freq": Flag("data.freq", "The time step of a file: 15min, h, D, W-MON, MS."),
    "season": Flag(
        "data.seasons", "Steps of the cycles of a file, comma-separated, the main one first."
    ),
    "policy": Flag(
        "data.policy",
        "What to do about gaps, repeated and unsorted stamps; see docs/data.md.",
        Policy,
    ),
    "missing": Flag("data.missing", "Marks of missing values, comma-separated, such as -9999."),
    "split": Flag(
        "data.split", "Cut a panel at one date, or each series by its own length.", Split
    ),
    "holidays": Flag(
        "data.holidays", "Public holidays for the calendar: a country or state, AU-VIC."
    ),
    "lookback": Flag("window.past", 'Steps to look back, or "21 cycles".'),
    "epochs": Flag(
        "train.epochs",
        "Passes over the training windows, at most; by default a small file gets more.",
        int,
    ),
    "time_limit": Flag(
        "train.time_limit",
        "End the training of the network at the first check after 90s, 5m or 1h.",
    ),
    "blend": Flag(
        "blend",
        "all: the network and closed forms, weighed on validation; none: the network alone.",
        Blend,
    ),
    "refit": Flag("train.refit", "After the evaluation, train once more on all rows.", bool),
    "register": Flag("track.register_model", "Register the model in MLflow.", bool),
    "seed": Flag("seed", "Seed of weights, order and dropout.", int),
    "device": Flag("device", "Where to compute; auto takes CUDA where there is one.", Device),
}
"""Every such option by its name as a keyword, in the order of --help."""
