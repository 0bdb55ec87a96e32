"""Unusual features of a forecast: its model's figures, its first step, what it was made from.

The usual ranges of histories and changes are measured on the training rows and kept in the bundle;
the figures are those of the test split.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.base.errors import BundleError
from forecaster.base.names import quoted
from forecaster.base.spelling import rounded
from forecaster.datasets.oddities import FALLS, NEVER, falls
from forecaster.forecast.composition import in_words
from forecaster.forecast.intervals import tolerance
from forecaster.forecast.notices import OWN_SCALE, Notice, NoticeCode
from forecaster.record import Backtest

if TYPE_CHECKING:
    from forecaster.datasets.known import KnownInputs
    from forecaster.datasets.windows import Windows
    from forecaster.forecast.predictor import Predictor
    from forecaster.forecast.question import Question
    from forecaster.plan.schema import Schema

TRAITS = (
    "the mean of {}",
    "the standard deviation of {}",
    "the share of missing values of {}",
)
"""The traits measured for each column of a history: its level, its scale, its gaps."""
WINDOWS, VALUES = 2048, 2**24
"""The most training windows that are measured, evenly spaced, and the most values in them."""
CHANGES = 64
"""The number of newest changes from step to step that are measured in each window."""
RARE = 0.001
"""The share of training windows below the usual range of a trait, and of those above."""
SPREAD, MISSING = 3.0, 0.1
"""How far outside its range a trait may be: a mean by the width of the range, but at least by one
standard deviation of the training rows; a standard deviation by the factor SPREAD; a share of
missing values by MISSING above. On the validation windows of ETTh1, ETTh2, ETTm1, ETTm2, weather
and exchange_rate, at most 2 % of the histories are further off."""
JUMP, LEAST = 3.0, 0.5
"""How far a first step may be from the last value: JUMP times the bound on 99 % of all changes, but
at least LEAST standard deviations. On ETTh1's validation windows, the network alone jumps further
in 0.4 % of its forecasts, a ridge regression in none."""
BEYOND = 0.05
"""How far outside its range in training a covariate may be, as a share of that range; at a tenth,
3.5 degrees below the coldest hour of two years went unsaid."""


def traits(values: np.ndarray) -> np.ndarray:
    """The TRAITS (B, 3, C) of histories (B, P, C), scaled, NaN where a value is missing.

    Mean and deviation of a column without values are nan.
    """
    seen = ~np.isnan(values)
    count, complete = seen.sum(axis=1), seen.all()
    with np.errstate(invalid="ignore", divide="ignore"):
        filled = values if complete else np.where(seen, values, 0)
        mean = filled.sum(axis=1) / count
        off = filled - mean[:, None]
        if not complete:
            off *= seen
        std = np.sqrt(np.einsum("bpc,bpc->bc", off, off) / count)
    return np.stack([mean, std, 1 - count / values.shape[1]], axis=1)


@dataclass(frozen=True, eq=False)
class Ranges:
    """The usual ranges in the training rows, scaled.

    `low` and `high` (3, C): the range of each trait over histories, by column; `change` (K,): for
    each target, the bound on 99 % of the changes from one step to the next. For a panel, they cover
    all series together. nan where nothing was measured; nothing is then unusual.
    """

    low: np.ndarray
    high: np.ndarray
    change: np.ndarray

    @classmethod
    def fit(cls, windows: "Windows") -> "Ranges":
        """The ranges of the histories of training windows."""
        from forecaster.datasets.windows import sample

        targets = list(windows.targets)
        most = VALUES // (windows.past * windows.values.shape[1])
        measured, changes = [], []
        for batch in sample(windows, max(1, min(WINDOWS, most))):
            past = batch.past.double()
            if batch.observed is not None:
                past = past.masked_fill(~batch.observed, np.nan)
            values = past.cpu().numpy()
            measured.append(traits(values))
            newest = values[:, -CHANGES - 1 :, targets]
            changes.append(np.abs(np.diff(newest, axis=1)).reshape(-1, len(targets)))
        low, high = _quantiles(np.concatenate(measured), RARE, 1 - RARE)
        return cls(low, high, _quantiles(np.concatenate(changes), 0.99)[0])

    def to_dict(self) -> dict[str, Any]:
        """The ranges as plain JSON types, to six digits."""
        return {name: _plain(getattr(self, name)) for name in ("low", "high", "change")}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], columns: int, targets: int) -> "Ranges":
        """The inverse of `to_dict`, also after JSON. Raises BundleError for anything else."""
        try:
            low, high, change = (
                np.array(state[name], dtype=np.float64) for name in ("low", "high", "change")
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BundleError(
                f"the ranges of the training rows in about.json cannot be read: {error!r}; "
                "fetch the bundle again or train anew"
            ) from None
        if not low.shape == high.shape == (len(TRAITS), columns) or change.shape != (targets,):
            raise BundleError(
                f"the ranges of the training rows do not fit {columns} columns, {targets} targets"
            )
        return cls(low, high, change)

    def unlike(
        self, scaled: np.ndarray, mean: np.ndarray, std: np.ndarray, columns: Sequence[str]
    ) -> Iterator[Notice]:
        """Notices about those of the scaled histories (B, P, C) whose traits are unlike training's.

        `mean` and `std`, (C,) or (B, 1, C), are those of their scaler.
        """
        measured = traits(scaled)
        beyond = np.maximum(self._bounds[0] - measured, measured - self._bounds[1])  # (B, 3, C)
        shape = len(scaled), 1, len(columns)
        mean, std = np.broadcast_to(mean, shape), np.broadcast_to(std, shape)
        for place in np.flatnonzero((beyond > 0).any(axis=(1, 2))):
            sentences = []
            for trait, worst, others in _worst(beyond[place]):
                numbers = (row[trait, worst] for row in (measured[place], self.low, self.high))
                unit = std[place, 0, worst] if trait < 2 else 1.0
                zero = mean[place, 0, worst] if trait == 0 else 0.0
                value, low, high = (rounded(zero + unit * number, 4) for number in numbers)
                name = TRAITS[trait].format(f"'{columns[worst]}'")
                sentences.append(f"{name} is {value}, in training {low} to {high}{others}")
            text = f"the history is unlike the training rows: {'; '.join(sentences)}"
            yield Notice(NoticeCode.UNLIKE_TRAINING, text, int(place))

    def jumps(
        self, last: np.ndarray, first: np.ndarray, std: np.ndarray, targets: Sequence[str]
    ) -> Iterator[Notice]:
        """Notices about forecasts whose `first` step (B, K) is far from the `last` value, in units.

        A missing last value gives no notice. `std` (K,) or (B, K) is that of their scaler.
        """
        std = np.broadcast_to(std, first.shape)
        beyond = np.abs(first - last) / std / np.maximum(JUMP * self.change, LEAST) - 1
        for place, worst, others in _worst(beyond):
            numbers = (
                first[place, worst],
                last[place, worst],
                std[place, worst] * self.change[worst],
            )
            begins, ends, usual = (rounded(number, 4) for number in numbers)
            text = (
                f"the first step of '{targets[worst]}' is {begins}, far from the last value "
                f"{ends}: 99 % of the changes from step to step in training are at most {usual}"
                f"{others}"
            )
            yield Notice(NoticeCode.FIRST_STEP, text, place)

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds, (3, C) each, outside which a trait is unusual."""
        width = np.maximum(self.high[0] - self.low[0], 1)
        low = [self.low[0] - width, self.low[1] / SPREAD, np.full_like(width, -np.inf)]
        high = [self.high[0] + width, self.high[1] * SPREAD, self.high[2] + MISSING]
        return np.stack(low), np.stack(high)


def covariates(known: "KnownInputs", values: np.ndarray) -> Iterator[Notice]:
    """Notices about those of the `values` (B, P + T, K), in units, that leave training's range."""
    low, high = np.array(known.low), np.array(known.high)
    lowest, highest = values.min(axis=1), values.max(axis=1)
    rounding = 1e-6 * np.maximum(np.abs(low), np.abs(high))
    room = BEYOND * (high - low) + rounding
    below, width = low - lowest > highest - high, np.where(high > low, high - low, 1)
    beyond = np.maximum(low - lowest, highest - high) - room
    for place, column, others in _worst(beyond / width):
        extreme = (lowest if below[place, column] else highest)[place, column]
        seen = extreme, low[column], high[column]
        value, least, most = (rounded(number, 4) for number in seen)
        text = (
            "the covariates are unlike those of the training rows: a value of "
            f"'{known.columns[column]}' is {value}, in training {least} to {most}{others}"
        )
        yield Notice(NoticeCode.UNLIKE_COVARIATES, text, place)


def remarks(
    model: "Predictor", question: "Question", forecast: np.ndarray, banded: bool
) -> list[Notice]:
    """Notices about the `forecast` that answers a question. `banded`: whether it has quantiles."""
    history, schema = question.values, model.schema
    _, scaler, places = model._scaled(question)
    counts, new = question.counts, places.tolist()
    notices = [
        Notice(OWN_SCALE.code, OWN_SCALE, place)
        for place, name in enumerate(question.items)
        if schema.items and name not in model.places and place not in new
    ]
    if model.newcomers is not None:
        notices += [model.newcomers.notice(int(counts[place]), banded, place) for place in new]
    counts[new] = model.past  # of them, nothing is left out
    notices += [
        _shortened(model, int(place), int(counts[place]), banded)
        for place in np.flatnonzero(counts < model.needs)
    ]
    if not schema.items:  # a notice for each series of a panel would be false for some
        fall = falls(history[..., list(schema.target_positions)].swapaxes(1, 2), model.form.freq)
        notices += [
            Notice(
                NoticeCode.UNFINISHED,
                f"'{schema.targets[target]}': {FALLS}; if its step is not over, leave it out",
                int(place),
            )
            for place, target in np.argwhere(fall < NEVER)
        ]
    if model.ranges is not None:
        targets = list(schema.target_positions)
        std = scaler.select(tuple(targets)).std.reshape(-1, len(targets))
        last, first = history[:, -1, targets], forecast[:, 0]
        notices += model.ranges.jumps(last, first, std, schema.targets)
        scaled = scaler.transform(history)
        mean, std = (
            np.broadcast_to(moments, (len(history), 1, len(schema.columns)))
            for moments in (scaler.mean, scaler.std)
        )
        counts[new] = 0  # a few rows are unlike many
        for count in np.unique(counts[counts > 0]):  # steps before the rows are not missing
            rows = np.flatnonzero(counts == count)
            unlike = model.ranges.unlike(
                scaled[rows, -count:], mean[rows], std[rows], schema.columns
            )
            notices += [Notice(n.code, n, int(rows[n.place or 0])) for n in unlike]
    if question.covariates is not None and schema.known.low:
        notices += covariates(schema.known, question.covariates)
    return notices


def _shortened(model: "Predictor", place: int, rows: int, banded: bool) -> Notice:
    """A notice about a history that has fewer rows than the model needs."""
    text = f"the history has {rows} of the {model.needs} rows that the model needs: "
    left = model.model.within(rows)
    assert left is not None  # it has forecast
    text += f"forecast by {in_words(left.shares)} alone"
    if banded:
        text += "; the intervals are as wide as those of the whole model"
    return Notice(NoticeCode.SHORT_HISTORY, text, place)


def of_all(model: "Predictor", levels: Sequence[float]) -> Iterator[Notice]:
    """Notices that concern every forecast with quantiles at `levels`: from the test split, and on
    covariates whose effect is not known."""
    if model.unclear:
        yield Notice(NoticeCode.UNCLEAR_EFFECT, model.unclear)
    yield from figures(model.facts.record.test, levels)


def undetermined(schema: "Schema") -> str:
    """A sentence on the inputs whose effects the training rows do not determine, "" if all do."""
    if not (names := schema.known.unclear):
        return ""
    return (
        f"the training rows do not determine what {quoted(names)} does: it never changes, or only "
        "with the calendar or other inputs; do not trust the forecast for a changed value"
    )


def figures(test: Backtest | None, levels: Sequence[float]) -> Iterator[Notice]:
    """Notices from the metrics of the test split about a forecast with quantiles at `levels`."""
    if test is None:
        return
    if test.outcome == "worse":
        yield Notice(NoticeCode.LOST_TO_FLOOR, f"on the test split: {test.verdict}")
    known = {round(level, 9) for level in levels}
    for level in sorted(level for level in known if level < 0.5 and round(1 - level, 9) in known):
        share = 1 - 2 * level
        band = test.band(f"{100 * share:g}")
        covered = band["coverage"] if band else None
        allowed = tolerance(share, test.windows * len(test.columns))
        off = covered is not None and abs(covered - share) > allowed
        if covered is not None and off and not test.calibrated_again:
            which = "narrower" if covered < share else "wider"
            yield Notice(
                NoticeCode.COVERAGE,
                f"the {100 * share:g} % band covered {covered:.1%} of the test values: "
                f"it is {which} than it should be",
            )


def _quantiles(values: np.ndarray, *levels: float) -> np.ndarray:
    """Quantiles (levels, ...) over the first axis, ignoring nan; nan of nothing."""
    if not len(values):  # one step has no changes
        return np.full((len(levels), *values.shape[1:]), np.nan)
    empty = np.isnan(values).all(axis=0)
    quantiles = np.nanquantile(np.where(empty, 0, values), levels, axis=0)
    return np.where(empty, np.nan, quantiles)


def _plain(values: np.ndarray) -> Any:
    """Nested lists, None for nan."""
    if values.ndim:
        return [_plain(value) for value in values]
    return None if np.isnan(values) else float(f"{values:.6g}")


def _worst(beyond: np.ndarray) -> Iterator[tuple[int, int, str]]:
    """The places (from 0) at which some columns are `beyond` (B, C) a limit, by more than 0; the
    one that is furthest, and words about the number of the others."""
    outside = beyond > 0
    for place in np.flatnonzero(outside.any(axis=1)):
        count = int(outside[place].sum()) - 1
        others = f" (and of {count} more column{'s' * (count > 1)})" if count else ""
        yield int(place), int(np.nanargmax(beyond[place])), others
