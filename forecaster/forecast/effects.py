"""What inputs known ahead do to the forecast that is served, measured by asking it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from forecaster.base.spelling import rounded
from forecaster.datasets.dataset import Series
from forecaster.forecast.history import History, following
from forecaster.forecast.question import Question
from forecaster.forecast.unusual import undetermined
from forecaster.plan.schema import Schema
from forecaster.record import InputEffect

if TYPE_CHECKING:
    from forecaster.forecast.bundle import Bundle
    from forecaster.forecast.predictor import Predictor

HISTORIES, FEWEST, FORECASTS, VALUES = 256, 4, 5_000, 2**23
"""The most histories that are asked about, and the fewest; the most forecasts of all changes
together, and values of all histories: less than judging the test split takes."""
GRID, CURVES = 9, 100
"""The points of a curve, if an input has more different values; the most pairs of an input and a
target that get curves."""
MIDDLE = (10, 90)
"""The percentiles of the histories that are told beside their mean."""


def measure(model: "Predictor", series: Series) -> tuple[InputEffect, ...]:
    """What each input known ahead does to each target, asked about the newest rows of `series`.

    A history is forecast with the input half a standard deviation higher and lower at every step of
    the horizon; off and on, if it takes two values; and with a word at every step, against the
    words as they were. Empty where no history is long enough.
    """
    known, past, targets = model.schema.known, model.form.past, _targets(model.schema)
    if series.known is None:
        return ()
    if (question := _question(model, series.select(model.form.columns))) is None:
        return ()
    covariates, words = question.covariates, _words(model.schema)
    assert covariates is not None

    def ask(place: int, to: np.ndarray | float) -> np.ndarray:
        """The mean forecasts (B, targets) with an input at `to`, and no other word beside one."""
        changed = covariates.copy()
        changed[:, past:, words.get(known.columns[place], [])] = 0
        changed[:, past:, place] = to
        return np.asarray(
            model.forecast_quantiles(replace(question, covariates=changed))[0].mean(axis=1)
        )

    deviation = known.scaler.std if known.scaler else ()
    was, effects = ask(0, covariates[:, past:, 0]), []
    for place, name in enumerate(known.columns):
        levels, held = np.unique(series.known[:, place]), []
        grid = levels
        if len(levels) > GRID:
            grid = np.linspace(known.low[place], known.high[place], GRID)
        if name in known.unclear or len(levels) < 2:
            effects += [InputEffect(input=name, target=target) for target in targets]
            continue
        if name not in words and (len(levels) == 2 or len(known.columns) * len(targets) <= CURVES):
            held = [ask(place, value) - was for value in grid.tolist()]
        if name in words:
            moved = ask(place, 1.0) - was
        elif len(levels) == 2:
            moved = (held[1] - held[0]) / (levels[1] - levels[0])
        else:  # a usual change: trees do not see one that is too small
            step, now = float(deviation[place]), covariates[:, past:, place]
            moved = (ask(place, now + step / 2) - ask(place, now - step / 2)) / step
        for k, target in enumerate(targets):
            stays = zip(grid.tolist(), held, strict=False)
            curve = [(value, *_summary(shift[:, k])) for value, shift in stays]
            effect, low, high = _summary(moved[:, k])
            effects.append(InputEffect(input=name, target=target, effect=effect, low=low, high=high,
                                     forecasts=len(moved), curve=tuple(curve)))  # fmt: skip
    return tuple(effects)


def sentences(bundle: "Bundle") -> Iterator[str]:
    """What a unit of each input does, and which inputs the training rows do not determine."""
    words = _words(bundle.schema)
    for row in bundle.record.effects:
        if row.effect is not None:
            change = f"one more of {row.input}"
            if row.input in words:
                change = f"{row.input} throughout"
            elif row.is_flag:
                change = f"{row.input} on rather than off"
            ends = row.effect, row.low, row.high
            moved, low, high = (rounded(end or 0.0, sign="+") for end in ends)
            text = f"{change}: {row.target} {moved} on average over the horizon"
            yield text + f" ({low} to {high} in 80 % of forecasts)" * (low != high)
    if unclear := undetermined(bundle.schema):
        yield unclear


def _question(model: "Predictor", series: Series) -> Question | None:
    """Histories that end in the newest season whose horizon is known: of evenly spaced series of a
    panel, or at evenly spaced steps."""
    form, items = model.form, series.layout
    longest = int(items.lengths.max()) - form.horizon
    if longest < form.least:
        return None
    able = np.flatnonzero(items.lengths - form.horizon >= min(form.needs, longest))
    inputs, size = len(model.schema.known.columns), form.past * len(form.columns)
    most = max(FEWEST, min(HISTORIES, FORECASTS // (inputs * (GRID + 2)), VALUES // size))
    which = able[np.unique(np.linspace(0, len(able) - 1, most).round().astype(int))]
    season = form.reading.seasons[0]
    turns = max(1, min(most // len(which), season))
    drop = form.horizon + np.tile(np.arange(turns) * season // turns, len(which))
    which = np.repeat(which, turns)
    fits = items.lengths[which] - drop >= min(form.needs, longest)
    history = History(
        form, form.horizon, [], series, which, following(series, form.horizon),
        where="the data", short="drop",
    )  # fmt: skip
    which, drop = which[fits], drop[fits]
    seen = ~np.isnan(history.question(which, drop).values).all(axis=1).any(axis=1)
    return history.question(which[seen], drop[seen]) if seen.any() else None


def _words(schema: Schema) -> dict[str, list[int]]:
    """The places of all words of the same input, by the column of each word."""
    place = {name: at for at, name in enumerate(schema.known.columns)}
    reading = schema.reading
    words: dict[str, list[int]] = {}
    for name in reading.categories:
        parts = reading.read_as([name])
        words |= {part: [place[word] for word in parts] for part in parts if part in place}
    return words


def _summary(values: np.ndarray) -> tuple[float, float, float]:
    """The mean and the MIDDLE percentiles of values (B,)."""
    return float(values.mean()), *np.percentile(values, MIDDLE).tolist()


def _targets(schema: Schema) -> tuple[str, ...]:
    return ("every series",) if schema.wide else schema.targets
