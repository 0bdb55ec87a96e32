from dataclasses import replace

import pytest
import torch

from forecaster.parts import CycleMean, LastValue, TrainingMean
from forecaster.parts.naive import CYCLES
from tests.parts import folds
from tests.parts.folds import HORIZON, PAST, SEASON


def slowly(kind, past, seen, season, cycles):
    """One column of one window, past (P,) -> (T,), step by step."""
    count, steps = len(past), []
    for t in range(HORIZON):
        if kind is TrainingMean:
            values = []
        elif kind is LastValue:
            values = past[seen][-1:]
        else:
            places = [count - season * c + t % season for c in range(1, cycles + 1)]
            own = [i for i in range(count - season * cycles, count) if seen[i]]
            before = [max([j for j in own if j < i] or own[:1]) for i in places if own]
            values = past[[i for i in places if seen[i]] or before]
        steps.append(values.mean() if len(values) else torch.tensor(0.0))
    return torch.stack(steps)


DATA = {
    "whole": folds.windows(folds.series(), 100, 160),
    "missing": folds.windows(folds.holed(folds.series(), 0.5), 100, 160),
    "panel": folds.panel(),
    "whole panel": folds.panel(missing=False),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize(
    ("kind", "season", "cycles"),
    [(TrainingMean, 1, 1), (LastValue, 1, 1), (CycleMean, 6, 1), (CycleMean, 6, 2),
     (CycleMean, 3, 4), (CycleMean, 11, 1)],
)  # fmt: skip
def test_parts_equal_the_loops(kind, season, cycles, data):
    past = season * cycles if kind is CycleMean else data.past
    facts = {"season": season} if kind is CycleMean else {}
    got = folds.forecast(kind(folds.task_of(data), "x", past, **facts), data)
    past, seen = folds.own_pasts(data)
    assert got.shape == (len(data), HORIZON, 2)
    for window in range(0, len(data), 3):
        for k in range(2):
            wanted = slowly(kind, past[window, :, k], seen[window, :, k], season, cycles)
            torch.testing.assert_close(got[window, :, k], wanted, rtol=1e-5, atol=1e-6)


def test_a_seasonal_naive_for_each_season_that_the_look_back_holds():
    fold = folds.fold(folds.series(), (SEASON, PAST, PAST + 1))
    found = {part.name: part.needs for part in CycleMean.fit(fold)}
    assert [*found] == ["seasonal naive, 6", "seasonal naive, 24", "cycle mean"]
    assert [*found.values()][:2] == [6, 24]
    long = folds.fold(folds.series(), (PAST + 1,))
    assert CycleMean.fit(long) == [], "no cycle fits"
    assert [part.needs for kind in (TrainingMean, LastValue) for part in kind.fit(fold)] == [1, 1]


def test_the_number_of_cycles_is_the_best_on_what_chooses():
    fold = folds.fold(folds.series(), past=120)
    *_, part = CycleMean.fit(fold)
    means = {k: CycleMean(fold.task, "x", 6 * k, season=6) for k in CYCLES if 6 * k <= 120}
    errors = {k: folds.error(mean, fold.choose) for k, mean in means.items()}
    best = min(errors, key=errors.__getitem__)
    assert best not in (min(errors), max(errors))
    assert (part.past, part.chosen) == (6 * best, f"k = {best} cycles of 6 steps")
    other = folds.windows(100 * torch.randn(400, 3), 0, 240, past=120)
    *_, same = CycleMean.fit(replace(fold, train=other))
    assert same.settings == part.settings, "the training rows have no say"


@pytest.mark.parametrize(("past", "season"), [(7, 6), (0, 6), (30, 6), (6, 0)])
def test_what_is_no_whole_cycles_of_the_look_back_is_refused(past, season):
    with pytest.raises(ValueError, match="x"):
        CycleMean(folds.fold(folds.series()).task, "x", past, season=season)
