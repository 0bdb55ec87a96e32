"""What a model holds on the effects of its inputs known ahead, in units and in words."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from forecaster.datasets.calendar import in_units, step_length
from forecaster.datasets.series import quoted
from forecaster.forecast.schema import Schema

SURE = 1.96
"""The half-width of a 95 % interval, in standard errors."""


class Curve(NamedTuple):
    """The effect of an input on a target, in units: the change of the target from its mean when the
    input stays at each of `values`, with the ends of its 95 % interval."""

    input: str
    target: str
    values: np.ndarray
    change: np.ndarray
    low: np.ndarray
    high: np.ndarray


class InputEffect(NamedTuple):
    """By how much one unit of an input moves a target, on average over the training rows and once
    the change has lasted, from `low` to `high` (95 %); None where the training rows do not
    determine it. `lasts` is the time in which half of it is there, None if all is at once.

    In a panel, it holds for a series of the median scale.
    """

    input: str
    target: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    lasts: str | None = None


def rows(schema: Schema) -> list[InputEffect]:
    """A row for each input known ahead and each target; empty if nothing was estimated."""
    found, std = [], _target_std(schema)
    effects = schema.known.effects.found if schema.known.effects else ()
    for place, (name, effect) in enumerate(zip(schema.known.columns, effects, strict=False)):
        for k, target in enumerate(_targets(schema)):
            if not effect.determined:
                found.append(InputEffect(name, target))
                continue
            unit = float(std[k] / _input(schema, place)[1])
            slope, half = effect.slope[k] * unit, SURE * effect.slope_error[k] * unit
            lasts = _span(effect.lasts, schema.freq) if effect.lasts else None
            found.append(InputEffect(name, target, slope, slope - half, slope + half, lasts))
    return found


def curves(schema: Schema) -> Iterator[Curve]:
    """The effects that are determined."""
    effects, std = schema.known.effects, _target_std(schema)
    for place, name in enumerate(schema.known.columns if effects else ()):
        assert effects
        found = effects.found[place]
        mean, deviation = _input(schema, place)
        for k, target in enumerate(_targets(schema) if found.determined else ()):
            change, error = np.array(found.curve[k]), SURE * np.array(found.curve_error[k])
            yield Curve(name, target, mean + deviation * np.array(found.grid), change * std[k],
                        (change - error) * std[k], (change + error) * std[k])  # fmt: skip


def sentences(schema: Schema) -> Iterator[str]:
    """What a unit of each input does, and which inputs the training rows do not determine."""
    for row in rows(schema):
        if row.effect is None or row.low is None or row.high is None:
            continue
        text = f"one more of {row.input}: {row.target} {row.effect:+.3g}"
        text += f" (95 %: {row.low:+.3g} to {row.high:+.3g})"
        if row.low <= 0 <= row.high:
            text += ", which cannot be told from none"
        elif row.lasts:
            text += f", half of it within {row.lasts}"
        yield text
    if unclear := undetermined(schema):
        yield unclear


def undetermined(schema: Schema) -> str:
    """A sentence on the inputs whose effects the training rows do not determine, "" if all do."""
    if not (names := schema.known.unclear):
        return ""
    return (
        f"the training rows do not determine what {quoted(names)} does: it never changes, or only "
        "with the calendar or other inputs; do not trust the forecast for a changed value"
    )


def _span(steps: int, freq: str) -> str:
    """The length of some steps: 12h, or "3 steps" of months."""
    if (length := step_length(freq)) is None:
        return f"{steps} steps"
    count, unit = in_units(length * steps)
    return f"{count}{unit}"


def _targets(schema: Schema) -> tuple[str, ...]:
    return ("every series",) if schema.wide else schema.targets


def _target_std(schema: Schema) -> np.ndarray:
    return np.asarray(np.median(np.atleast_2d(schema.target_scaler.std), axis=0))


def _input(schema: Schema, place: int) -> tuple[float, float]:
    """The mean and the standard deviation of an input."""
    assert schema.known.scaler
    return float(schema.known.scaler.mean[place]), float(schema.known.scaler.std[place])
