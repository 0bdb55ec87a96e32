"""Rolling origins: the test split in equal blocks, each forecast from what is known before it.

A cut-off is the step at which a block begins. The windows whose targets lie in the block are judged
as the test split is; nothing from that step on chooses, trains or calibrates.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from forecaster.base.errors import UsageError
from forecaster.base.progress import Say, lasting
from forecaster.base.spelling import spelled
from forecaster.datasets.card import Borders
from forecaster.evaluate.backtest import Evaluation
from forecaster.evaluate.figures import plain
from forecaster.evaluate.intervals import SHARES, percent
from forecaster.evaluate.judge import find_intervals, judge, reopen
from forecaster.evaluate.metrics import Score, average
from forecaster.forecast.bundle import Bundle
from forecaster.parts import Blend, Part
from forecaster.plan.splits import Splits
from forecaster.record import AtCutoff, Cutoffs, FloorSpreads, MeanErrors, Spread, Spreads

Make = Callable[[Splits], tuple[Sequence[Part], Blend]]
"""Trains at a cut-off; returns all parts that were tried, and the model."""
COVERED = percent(SHARES[0])


def cut(whole: Splits, count: int) -> list[Splits]:
    """The splits at `count` cut-offs, the first where the test split begins.

    The splits move along: validation keeps its length, and training takes all before it. Raises
    UsageError for more cut-offs than fit, naming how many do, and for a panel whose series are cut
    by their own lengths.
    """
    borders, horizon = whole.plan.borders, whole.plan.config.window.horizon
    if borders.each:
        raise UsageError(
            "cut-offs are dates, but each series of this panel is cut by its own length; train "
            f"with {spelled('split', 'calendar')} instead"
        )
    if not _fit(whole, count):
        steps = borders.test - borders.validation
        fewer = range(2, min(count, steps // horizon + 1))
        most = max((n for n in fewer if _fit(whole, n)), default=1)
        raise UsageError(
            f"{count} cut-offs are too many: each takes {steps // count} of the {steps} steps of "
            f"the test split, which must hold a window of {horizon} with values; {most} "
            f"fit: {spelled('cutoffs', most)}"
        )
    cuts = []
    for first, last in pairwise(_edges(borders, count)):
        earlier = Borders(borders.train + first - borders.validation, first, last)
        cuts.append(whole.at(earlier))
    return cuts


def _edges(borders: Borders, count: int) -> list[int]:
    first, steps = borders.validation, borders.test - borders.validation
    return [first + steps * k // count for k in range(count + 1)]


def _fit(whole: Splits, count: int) -> bool:
    """Whether each of `count` blocks holds a window."""
    (past, _, horizon), series = whole.plan.config.window.lengths(), whole.plan.series
    if (whole.plan.borders.test - whole.plan.borders.validation) // count < horizon:
        return False
    for first, last in pairwise(_edges(whole.plan.borders, count)):
        if series.items is None:
            values = series.values[first:last, list(whole.schema.target_positions)]
            if np.isnan(values).all():
                return False
        elif not series.items.windows(past, horizon, first, last)[1].any():
            return False
    return True


@dataclass(frozen=True)
class Rolling:
    """The evaluation at each cut-off, and a description of how its intervals were calibrated."""

    cuts: Sequence[Splits]
    found: Sequence[Evaluation]
    calibrated: Sequence[str]

    @cached_property
    def whole(self) -> Evaluation:
        """All windows of all cut-offs as one, with the floors that each of them has."""
        first, *others = self.found
        names = [name for name in first.floors if all(name in other.floors for other in others)]
        model = self._pooled([evaluation.model for evaluation in self.found])
        floors = {n: self._pooled([other.floors[n] for other in self.found]) for n in names}
        return replace(first, model=model, floors=floors, intervals=None)

    def _pooled(self, scores: Sequence[Score]) -> Score:
        counts = np.stack(
            [np.full_like(s.squared, s.windows) if s.observed is None else s.observed
             for s in scores]
        )  # fmt: skip
        steps = [
            at.plan.borders.validation + np.arange(s.windows) if s.steps is None else s.steps
            for at, s in zip(self.cuts, scores, strict=True)
        ]
        return Score(
            windows=sum(s.windows for s in scores),
            squared=average(np.stack([s.squared for s in scores]), counts, axis=0),
            absolute=average(np.stack([s.absolute for s in scores]), counts, axis=0),
            by_window=np.concatenate([s.by_window for s in scores]),
            observed=counts.sum(axis=0),
            steps=np.concatenate(steps),
        )

    def better(self, floor: str) -> int:
        """At how many cut-offs the model has the smaller MSE."""
        return sum(evaluation.model.mse < evaluation.floors[floor].mse for evaluation in self.found)

    def verdict(self) -> str:
        """The verdict in words, with the number of cut-offs that support it."""
        count, best = len(self.found), self.whole.best_floor
        return (
            f"{self.whole.verdict()} Based on {count} cut-off{'s' * (count > 1)}; better in "
            f"{self.better(best)} of them."
        )

    @cached_property
    def cutoffs(self) -> Cutoffs:
        """What was found; errors are scaled by the training rows of the whole.

        `mean` and `sd` weigh all cut-offs equally, however many windows each has; None where there
        are none.
        """
        best, networks = self.whole.best_floor, [each.network for each in self.found]
        low, high = self.whole.model.against(self.whole.floors[best])
        each = tuple(self._at(number) for number in range(len(self.found)))
        return Cutoffs(
            count=len(each),
            each=each,
            **_spreads([e.model for e in self.found]),
            coverage=_spread([own.coverage for own in each]),
            network=Spreads(**_spreads([s for s in networks if s])) if all(networks) else None,
            floors={
                name: FloorSpreads(
                    **_spreads([e.floors[name] for e in self.found]), better_in=self.better(name)
                )
                for name in self.whole.floors
            },
            best_floor=best,
            better_in=self.better(best),
            paired_low=plain(low),
            paired_high=plain(high),
            verdict=self.verdict(),
        )

    def _at(self, number: int) -> AtCutoff:
        at, evaluation = self.cuts[number], self.found[number]
        times, borders = at.plan.series.times, at.plan.borders
        covered = evaluation.intervals and evaluation.intervals.band(COVERED)
        return AtCutoff(
            first=times[borders.validation].isoformat(),
            last=times[borders.test - 1].isoformat(),
            steps=(borders.validation, borders.test),
            trained=borders.train,
            windows=evaluation.model.windows,
            mse=plain(evaluation.model.mse),
            mae=plain(evaluation.model.mae),
            coverage=covered["coverage"] if covered else None,
            intervals=self.calibrated[number],
            network=_errors(evaluation.network) if evaluation.network else None,
            floors={name: _errors(floor) for name, floor in evaluation.floors.items()},
            best_floor=evaluation.best_floor,
            weights=dict(evaluation.weights),
        )


def _errors(score: Score) -> MeanErrors:
    return MeanErrors(mse=plain(score.mse), mae=plain(score.mae))


def _spreads(scores: Sequence[Score]) -> dict[str, Spread]:
    return {"mse": _spread([s.mse for s in scores]), "mae": _spread([s.mae for s in scores])}


def _spread(values: Sequence[float | None]) -> Spread:
    """Mean and sample standard deviation of the values that are not None."""
    known = [value for value in values if value is not None]
    return Spread(
        mean=float(np.mean(known)) if known else None,
        sd=float(np.std(known, ddof=1)) if len(known) > 1 else None,
    )


def roll(
    whole: Splits, count: int, make: Make, device: str, say: Say, *, took: float | None = None
) -> Rolling:
    """Judge the model that `make` trains at each of `count` cut-offs; raises as `cut` does.

    `took` are the seconds of one training, if they are known, to say how long all will last.
    """
    cuts = cut(whole, count)
    evaluations, calibrated = [], []
    start = time.monotonic()
    for number, at in enumerate(cuts, start=1):
        first, last = at.plan.borders.validation, at.plan.borders.test
        seconds = (time.monotonic() - start) / (number - 1) if number > 1 else took
        left = "" if seconds is None else f"; about {lasting(seconds * (count - number + 1))} left"
        span = f"steps {first} to {last}"
        say(f"cut-off {number} of {count}: forecasts {span} from those before{left}")
        parts, model = make(at)
        intervals, words, _ = find_intervals(at, model, device)
        evaluations.append(judge(at, model, device, intervals, parts))
        calibrated.append(words)
    return Rolling(cuts, evaluations, calibrated)


def rejudge(bundle: Bundle, count: int, make: Make, device: str, say: Say) -> Rolling:
    """Judge the configuration of a bundle at `count` cut-offs of its data."""
    trained = bundle.record.train
    took = None if trained is None else trained.seconds
    return roll(reopen(bundle, anew=True), count, make, device, say, took=took)


def text(report: Cutoffs) -> str:
    """The report for the terminal: the cut-offs, mean and spread over them, the verdict."""
    count = report.count
    spans = [[end[:16].replace("T", " ") for end in (own.first, own.last)] for own in report.each]
    if all(end.endswith(" 00:00") for span in spans for end in span):
        spans = [[end[:10] for end in span] for span in spans]
    room = 2 + max(len(end) for span in spans for end in span)
    lines = [
        f"{count} cut-off{'s' * (count > 1)} of the test split, trained anew at each; values "
        "scaled by training rows",
        f"{'from':<{room}}{'to':<{room}}{'windows':>7}{'MSE':>9}{'MAE':>9}{'network':>9}"
        f"{'covered':>9}  best floor",
    ]
    for (first, last), own in zip(spans, report.each, strict=True):
        lines.append(
            f"{first:<{room}}{last:<{room}}{own.windows:>7}{_cell(own.mse)}"
            f"{_cell(own.mae)}{_cell(own.network.mse if own.network else None)}"
            f"{'–' if own.coverage is None else f'{own.coverage:.1%}':>9}"
            f"{_cell(own.floors[own.best_floor].mse)} {own.best_floor}"
        )
    lines.append(f"{'over cut-offs':<23}{'MSE':>8} ± sd    {'MAE':>8} ± sd       better in")
    rows: dict[str, Spreads] = {"model": report}
    if report.network:
        rows["network"] = report.network
    for name, spreads in {**rows, **report.floors}.items():
        errors = "   ".join(f"{_cell(each.mean)} ±{_cell(each.sd)[2:]}"
                            for each in (spreads.mse, spreads.mae))  # fmt: skip
        better = f"{spreads.better_in} of {count}" if isinstance(spreads, FloorSpreads) else ""
        lines.append(f"{name:<22}{errors}   {better}".rstrip())
    covered = report.coverage
    if covered.mean is not None:
        spread = "" if covered.sd is None else f" ± {covered.sd:.1%}"
        lines.append(f"The {COVERED} % intervals cover {covered.mean:.1%}{spread}.")
    return "\n".join([*lines, report.verdict])


def _cell(value: float | None) -> str:
    return f" {'–' if value is None else f'{value:.4f}':>8}"
