"""The verdict of one attention against another: the paired difference of their errors.

A group has many verdicts, and one in twenty would be wrong by chance. So the verdicts against one
reference are corrected together (Holm, "A simple sequentially rejective multiple test procedure",
1979): of m, the one with the k-th smallest p must have (m - k + 1) p < 0.05, and so must all before
it. The chance that any of them names a difference where there is none is then at most 5 %. The
interval beside a verdict is not corrected.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

from forecaster.evaluate.metrics import Verdict, blocks, paired_interval
from forecaster.study.compare.cell import Finished
from forecaster.study.compare.record import Against

RISK, POWER = 0.05, 0.8  # the usual ones of a planned experiment


def compare(cells: Sequence[Finished], other: Sequence[Finished]) -> Against | None:
    """The paired difference over test windows, averaged over the seeds that both have.

    None if they share none. Blocks of the bootstrap are as long as the horizon, because windows
    nearer than that overlap. With several seeds the interval `low` to `high` also holds for untried
    seeds: its arms grow by the half-width of Student's interval of the mean of the seeds'
    differences. `error` is the standard error with `freedom` degrees of freedom (Welch and
    Satterthwaite's, of windows and seeds), such that `error` times t_0.975 is half the interval,
    and `p` is the level at which the interval would touch zero.
    """
    mine = {cell.facts.seed: cell for cell in cells}
    theirs = {cell.facts.seed: cell for cell in other}
    seeds = sorted(set(mine) & set(theirs))
    if not seeds:
        return None
    paired = np.array([mine[seed].by_window() - theirs[seed].by_window() for seed in seeds])
    by_seed = np.nanmean(paired, axis=1)
    difference = float(by_seed.mean())
    windows = paired.mean(axis=0), cells[0].facts.horizon, cells[0].steps()
    low, high = paired_interval(*windows)
    compared = Against(difference=difference, seeds=tuple(seeds), verdict=Verdict.SAME)
    if not np.isfinite(low):
        return compared
    freedom = blocks(*windows) - 1
    if len(seeds) > 1:
        spread = by_seed.std(ddof=1) / np.sqrt(len(seeds))
        parts = np.square([(high - low) / 2 / stdtrit(freedom, 0.975), spread])
        if parts.any():
            freedom = parts.sum() ** 2 / (parts**2 / [freedom, len(seeds) - 1]).sum()
        arm = spread * stdtrit(len(seeds) - 1, 0.975)
        low = difference - np.hypot(difference - low, arm)
        high = difference + np.hypot(high - difference, arm)
    student = stdtrit(freedom, 0.975)
    arm = high - difference if difference < 0 else difference - low  # the one towards zero
    t = abs(difference) / arm * student if arm > 0 else np.inf if difference else 0.0
    figures = {
        "low": low, "high": high, "error": (high - low) / 2 / student, "freedom": freedom,
        "p": 2 * stdtr(freedom, -t),
    }  # fmt: skip
    return compared.model_copy(update={key: float(value) for key, value in figures.items()})


def correct(family: Mapping[str, Against]) -> dict[str, Against]:
    """The comparisons against one reference with their verdicts, corrected by Holm's method.

    `holm` is the corrected p, and `smallest` the difference that gets a verdict with 80 %
    probability if no other type differs: (t_(1 - 0.025/m) + t_0.8) * `error` for m verdicts.
    """
    known = {name: comparison.p for name, comparison in family.items() if comparison.p is not None}
    corrected, holm = dict(family), 0.0
    for before, (name, p) in enumerate(sorted(known.items(), key=lambda item: item[1])):
        compared = family[name]
        assert compared.low is not None  # as those that have p do
        assert compared.high is not None
        holm = max(holm, min(1.0, (len(known) - before) * p))
        quantiles = stdtrit(compared.freedom, [1 - RISK / 2 / len(known), POWER])
        corrected[name] = compared.model_copy(update={
            "holm": holm,
            "smallest": float(quantiles.sum() * compared.error),
            "verdict": Verdict.of(compared.low, compared.high) if holm < RISK else Verdict.SAME,
        })  # fmt: skip
    return corrected
