"""Which model of a name is served: the rule by which a challenger replaces the champion.

Models are compared by their squared errors on the half of validation that chose nothing, one
stretch of time after another (docs/mlflow.md). This module does not know where models are kept.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

LEAST, MOST = 4, 24
"""Limits on the number of stretches, which is the number of horizons that the windows span: round
numbers; fewer say little of their deviation, and more hardly change it."""
DEVIATIONS = 2.0
"""The number of standard errors by which the mean difference must be below zero: about 95 %."""
ERRORS, MSE = "calibrating_errors", "calibrating_mse"
"""Tags of a version: its errors by stretch, and their mean."""


def stretches(errors: np.ndarray, horizon: int, steps: np.ndarray | None = None) -> list[float]:
    """The mean squared errors of consecutive stretches of windows, rounded to six digits.

    `errors` (n,) are those of the windows, nan where one has no value; the windows start at
    `steps` (n,), by default one step apart.
    """
    real = ~np.isnan(errors)
    errors, steps = errors[real], (np.arange(len(errors)) if steps is None else steps)[real]
    if not len(errors):
        return []
    order = np.argsort(steps, kind="stable")
    held = int(steps[order[-1]] - steps[order[0]] + horizon) // horizon
    parts = np.array_split(errors[order], min(len(errors), max(LEAST, min(MOST, held))))
    return [float(f"{part.mean():.6g}") for part in parts]


TASK = ("data.digest", "borders", "windows")
"""Tags that must agree for errors to be comparable."""


@dataclass(frozen=True)
class Entry:
    """A registered version: its errors by stretch, and what makes those comparable."""

    version: str
    errors: tuple[float, ...]
    task: tuple[str | None, ...]

    @classmethod
    def of(cls, version: str, tags: Mapping[str, str]) -> Self:
        """The entry from the tags of a version; without errors if the tags are not ours."""
        try:
            errors = tuple(float(value) for value in json.loads(tags[ERRORS]))
        except (KeyError, TypeError, ValueError):
            errors = ()
        return cls(version, errors, tuple(tags.get(key) for key in TASK))

    @property
    def mse(self) -> float:
        return math.fsum(self.errors) / len(self.errors) if self.errors else math.nan


def tags_of(errors: Sequence[float], task: Mapping[str, str]) -> dict[str, str]:
    """The tags by which a version is compared later."""
    mse = Entry("", tuple(errors), ()).mse
    return {**task, MSE: f"{mse:.6g}", ERRORS: json.dumps([*errors])}


@dataclass(frozen=True)
class Decision:
    """Whether a model replaces the champion, whether it may be promoted by hand, and why."""

    wins: bool
    open: bool
    reason: str


def decide(entry: Entry, champion: Entry | None, rows: str = "the calibrating half") -> Decision:
    """Decide about a model, given the champion that is served; `rows` are those of the errors."""
    if not math.isfinite(entry.mse):
        return Decision(False, False, f"its MSE on {rows} is {entry.mse}")
    if champion is None:
        return Decision(True, True, "there was none")
    other = f"version {champion.version}"
    pairs = zip(TASK, entry.task, champion.task, strict=True)
    differing = [key for key, mine, its in pairs if mine != its]
    if differing or len(entry.errors) != len(champion.errors):
        words = ", ".join(differing) or ERRORS
        return Decision(
            False, True, f"{other} was judged on other data ({words}), so errors do not compare"
        )
    figures = f"MSE on {rows} {entry.mse:.4g}, {other} has {champion.mse:.4g}"
    apart = np.subtract(entry.errors, champion.errors)
    if apart.mean() >= 0:
        return Decision(False, False, figures)
    if len(apart) < LEAST:
        return Decision(False, True, f"{figures}; {len(apart)} windows are too few to measure it")
    margin = DEVIATIONS * apart.std(ddof=1) / math.sqrt(len(apart))
    if apart.mean() < -margin:
        return Decision(True, True, f"{figures}, measurably more")
    return Decision(False, True, f"{figures}; the difference is not measurable")
