"""Judge a model on every window of the test split, with the floors beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from forecaster.datasets.scaling import Scaler
from forecaster.evaluate.figures import Errors, measure, plain
from forecaster.evaluate.metrics import (
    Score,
    Verdict,
    blocks,
    interval_text,
    paired_interval,
)
from forecaster.forecast.intervals import Intervals
from forecaster.record import (
    NETWORK,
    Backtest,
    Difference,
    FloorScores,
    IntervalScores,
    ItemScores,
    NetworkScores,
    Scores,
)
from forecaster.record.challenge import LEAST, stretches

FEWEST = 10
"""The fewest horizons of test windows with which an outcome against the floors is measured."""
SHOWN_ITEMS = 50
"""The number of a panel's series whose errors are reported: half are the best, half the worst."""


@dataclass(frozen=True)
class Evaluation:
    """The errors of a model and of the floors, and their comparison.

    MSE and MAE are on values scaled by the training rows; `naive` (K,), or (S, K) for the items of
    a panel, is the seasonal naive's mean absolute error on the training rows, the unit of MASE;
    `scaler` is that of the targets; `items` (S) are the names of a panel's items.
    """

    model: Score
    floors: dict[str, Score]
    chosen: dict[str, str]
    targets: tuple[str, ...]
    scaler: Scaler
    naive: np.ndarray
    items: Sequence[str] | None = None
    every: int = 1
    """1 if all windows were judged, n if every n-th was."""
    intervals: IntervalScores | None = None
    """The figures of the model's quantiles, if it has any."""
    recalibrated: Intervals | None = None
    """The intervals that are served since, if these were calibrated again."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The share of each part in the model, by its name; a part is a floor or the network."""
    network: Score | None = None
    """The score of the network alone, if there is one."""
    headline: str = ""
    """What was found in one sentence, in units and percent (`headline`)."""
    without: Mapping[str, Score] = field(default_factory=dict)
    """The score of the model without each kind of part, with the other shares summing to one, if it
    has several."""

    @property
    def rest(self) -> Score | None:
        """The score of the model without its network, if it has both."""
        return self.without.get(NETWORK)

    def skill(self, floor: str) -> float:
        """1 - MSE / MSE of the floor: above 0 is better than the floor; nan for a floor of 0."""
        reference = self.floors[floor].mse
        return 1 - self.model.mse / reference if reference > 0 else float("nan")

    @property
    def best_floor(self) -> str:
        return min(self.floors, key=lambda name: self.floors[name].mse)

    @cached_property
    def against_best(self) -> tuple[float, float]:
        """The 95 % interval of the MSE of the model less that of the best floor.

        The smallest of many errors is partly luck, and a model that is compared with it on the
        windows that chose it seems worse than it is. So each half of the test split is compared
        with the floor that is best on the other half, a horizon apart. Blocks of the bootstrap are
        two horizons long: with one, errors that overlapping windows share seem smaller than they
        are. (-inf, inf) where the windows span fewer than FEWEST horizons.
        """
        by_window, steps, horizon = self.model.by_window, self.model.steps, len(self.model.squared)
        if self._horizons < FEWEST:
            return -np.inf, np.inf
        steps = np.arange(len(by_window)) if steps is None else steps
        middle = (steps.min() + steps.max() + 1) / 2
        halves = steps < middle - horizon / 2, steps >= middle + horizon / 2
        difference = np.full(len(by_window), np.nan)
        floors = [floor.by_window for floor in self.floors.values()]
        for here, there in (halves, halves[::-1]):
            best = floors[int(np.argmin([_mean(errors[there]) for errors in floors]))]
            difference[here] = (by_window - best)[here]
        return paired_interval(difference, 2 * horizon, steps)

    @property
    def _horizons(self) -> float:
        """How many horizons the windows span: at most that many are independent."""
        return blocks(self.model.by_window, len(self.model.squared), self.model.steps)

    @property
    def outcome(self) -> Verdict:
        """Whether the model is measurably better or worse than the best floor."""
        return Verdict.of(*self.against_best)

    def verdict(self) -> str:
        """A sentence on the outcome, with the errors on all windows."""
        name, (low, high) = self.best_floor, self.against_best
        than = "from" if self.outcome is Verdict.SAME else "than"
        text = (
            f"{self.outcome.capitalize()} {than} the best floor, {name}: MSE {self.model.mse:.3f} "
            f"against {self.floors[name].mse:.3f}"
        )
        if np.isinf(low):
            few = f"the windows span {self._horizons:.1f} horizons, and fewer than {FEWEST}"
            return f"{text}; {few} are too few to measure one."
        return (
            f"{text}; 95 % interval of the difference, each half of the test split against the "
            f"floor that is best on the other: {interval_text(low, high)}."
        )

    def errors(self, score: Score) -> Errors:
        """The errors from which the metrics of the model, or of a floor, are computed."""
        return Errors(score, np.atleast_2d(self.scaler.std), self.naive)

    @cached_property
    def backtest(self) -> Backtest:
        """What was found, in plain types."""
        model, floors = self.errors(self.model), self.floors
        by_column = measure(model, "column")
        return Backtest(
            windows=self.model.windows,
            every=self.every,
            columns={
                column: Scores(**{name: values[i] for name, values in by_column.items()})
                for i, column in enumerate(self.targets)
            },
            by_step=measure(model, "step"),
            items=self._items(measure(model, "item")),
            network=self._network(),
            floors={name: self._floor(name) for name in floors},
            best_floor=self.best_floor,
            lost_to=tuple(name for name in floors if floors[name].mse < self.model.mse),
            adds={kind: self._added(rest) for kind, rest in self.without.items()},
            headline=self.headline,
            outcome=self.outcome,
            verdict=self.verdict(),
            intervals=self.intervals,
            errors=self._stretches(),
            **measure(model),
        )

    def _stretches(self) -> tuple[float, ...]:
        score = self.model
        if self._horizons < LEAST:
            return ()
        return tuple(stretches(score.by_window, len(score.squared), score.steps))

    def _floor(self, name: str) -> FloorScores:
        floor = self.floors[name]
        (low, high), errors = self.model.against(floor), self.errors(floor)
        return FloorScores(
            skill=plain(self.skill(name)),
            paired_low=plain(low),
            paired_high=plain(high),
            chosen=self.chosen[name],
            weight=self.weights.get(name, 0.0),
            by_step=measure(errors, "step") if name == self.best_floor else {},
            **measure(errors, "all", "terminal"),
        )

    def _network(self) -> NetworkScores | None:
        """The errors of the network alone, its weight, and what it adds to the model."""
        if self.network is None:
            return None
        errors = self.errors(self.network)
        return NetworkScores(
            weight=self.weights.get(NETWORK, 0.0),
            adds=None if self.rest is None else self._added(self.rest),
            verdict=self.network_verdict(),
            by_step=measure(errors, "step"),
            **measure(errors, "all", "terminal"),
        )

    def _added(self, rest: Score) -> Difference:
        """What the model is better by than the rest of it."""
        low, high = self.model.against(rest)
        mse = plain(self.model.mse - rest.mse)
        return Difference(mse=mse, paired_low=plain(low), paired_high=plain(high))

    def network_verdict(self) -> str:
        """A sentence on what the network adds to the model."""
        weight = self.weights.get(NETWORK, 0.0)
        if not weight:
            return "The network has no share in the model: validation gave it none."
        if self.rest is None:
            return "The network is the whole model."
        share = f"The network is {weight:.0%} of the model"
        if self.network and Verdict.of(*self.model.against(self.network)) is Verdict.WORSE:
            share += f"; alone it would be BETTER ({self.network.mse:.3f})"
        low, high = self.model.against(self.rest)
        if np.isinf(low):
            return f"{share}; the windows are too few to measure what it adds."
        comparison = {
            Verdict.BETTER: "the rest alone is worse",
            Verdict.SAME: "the rest alone is not measurably different",
            Verdict.WORSE: "the rest alone would be BETTER",
        }[Verdict.of(low, high)]
        difference = self.model.mse - self.rest.mse
        return (
            f"{share}; {comparison}: with the network the MSE is {abs(difference):.4f} "
            f"{'lower' if difference < 0 else 'higher'}, paired 95 % interval of the difference "
            f"{interval_text(low, high)}."
        )

    def _items(self, metrics: dict[str, list[float | None]]) -> ItemScores | None:
        """The metrics of the series of a panel by name, the best first."""
        if self.items is None or self.model.by_item is None:
            return None
        mse = np.array(metrics["mse"], dtype=float)
        order = np.argsort(mse)[: np.count_nonzero(~np.isnan(mse))]
        half = SHOWN_ITEMS // 2
        shown = order if len(order) <= SHOWN_ITEMS else np.r_[order[:half], order[-half:]]
        return ItemScores(
            count=len(self.items),
            tested=len(order),
            shown="all tested" if shown is order else f"the best {half} and the worst {half}",
            errors={
                str(self.items[i]): Scores(**{name: values[i] for name, values in metrics.items()})
                for i in shown
            },
        )


def _mean(errors: np.ndarray) -> float:
    """The mean of the errors that are known; infinite without any."""
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if len(known) else np.inf
