from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from forecaster.model import Task
from forecaster.parts import boosted
from forecaster.parts.boosted import Boosted
from forecaster.parts.smoothing import Smoothing
from tests.parts import folds
from tests.parts.folds import HORIZON, SEASON


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(boosted, "FEWEST", 0)


FOLDS = {
    "one series": folds.fold(folds.series()),
    "gaps": folds.fold(folds.holed(folds.series())),
    "panel": folds.panel_fold(),
    "no season": folds.fold(folds.series(), (1,)),
    "known ahead": folds.fold(folds.series(), moving=1, covariates=folds.series(seed=5)[:, :1]),
}


@pytest.mark.parametrize("name", FOLDS)
def test_its_trees_are_those_of_scikit_learn(name, monkeypatch):
    grown = []

    class Kept(HistGradientBoostingRegressor):
        def fit(self, rows, truth):
            grown.append((self, rows))
            return super().fit(rows, truth)

    monkeypatch.setattr("sklearn.ensemble.HistGradientBoostingRegressor", Kept)
    (part,) = Boosted.fit(FOLDS[name])
    trees, rows = grown[0]
    with torch.inference_mode():
        found = part._grown(torch.from_numpy(rows))
    np.testing.assert_allclose(found, trees.predict(rows), rtol=1e-4, atol=1e-5)


def test_it_learns_what_a_known_input_does_beyond_the_line():
    """A jump where the input is above a threshold, which no ridge can follow."""
    inputs = torch.rand(400, 1, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    values = (3.0 * (inputs > 0.65)).expand(-1, 3) + 0.05 * folds.series()
    fold = folds.fold(values, (1,), moving=1, covariates=inputs)
    (part,) = Boosted.fit(fold)
    rest = folds.rest(values, covariates=inputs)
    assert folds.error(part, rest) < 0.3 * float(rest.batch(torch.arange(9)).target.var())


@pytest.mark.parametrize("effect", [None, 0.01])
def test_the_sum_of_intermittent_demand_is_not_too_small(effect):
    """Two of three days without any: the median is 0, the mean 1 in 3; with or without effects."""
    draws = torch.rand(400, 3, generator=torch.Generator().manual_seed(0))
    values, given = (draws < 1 / 3).float(), {}
    if effect:
        given = {"shift": effect * folds.series(seed=5)[:, :2]}
        values[:, [2, 0]] -= given["shift"]
    for part in Boosted.fit(folds.fold(values, **given)):
        batch = folds.rest(values, **given).batch(torch.arange(60))
        more = {"beside": batch.shift} if part.whole else {}
        ahead = part(*batch.inputs, **more)
        assert float(ahead.mean()) == pytest.approx(1 / 3, abs=0.1)


def test_what_is_around_a_step_of_a_known_input():
    """By a slow definition, with a horizon of one cycle and a half."""
    season, past, horizon = 6, 18, 9
    task = Task(1, (0,), past, 1, horizon, calendar=2, season=season, covariates=2)
    part = Boosted(task, "boosted", past, season=season, longer=(12,), moving=1)
    known = torch.rand(1, past + horizon, 4, generator=torch.Generator().manual_seed(0))
    found = torch.cat(part._around(known[:, :past], known[:, past:]), dim=2)[0]
    x = known[0, :, 2].numpy()
    for step in range(horizon):
        now, end = past + step, past + horizon
        first = min(past + step // season * season, end - season)
        cycle, before = x[first : first + season], x[first - season : first]
        ago = [x[past - length + step % length] for length in (season, 12)]
        expected = [x[now] - ago[0], x[now] - ago[1], x[now - 1], x[min(now + 1, end - 1)]]
        mean = cycle.mean()
        expected += [mean, cycle.max(), x[now] - mean, mean - before.mean()]
        np.testing.assert_allclose(found[step], expected, atol=1e-6)


@pytest.mark.parametrize("values", [folds.series(), folds.holed(folds.series())])
def test_other_trees_learn_from_values_with_the_effects(values):
    inputs = folds.series(seed=5)[:, :1]
    given = {"moving": 1, "covariates": inputs, "shift": torch.cat([inputs, -2 * inputs], dim=1)}
    fold = folds.fold(values, **given)
    part, other = Boosted.fit(fold)
    assert [part.name, other.name, other.whole] == ["boosted", "boosted, whole", True]
    (plain,) = Boosted.fit(replace(fold, train=fold.train.whole, choose=fold.choose.whole))
    del given["moving"]
    rest = folds.rest(values, **given)
    batch = rest.batch(torch.arange(5))
    ahead = other(*batch.inputs, beside=batch.beside) + batch.shift[:, -HORIZON:]
    expected = plain(*rest.whole.batch(torch.arange(5)).inputs)
    torch.testing.assert_close(ahead, expected, atol=1e-4, rtol=1e-4)
    assert not other.refit(replace(fold, train=fold.train.whole)).whole


def test_the_forecast_moves_with_the_series():
    """Values far from where they were in training are forecast alike."""
    steps = torch.arange(400.0)[:, None]
    cycle = torch.sin(steps * torch.pi / 3).expand(-1, 3)
    (part,) = Boosted.fit(folds.fold(cycle + 0.01 * folds.series()))
    ahead, moved = (folds.forecast(part, folds.rest(cycle + far)) for far in (0, 40))
    torch.testing.assert_close(moved - 40, ahead, atol=0.2, rtol=0)


def test_where_there_is_too_little_to_learn_or_too_much_to_do_there_are_no_trees(monkeypatch):
    fold = FOLDS["one series"]
    few, work = len(fold.train) * 2, len(fold.choose) * HORIZON * 2
    for fewest, most, found in ((few, work, 1), (few + 1, work, 0), (few, work - 1, 0)):
        monkeypatch.setattr(boosted, "FEWEST", fewest)
        monkeypatch.setattr(boosted, "WORK", most)
        assert len(Boosted.fit(fold)) == found


def test_it_reads_the_look_back_and_not_beyond():
    fold = replace(FOLDS["one series"], look_back=2 * SEASON)
    (part,) = Boosted.fit(fold)
    assert (part.past, part.needs, part.season) == (12, 12, 6)
    (short,) = Boosted.fit(replace(fold, look_back=4))
    assert (short.past, short.season, short.longer) == (4, 1, ())


@pytest.mark.parametrize("kind", [Boosted, Smoothing])
@pytest.mark.parametrize("gaps", [False, True])
def test_it_is_exported_for_any_number_of_windows(kind, gaps):
    fold = FOLDS["gaps" if gaps else "one series"]
    (part,) = kind.fit(fold)
    two, seven = (fold.choose.batch(torch.arange(count)).inputs for count in (2, 7))
    count = torch.export.Dim("windows")
    shapes = {0: count}, {0: count}, {0: count}, {0: count} if gaps else None
    exported = torch.export.export(part.eval(), two, dynamic_shapes=shapes).module()
    torch.testing.assert_close(exported(*seven), part(*seven), rtol=1e-4, atol=1e-5)


def test_trees_that_look_at_what_is_not_there_are_refused():
    """In a bundle of a stranger; on a GPU such an index would end the process."""
    (part,) = Boosted.fit(FOLDS["one series"])
    for feature in (-1, 10_000):
        tensors = {**part.state_dict(), "features": torch.full_like(part.features, feature)}
        with pytest.raises(ValueError, match=r"^boosted: trees look at other than [0-9]+ features"):
            Boosted.build(part.task, part.settings, tensors)
    with pytest.raises(ValueError, match=r"^x: 8 steps do not hold seasons of \(6, 9\)"):
        Boosted(part.task, "x", 8, season=6, longer=(9,))


def test_without_any_value_to_learn_from_a_cycle_is_repeated():
    fold = FOLDS["one series"]
    (part,) = Boosted.fit(fold)
    empty = replace(fold.train, values=fold.train.values.clone())
    empty.values[folds.PAST :] = torch.nan
    naive = folds.forecast(part.refit(replace(fold, train=empty)), fold.choose)
    past = folds.own_pasts(fold.choose)[0][:, -SEASON:]
    torch.testing.assert_close(naive[:, :SEASON], past, atol=1e-4, rtol=1e-4)
