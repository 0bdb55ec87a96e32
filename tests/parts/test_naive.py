from dataclasses import replace

import pytest
import torch

from forecaster.parts import CycleMean, LastValue, TrainingMean
from forecaster.parts.naive import CYCLES
from tests.parts import folds
from tests.parts.folds import HORIZON, PAST, SEASON


def slowly(kind, past, seen, season, cycles):
    """One column of one window, past (P,) -> (T,), step by step."""
    steps = []
    for t in range(HORIZON):
        if kind == "training mean":
            values = []
        elif kind == "last value":
            values = [past[i] for i in range(len(past)) if seen[i]][-1:]
        else:
            places = [len(past) - season * c + t % season for c in range(1, cycles + 1)]
            values = [past[i] for i in places if seen[i]]
            own = [i for i in range(len(past) - season * cycles, len(past)) if seen[i]]
            if own and not values:
                before = [max((j for j in own if j < i), default=own[0]) for i in places]
                values = [past[j] for j in before]
        steps.append(torch.stack(values).mean() if values else torch.tensor(0.0))
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
    [("training mean", 1, 1), ("last value", 1, 1), ("cycle mean", 6, 1), ("cycle mean", 6, 2),
     ("cycle mean", 3, 4), ("cycle mean", 11, 1)],
)  # fmt: skip
def test_parts_equal_the_loops(kind, season, cycles, data):
    task = folds.task_of(data)
    part = {
        "training mean": lambda: TrainingMean(task, kind, 1),
        "last value": lambda: LastValue(task, kind, data.past),
        "cycle mean": lambda: CycleMean(task, kind, season * cycles, season=season),
    }[kind]()
    got = folds.forecast(part, data)
    past, seen = folds.own_pasts(data)
    assert got.shape == (len(data), HORIZON, 2)
    for window in range(0, len(data), 3):
        for k in range(2):
            wanted = slowly(kind, past[window, :, k], seen[window, :, k], season, cycles)
            torch.testing.assert_close(got[window, :, k], wanted, rtol=1e-5, atol=1e-6)


def test_a_seasonal_naive_for_each_season_that_the_look_back_holds():
    fold = folds.fold(folds.series(), (SEASON, PAST, PAST + 1))
    names = [part.name for part in CycleMean.fit(fold)]
    assert names == ["seasonal naive, 6", "seasonal naive, 24", "cycle mean"]
    long = folds.fold(folds.series(), (PAST + 1,))
    assert CycleMean.fit(long) == [], "no cycle fits"


def test_the_number_of_cycles_is_the_best_on_what_chooses():
    fold = folds.fold(folds.series(), past=120)
    *_, part = CycleMean.fit(fold)
    errors = {
        k: folds.error(CycleMean(fold.task, "x", 6 * k, season=6), fold.choose)
        for k in CYCLES
        if 6 * k <= 120
    }
    best = min(errors, key=errors.__getitem__)
    assert best not in (min(errors), max(errors))
    assert (part.past, part.chosen) == (6 * best, f"k = {best} cycles of 6 steps")
    other = folds.windows(100 * torch.randn(400, 3), 0, 240, past=120)
    *_, same = CycleMean.fit(replace(fold, train=other))
    assert same.settings == part.settings, "the training rows have no say"


def test_what_a_part_needs_of_a_history():
    fold = folds.fold(folds.series())
    needs = {part.name: part.needs for kind in (TrainingMean, LastValue) for part in kind.fit(fold)}
    assert needs == {"training mean": 1, "last value": 1}
    assert CycleMean(fold.task, "x", 18, season=6).needs == 18


@pytest.mark.parametrize(("past", "season"), [(7, 6), (0, 6), (30, 6), (6, 0)])
def test_what_is_no_whole_cycles_of_the_look_back_is_refused(past, season):
    with pytest.raises(ValueError, match="x"):
        CycleMean(folds.fold(folds.series()).task, "x", past, season=season)
