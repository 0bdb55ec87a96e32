"""What inputs known ahead do to the targets: estimated once, taken out of the history for every
part of a model, and added to its forecast.

A part that learns the level of a series from its past follows a covariate only weakly: most of what
the covariate did is in the past values too. So the effects are estimated apart, on differences over
a season, where the calendar and slow changes cancel: regression with errors that other models
describe (Harvey, Forecasting, Structural Time Series Models, 1989, chapter 7). Each covariate acts
linearly at first; bends at KNOTS values and means over its last steps are added, as long as they
help across blocks of time.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from forecaster.datasets.dataset import Items
from forecaster.datasets.known import Effects, Term, Terms, tuples

Array = NDArray[np.floating[Any]]

KNOTS = 8
"""The number of bends of an effect, evenly spaced from the quantile 2 % to that of 98 %: on the
fewer rows outside, a slope would be too uncertain to go on with beyond the range."""
SHAPED = 8
"""With more covariates than that, all act linearly and at once."""
BETTER, EARNED = 0.99, 0.997
"""The effects are used if the error with them, across blocks of time, is at most this share of that
without; each further term has to reduce it to this share."""
BEYOND = 0.8
"""The share of its slope with which an effect goes on outside the training range, where the data
cannot say whether it goes on at all."""
UNSURE = 0.25
"""An effect with a greater standard error is not determined: in standard deviations of the target
for one of the covariate."""
PENALTY, FOLDS, SEASONS, ROWS = 1e-4, 10, 4, 200_000
"""The ridge penalty; the blocks of time; the seasons that a training series has to hold to be
differenced over them; the most rows to estimate from."""
LASTING = 5
"""The memory of an effect, in half-lives."""


class Shift(nn.Module):
    """What covariates do to the targets, both scaled.

    The covariates begin at the feature `first`. Windows of `steps` are mapped to their recent means
    by a matrix; without `steps`, `forward` takes one stretch of any length.
    """

    weights: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, effects: Effects, first: int = 0, steps: int | None = None) -> None:
        super().__init__()
        self.columns, self.terms = slice(first, first + len(effects.low)), effects.terms
        for name in ("weights", "low", "high"):
            values = torch.tensor(getattr(effects, name), dtype=torch.float64)
            self.register_buffer(name, values)
        delays = {(term.half_life, term.memory) for term in effects.terms if term.half_life}
        self.means: dict[tuple[float, int], str] = {}
        for place, delay in enumerate(sorted(delays) if steps else ()):
            self.means[delay] = f"mean{place}"
            matrix = np.stack([recent_mean(row, *delay) for row in np.eye(steps or 0)])
            self.register_buffer(f"mean{place}", torch.from_numpy(matrix))

    def forward(self, known: Tensor) -> Tensor:
        """(..., n, targets): the shift at n consecutive steps with known features (..., n, F)."""
        values = known[..., self.columns].double()
        inside = torch.minimum(torch.maximum(values, self.low), self.high)
        values = inside + BEYOND * (values - inside)
        shifts = []
        for term in self.terms:
            name = self.means.get((term.half_life, term.memory))
            shifts.append(acting(term, values, getattr(self, name) if name else None))
        return torch.stack(shifts, dim=-1) @ self.weights

    def table(self, covariates: Array, items: Items) -> Tensor:
        """(N, targets) float32: `forward` of a table (N, K) of the items of a panel, or of one."""
        cuts = zip(items.bounds[:-1], items.bounds[1:], strict=True)
        return torch.cat(
            [self(torch.from_numpy(covariates[first:last])).float() for first, last in cuts]
        )


def acting(term: Term, values: Tensor, means: Tensor | None = None) -> Tensor:
    """(..., n): a term for n consecutive steps of covariates (..., n, K).

    `means` (n, n) maps the steps to their recent means; without it, they are one stretch (n, K).
    """
    column = values[..., term.covariate].double()
    if term.half_life and means is not None:
        column = column @ means
    elif term.half_life:
        column = torch.from_numpy(recent_mean(column.numpy(), term.half_life, term.memory))
    return column if term.knot is None else torch.relu(column - term.knot)


def fit(
    values: Array,
    covariates: Array,
    items: Items,
    counts: Sequence[int] | NDArray[np.int64],
    seasons: Sequence[int],
    past: int,
) -> Effects:
    """Estimate from the first `counts` rows of each item.

    values (N, targets), NaN where missing, and covariates (N, K), complete, are scaled. `past`
    is the look-back: the longest memory.
    """
    every = -(-int(sum(counts)) // ROWS)
    if len(items) > 1:
        starts = zip(items.bounds[:-1], counts, strict=True)
        cuts = [(first, first + count) for first, count in starts if count][::every]
    else:
        cuts = [(max(0, int(counts[0]) - ROWS), int(counts[0]))]
    inside = np.concatenate([covariates[first:last] for first, last in cuts])
    season = _season(np.array([last - first for first, last in cuts]), seasons)
    low, high = inside.min(axis=0).tolist(), inside.max(axis=0).tolist()

    def changes(table: Array) -> Array:
        """The changes over a season within each stretch of rows, less their mean."""
        parts = [table[first + season : last] - table[first : last - season]
                 for first, last in cuts if last - first > season]  # fmt: skip
        return np.concatenate(parts) if parts else np.empty((0, table.shape[1]))

    def of(term: Term) -> Array:
        changed = np.empty((len(values), 1))
        for first, last in cuts:
            changed[first:last, 0] = acting(term, torch.from_numpy(covariates[first:last]))
        return np.asarray(changes(changed)[seen, 0])

    target = changes(values)
    seen = np.asarray(~np.isnan(target).any(axis=1))
    target, block = target[seen], np.arange(len(seen))[seen] // season
    nothing = Effects((), (), tuple(low), tuple(high), (False,) * len(low))
    if len(target) < 2 * FOLDS:
        return nothing
    lines: list[Terms] = [(Term(k),) for k in range(len(low))]
    lively = [line for line in lines if of(line[0]).std() > 1e-6]
    regression = _Regression(target, block, lively, of)
    while lively:
        errors = regression.solve(lively)[1].min(axis=1)
        if errors.max() <= UNSURE:
            break
        del lively[int(errors.argmax())]
    if not lively:
        return nothing
    chosen = lively
    if len(lively) <= SHAPED:
        shapes = [_shapes(line[0].covariate, inside, seasons[0], past) for line in lively]
        regression = _Regression(target, block, [*lively, *chain(*shapes)], of)
        chosen = regression.choose(lively)
    determined = tuple(any(line[0].covariate == k for line in lively) for k in range(len(low)))
    if regression.missed(chosen) > BETTER * regression.missed([]):
        return replace(nothing, determined=determined)
    weights = tuples(regression.solve(chosen)[0].tolist())
    return Effects(tuple(chain(*chosen)), weights, tuple(low), tuple(high), determined)


def recent_mean(values: Array, half_life: float, memory: int) -> Array:
    """(n,): the mean of the last `memory` of n steps, as far as there are so many, with weights
    that fall by half in `half_life` steps."""
    steps = len(values)
    falling = 0.5 ** (np.arange(min(memory, steps)) / half_life)
    sums, whole = (np.convolve(summand, falling)[:steps] for summand in (values, np.ones(steps)))
    return np.asarray(sums / whole)


def _season(lengths: NDArray[np.int64], seasons: Sequence[int]) -> int:
    """The longest season of which the usual stretch of rows holds SEASONS; 1 without any."""
    usual = float(np.median(lengths))
    return max((season for season in seasons if SEASONS * season <= usual), default=1)


def _shapes(covariate: int, inside: Array, season: int, past: int) -> list[Terms]:
    """What may be added to the line of a covariate: delays, bends, delayed bends."""
    halves = [season / 16, season / 4, float(season)] if season >= 12 else [1.0, 3.0]
    memories = [(half, min(int(np.ceil(LASTING * half)), past)) for half in halves]
    times = [(0.0, 1), *((half, memory) for half, memory in memories if memory >= half)]
    shapes: list[Terms] = [(Term(covariate, *time),) for time in times[1:]]
    values = inside[:, covariate]
    if len(np.unique(values)) > KNOTS + 2:
        low, high = np.quantile(values, [0.02, 0.98]).tolist()
        knots = np.unique(np.linspace(low, high, KNOTS)).tolist()
        shapes += [tuple(Term(covariate, *time, knot) for knot in knots) for time in times]
    return shapes


class _Regression:
    """The regression of changes of the targets (n, K) on changes of terms, which come in groups;
    `block` (n,) numbers their stretches of a season, within which errors may depend on each other.
    """

    def __init__(
        self,
        target: Array,
        block: NDArray[np.int64],
        groups: Sequence[Terms],
        of: Callable[[Term], Array],
    ) -> None:
        terms = [*chain(*groups)]
        self.groups, self.block = groups, block
        self.places = {term: place for place, term in enumerate(terms)}
        self.target = target - target.mean(axis=0)
        design = np.stack([of(term) for term in terms], axis=1) if terms else target[:, :0]
        self.design = design - design.mean(axis=0)
        ends = np.arange(FOLDS + 1) * len(target) // FOLDS
        folds = [slice(*bounds) for bounds in pairwise(ends)]
        self.squares = np.stack([self.design[f].T @ self.design[f] for f in folds])
        self.products = np.stack([self.design[f].T @ self.target[f] for f in folds])
        self.own = float(np.square(self.target).sum())

    def missed(self, groups: Sequence[Terms]) -> float:
        """The sum of squared errors of some groups across blocks of time, more for each term."""
        places = [self.places[term] for term in chain(*groups)]
        squares = self.squares[:, places][:, :, places]
        products = self.products[:, places]
        penalty = PENALTY * len(self.design) * np.eye(len(places))
        weights = np.linalg.solve(
            squares.sum(axis=0) - squares + penalty, products.sum(axis=0) - products
        )
        missed = self.own + float(np.sum(weights * (squares @ weights - 2 * products)))
        return missed / EARNED ** len(places)

    def choose(self, first: Sequence[Terms]) -> list[Terms]:
        """Groups, from the `first` ones on: others are added as long as that helps, then those are
        left out that do not. A line of each covariate stays: with bends alone, values below the
        lowest bend would have no effect."""
        chosen, least = [*first], self.missed(first)
        while rest := [group for group in self.groups if group not in chosen]:
            errors = [self.missed([*chosen, group]) for group in rest]
            if min(errors) >= least:
                break
            least = min(errors)
            chosen.append(rest[int(np.argmin(errors))])
        for group in [*chosen]:
            left = [other for other in chosen if other is not group]
            lines = [other[0].covariate for other in left if other[0].knot is None]
            if group[0].covariate in lines and (found_without := self.missed(left)) <= least:
                chosen, least = left, found_without
        return chosen

    def solve(self, groups: Sequence[Terms]) -> tuple[Array, Array]:
        """The weights (terms, K) of some groups and their standard errors, errors of blocks of a
        season taken together (Liang and Zeger 1986)."""
        places = [self.places[term] for term in chain(*groups)]
        penalty = PENALTY * len(self.design) * np.eye(len(places))
        design = self.design[:, places]
        inverse = np.linalg.inv(self.squares.sum(axis=0)[places][:, places] + penalty)
        weights = inverse @ self.products.sum(axis=0)[places]
        wrong = self.target - design @ weights
        starts = np.flatnonzero(np.diff(self.block, prepend=-1))
        errors = []
        for place in range(wrong.shape[1]):
            sums = np.add.reduceat(design * wrong[:, [place]], starts)
            errors.append(np.sqrt(np.diag(inverse @ (sums.T @ sums) @ inverse)))
        return weights, np.stack(errors, axis=1)
