"""New series of a panel, with few rows or none: the series of training stand in for the others.

Ridge regression on static attributes gives level, spread and typical values over the main cycle. A
new series is scaled by these and by its rows, and filled with typical values before its first one:
so all parts forecast it. Those that need no more rows did up to 10 % worse (docs/evaluation.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.base.errors import BundleError
from forecaster.datasets.calendar import phase_weights
from forecaster.datasets.card import End
from forecaster.datasets.dataset import Series
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.notices import Notice, NoticeCode
from forecaster.forecast.question import Question
from forecaster.plan.schema import Schema
from forecaster.record import NewSeries

if TYPE_CHECKING:
    from numpy.typing import NDArray

PULL = 1.0
"""What pulls the effect of an attribute towards none: as much as one further series without it."""
CYCLES = 4
"""The spread of a few rows is that of a part of the cycle: attributes count these cycles more for
it than for the level. On chains of shops, 1 was up to 3 % worse and 8 as good."""
LONGEST = 336
"""The longest cycle that has typical values: the half hours of a week."""
LOWEST = 0.1
"""The least typical value, as a share of the level, by which a row is divided to find the level."""


@dataclass(frozen=True, eq=False)
class Newcomers:
    """What the static attributes of a new series tell, and how much that counts beside its rows.

    effects (1 + J, C, 2 + season) hold the traits of a series without attributes, and what each of
    the J features of attributes adds: the level, the logarithm of the spread, and the typical
    values, scaled, by place in the cycle. Where the level of all series is positive, it is a
    logarithm, too, and the spread relative to it. `measured` on known series (`evaluate.newcomers`)
    were the rows that attributes are worth, and how wide bands are.
    """

    schema: Schema
    effects: "NDArray[np.float64]"
    measured: NewSeries

    def __post_init__(self) -> None:
        """Raise BundleError for effects of another shape."""
        width = sum(attribute.width for attribute in self.schema.known.attributes)
        shape = 1 + width, len(self.schema.columns), 2 + _cycle(self.schema)[0]
        if self.effects.shape != shape:
            raise BundleError(f"expected effects {shape} of attributes, got {self.effects.shape}")

    def traits(self, static: Mapping[str, Any], new: "NDArray[np.int64]") -> np.ndarray:
        """The traits (B, C, 2 + season) of the `new` ones of series, by their attributes."""
        chosen = {name: [values[place] for place in new] for name, values in static.items()}
        features = _features(self.schema, chosen, len(new))
        # not a product of matrices, which would round by the size of the batch
        parts = zip(features.T, self.effects, strict=True)
        return np.asarray(sum(feature[:, None, None] * effect for feature, effect in parts))

    def scaler(
        self, traits: np.ndarray, values: np.ndarray, phases: np.ndarray, worth: float
    ) -> Scaler:
        """The scaler, arrays (B, 1, C), of series with rows (B, P, C), NaN where missing, at places
        (B, P) in the cycle, if `traits` are `worth` that many rows.

        The level is that at which the rows are, on average, as high as they typically are there.
        """
        seen = ~np.isnan(values)
        count = seen.sum(axis=1)
        share, rows = count / (count + worth), np.maximum(count, 1)
        mean = np.where(seen, values, 0).sum(axis=1) / rows
        variance = (np.where(seen, values - mean[:, None], 0) ** 2).sum(axis=1)
        usual = np.where(seen, typical(traits, phases), 0).sum(axis=1) / rows
        positive, *known = _scales(self.schema)
        level, spread = (  # no attribute makes a series larger than any, or smaller
            np.clip(traits[..., place], of.min(axis=0), of.max(axis=0))
            for place, of in enumerate(known)
        )
        level, spread = np.where(positive, np.exp(level * positive), level), np.exp(spread)
        alone = mean / np.maximum(1 + spread * usual, LOWEST)
        alone = np.where(positive, alone, mean - spread * usual)
        first = share * alone + (1 - share) * level
        spread = np.where(positive, spread * np.abs(first), spread)
        worth = worth + CYCLES * (traits.shape[2] - 2)
        std = np.sqrt((variance + worth * spread**2) / (count + worth))
        level = share * (mean - std * usual) + (1 - share) * level
        return Scaler(level[:, None], np.where(std > 0, std, 1)[:, None])

    def filled(
        self,
        question: Question,
        new: "NDArray[np.int64]",
        calendar: np.ndarray,
        traits: np.ndarray | None = None,
    ) -> tuple[Question, Scaler]:
        """The question with typical values before the first row of each `new` series, and there the
        training mean of covariates; and the scaler of the new ones.

        calendar (new, P, F or more) are the features of their steps; `traits` are by default those
        that their attributes give.
        """
        traits = self.traits(question.static, new) if traits is None else traits
        values, rows = question.values.copy(), question.counts
        past, phases = values.shape[1], places(self.schema, calendar)
        scaler = self.scaler(traits, values[new], phases, self.measured.worth)
        before = (np.arange(past) < past - rows[new, None])[..., None]
        traits = self.like(
            traits, scaler.transform(values[new]), phases, self.measured.worth_in_cycle
        )
        values[new] = np.where(before, scaler.inverse(typical(traits, phases)), values[new])
        covariates, known = question.covariates, self.schema.known.scaler
        if covariates is not None and known is not None:
            covariates = covariates.copy()
            covariates[new, :past] = np.where(before, known.mean, covariates[new, :past])
        rows[new] = past
        return replace(question, values=values, covariates=covariates, rows=rows.tolist()), scaler

    def like(
        self, traits: np.ndarray, scaled: np.ndarray, phases: np.ndarray, worth: float
    ) -> np.ndarray:
        """The traits with typical values between these, if they are `worth` that many rows at each
        place in the cycle, and those of scaled rows (B, P, C)."""
        away, traits = scaled - typical(traits, phases), traits.copy()
        sums, counts = np.zeros((2, len(traits), traits.shape[2] - 2, traits.shape[1]))
        at = np.arange(len(traits))[:, None], phases
        np.add.at(sums, at, np.nan_to_num(away))
        np.add.at(counts, at, ~np.isnan(away))
        traits[..., 2:] += (sums / (counts + worth)).swapaxes(1, 2)
        return traits

    def widths(self, rows: "NDArray[np.int64]") -> np.ndarray:
        """How many times as wide bands are after numbers of rows."""
        return np.interp(rows, self.measured.rows, self.measured.widths)

    def notice(self, rows: int, banded: bool, place: int) -> Notice:
        """What stands in for the rows that a series lacks. `banded`: whether it has quantiles."""
        measured, wider = self.measured, float(self.widths(np.array(rows)))
        by = ", by static attributes," * bool(self.schema.known.attributes)
        text = f"it is new, with {rows or 'no'} row{'s' * (rows != 1)}: for those before, and "
        text += f"{measured.worth / (rows + measured.worth):.0%} of its level{by} the "
        text += f"{measured.series:,} series of training stand in"
        text += f"; its bands are {wider:.1f} times as wide" * (banded and wider >= 1.05)
        return Notice(NoticeCode.NEW_SERIES, text, place)


def places(schema: Schema, calendar: np.ndarray) -> np.ndarray:
    """The places in the cycle (B, P) of steps, by their calendar features (B, P, F or more)."""
    season, weights = _cycle(schema)
    steps = (calendar[..., : len(weights)].astype(np.float64) + 0.5) @ np.array(weights)
    return np.asarray(np.floor(steps + 1e-2).astype(np.int64) % season)  # as parts_of_cycle


def typical(traits: np.ndarray, phases: np.ndarray) -> np.ndarray:
    """The typical values (B, P, C), scaled, at places in the cycle (B, P)."""
    return np.take_along_axis(traits[..., 2:].swapaxes(1, 2), phases[..., None], axis=1)


def fit(
    schema: Schema, series: Series, last: End, past: int, which: "NDArray[np.int64]"
) -> tuple[Newcomers, np.ndarray]:
    """What attributes tell by the series `which` (S,), and the traits (S, C, 2 + season) that they
    give each of them when it is left out.

    Typical are the values of the newest `past` rows before step `last`; what was measured is blank.
    """
    items, season = series.layout, _cycle(schema)[0]
    mean, std = schema.scaler.mean[which], schema.scaler.std[which]
    end = items.rows_before(last)[which, None] + np.arange(-past, 0)
    there, end = end >= 0, np.maximum(end, 0)
    values = (series.values[items.bounds[which, None] + end] - mean[:, None]) / std[:, None]
    seen = there[..., None] & ~np.isnan(values)
    phases = places(schema, schema.calendar(series.times)[None])[0][items.places[which, None] + end]
    sums, counts = np.zeros((2, len(which), season, values.shape[2]))
    at = np.arange(len(which))[:, None], phases
    np.add.at(sums, at, np.where(seen, values, 0))
    np.add.at(counts, at, seen)
    whole = sums.sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
    usual = np.where(counts > 0, sums / np.maximum(counts, 1), whole[:, None])
    _, level, spread = _scales(schema)
    scales = np.stack([level[which], spread[which]], axis=1)
    traits = np.concatenate([scales, usual], axis=1).swapaxes(1, 2)
    static = {name: words[which] for name, words in series.static.items()}
    features = _features(schema, static, len(which))
    pull = np.diag([0.0, *[PULL] * (features.shape[1] - 1)])
    inverse = np.linalg.solve(features.T @ features + pull, features.T)
    effects = np.tensordot(inverse, traits, axes=1)
    leverage = (features * inverse.T).sum(axis=1)[:, None, None]
    others = np.tensordot(features, effects, axes=1) - leverage * traits
    blank = NewSeries(series=len(which), worth=1, worth_in_cycle=1)
    newcomers = Newcomers(schema, effects, blank)
    return newcomers, others / np.maximum(1 - leverage, 1e-3)  # of one series, nothing is left


def _scales(schema: Schema) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns (C,) whose level is positive in all series of training, and the levels and
    spreads (S, C) of these, as traits have them."""
    mean, std = schema.scaler.mean, schema.scaler.std
    positive = np.asarray((mean > 0).all(axis=0))
    size = np.where(positive, mean, 1)
    return positive, np.where(positive, np.log(size), mean), np.log(std / size)


def _features(schema: Schema, static: Mapping[str, Any], count: int) -> np.ndarray:
    """The features (B, 1 + J) of static attributes, after a 1."""
    encoded = [schema.known.encode(static)] if schema.known.attributes else []
    return np.concatenate([np.ones((count, 1)), *encoded], axis=1)


def _cycle(schema: Schema) -> tuple[int, tuple[float, ...]]:
    """The main season and what gives a step's place in it, as in `phase_weights`; (1, ()) for a
    season that the calendar does not know."""
    season = schema.reading.seasons[0]
    weights = phase_weights(schema.freq, season) if season <= LONGEST else ()
    return (season, weights) if weights else (1, ())
