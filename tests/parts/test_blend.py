import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from forecaster.datasets.dataset import Items
from forecaster.datasets.windows import Windows
from forecaster.parts import (
    KINDS,
    Blend,
    CycleMean,
    LastValue,
    Part,
    TrainingMean,
    boosted,
    fit_forms,
    kind_of,
    weigh,
    weigh_forms,
)
from forecaster.parts import blend as module
from forecaster.parts.blend import mixed, nearest
from tests.parts import folds
from tests.parts.folds import HORIZON, PAST

FOLDS = {
    "whole": folds.fold(folds.series()),
    "covariates": folds.fold(folds.series(), moving=1, covariates=folds.series(seed=5)[:, :1]),
    "gaps": folds.fold(folds.holed(folds.series())),
    "panel": folds.panel_fold(),
    "one step": folds.fold(folds.series(), past=1),
    "season longer than the look-back": folds.fold(folds.series(), (40,)),
    "horizon longer than the season": folds.fold(folds.series(), (3,)),
    "one column": folds.fold(folds.series()[:, :1], targets=(0,)),
    "constant": folds.fold(torch.full((400, 3), 0.5)),
}
FEW = FOLDS["whole"]  # a fold in which few windows choose


class Constant(Part):
    """A forecast that is the same number everywhere."""

    kind, family, fit = "constant", "", None

    def __init__(self, task, name, value, family="constant"):
        super().__init__(task, name, 1)
        self.value, self.family = value, family

    def forward(self, past, past_known, future_known, observed=None):
        return past.new_full((len(past), self.task.horizon, len(self.task.targets)), self.value)


@cache
def fitted(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosted, "FEWEST", 0)
        return fit_forms(FOLDS[name])[0]


def blended(parts, weights):
    """Parts with weights (n,) or (n, T), which are scaled to sum to one."""
    shares = weights.reshape(len(parts), -1).expand(-1, parts[0].task.horizon)
    return Blend(parts[0].task, {each.name: each for each in parts}, shares / shares.sum(dim=0))


@pytest.mark.parametrize("name", FOLDS)
class TestEveryPart:
    """The contract of every kind, on every fold."""

    def test_forecasts_the_same_in_any_batch_and_when_it_is_saved_or_fitted_again(self, name):
        fold, parts = FOLDS[name], fitted(name)
        assert len({part.name for part in parts}) == len(parts)
        for part in parts:
            whole = folds.forecast(part, fold.choose)
            assert whole.shape == (len(fold.choose), fold.task.horizon, len(fold.task.targets))
            assert whole.isfinite().all(), part.name
            torch.testing.assert_close(folds.forecast(part, fold.choose, 7), whole)
            if name == "constant" and not isinstance(part, TrainingMean):
                torch.testing.assert_close(whole, torch.full_like(whole, 0.5), atol=1e-5, rtol=0)
            settings = json.loads(json.dumps(part.settings))
            again = kind_of(part.kind).build(fold.task, settings, part.state_dict())
            assert (again.name, again.past, again.needs) == (part.name, part.past, part.needs)
            assert torch.equal(folds.forecast(again, fold.choose), whole)
            refitted = part.refit(fold)
            assert refitted.settings == again.settings == part.settings
            other = folds.forecast(refitted, fold.choose)
            torch.testing.assert_close(whole, other, rtol=1e-4, atol=1e-4)

    def test_reads_no_more_than_it_says(self, name):
        fold = FOLDS[name]
        batch = fold.choose.batch(torch.arange(min(9, len(fold.choose))))
        if batch.observed is not None:
            return  # gaps are filled from the whole history
        for part in fitted(name):
            past, known = batch.past.clone(), batch.past_known.clone()
            reach = part.past if part.kind in ("last-value", "smoothing") else 0
            for given in (past, known):
                given[:, : fold.task.past - max(part.needs, reach)] += 7
            with torch.inference_mode():
                moved = part(past, known, *batch.inputs[2:])
                assert torch.equal(moved, part(*batch.inputs)), part.name

    def test_weights_are_shares_and_linear_parts_one_product(self, name):
        fold, parts = FOLDS[name], fitted(name)
        found, errors, _ = weigh(parts, fold.choose)
        assert (found >= 0).all()
        torch.testing.assert_close(found.sum(dim=0), torch.ones(fold.task.horizon))
        wanted = [folds.error(part, fold.choose) for part in parts]
        assert errors.tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-9)
        assert [part.kind for part in parts if not part.weighed] == [TrainingMean.kind]
        assert float(found[0].max()) == 0, "it is a floor, which is never weighed"
        linear = [part for part in parts if part.linear() is not None]
        linear += [Constant(fold.task, "constant", 2.0)]
        draw = torch.Generator().manual_seed(0)
        blend = blended(linear, torch.rand(len(linear), fold.task.horizon, generator=draw))
        wanted = mixed([folds.forecast(part, fold.choose) for part in linear], blend.weights)
        torch.testing.assert_close(folds.forecast(blend, fold.choose), wanted, rtol=1e-5, atol=2e-6)
        assert blend.merged is not None
        assert blend.apart == [len(linear) - 1]


class TestWeigh:
    def test_equal_parts_share_alike_and_families_too(self):
        task = FEW.task
        a, b, c = (Constant(task, name, 0.1, own) for name, own in zip("abc", "122", strict=True))
        hopeless = [fitted("whole")[-1], Constant(task, "c", 50.0)]
        for parts, wanted in (
            ([LastValue(task, each, PAST) for each in "abc"], [1 / 3] * 3),
            ([a, b, c], [0.5, 0.25, 0.25]),
            (hopeless, [1.0, 0.0]),
        ):
            found = weigh(parts, FEW.choose).common.mean(dim=1)
            assert found.tolist() == pytest.approx(wanted, abs=1e-4)

    def test_few_windows_say_little(self):
        parts = [Constant(FEW.task, name, 0.0, name) for name in "ab"]
        products = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        one, many = (float(module.shares(parts, products, apart)[1, 0]) for apart in (1, 10_000))
        assert many == 0 < 0.2 < one

    @pytest.mark.parametrize("pull", [0.0, 0.3, 1.0, 30.0])
    @pytest.mark.parametrize("seed", range(4))
    def test_the_nearest_is_found_by_brute_force(self, seed, pull):
        root = np.random.default_rng(seed).normal(size=(3, 5))
        products, shares = root @ root.T, np.array([0.5, 0.25, 0.25])
        a, b = np.mgrid[0:1:201j, 0:1:201j].reshape(2, -1)
        points = np.stack([a, b, 1 - a - b], axis=1)[a + b <= 1 + 1e-9]

        def cost(w):
            curved = np.einsum("...i,ij,...j->...", w, products, w)
            return curved + pull * np.square(w - shares).sum(axis=-1)

        found = nearest(torch.from_numpy(products), torch.from_numpy(shares), pull).numpy()
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)
        assert cost(found) <= cost(points).min() + 1e-9


class TestBlend:
    def test_it_is_the_weighed_mean(self):
        data, parts = FEW.choose, fitted("whole")[1:4]
        draw = torch.Generator().manual_seed(0)
        blend = blended(parts, torch.rand(3, HORIZON, generator=draw))
        own = torch.stack([folds.forecast(part, data) for part in parts])
        wanted = torch.einsum("it,ibtk->btk", blend.weights, own)
        torch.testing.assert_close(folds.forecast(blend, data), wanted)
        means = blend.weights.mean(dim=1).tolist()
        assert blend.shares == pytest.approx(dict(zip((p.name for p in parts), means, strict=True)))
        for part in fitted("gaps"):
            alone = Blend.alone(part)
            assert torch.equal(*(folds.forecast(e, FOLDS["gaps"].choose) for e in (alone, part)))
            assert alone.needs == part.needs

    def test_a_short_history_leaves_what_can_read_it(self):
        parts = [LastValue(FEW.task, "last", PAST)]
        parts += [
            CycleMean(FEW.task, name, n, season=6) for name, n in (("cycle", 6), ("cycles", 18))
        ]
        blend = blended(parts, torch.tensor([0.2, 0.2, 0.6]))
        assert blend.needs == 18
        for steps, shares in (
            (18, {"last": 0.2, "cycle": 0.2, "cycles": 0.6}),
            (17, {"last": 0.5, "cycle": 0.5}),
            (5, {"last": 1.0}),
        ):
            assert blend.within(steps).shares == pytest.approx(shares)
        assert Blend.alone(parts[2]).within(17) is None

    @pytest.mark.parametrize(
        ("weights", "own"),
        [
            (torch.ones(2, HORIZON), None),
            (torch.ones(1, HORIZON), None),
            (torch.full((2, HORIZON), torch.nan), None),
            (torch.tensor([[1.5], [-0.5]]).expand(-1, HORIZON), None),
            (torch.full((2, HORIZON), 0.5), [[0.5, 0.6]]),
            (torch.full((2, HORIZON), 0.5), [[1.5, -0.5]]),
            (torch.full((2, HORIZON), 0.5), [[1.0]]),
        ],
    )
    def test_weights_that_are_none_are_refused(self, weights, own):
        """Those of all series, and those of each."""
        parts = {name: LastValue(FEW.task, name, PAST) for name in "ab"}
        words = "weights" if own is None else "the weights of series are not shares"
        with pytest.raises(ValueError, match=words):
            Blend(FEW.task, parts, weights, None if own is None else torch.tensor(own))


def test_each_series_leans_to_what_is_better_in_it():
    """A panel of two noisy series, the cycle of the first turned over each time."""
    cycle = torch.arange(12.0) - 5.5
    turned = torch.cat([cycle * (-1) ** number for number in range(20)])
    rows = torch.cat([turned, cycle.repeat(20)])[:, None]
    rows = rows + torch.randn(rows.shape, generator=torch.Generator().manual_seed(0))
    items = Items(("a", "b"), np.array([0, 240, 480]), np.array([0, 0]))
    data = Windows(rows, folds.places(240), 24, 12, 40, 240, (0,), items)
    task = folds.task_of(data)
    parts = [TrainingMean(task, "mean", 1), Constant(task, "naught", 0.0)]
    parts += [CycleMean(task, "cycle", 12, season=12)]
    found = weigh(parts, data)
    torch.testing.assert_close(found.of_series.sum(dim=1), torch.ones(2))
    assert found.of_series[:, 0].tolist() == [0.0, 0.0], "a floor"
    own, common = found.of_series[:, 2], float(found.common[2, 0])
    assert float(own[0]) < common < float(own[1])
    few = weigh(parts, replace(data, first=216, last=240))
    assert few.of_series.diff(dim=0).abs().max() < found.of_series.diff(dim=0).abs().max()
    unseen = weigh(parts, replace(data, first=(40, 240)))  # no window of the second
    torch.testing.assert_close(unseen.of_series[1], unseen.common.mean(dim=1))
    blend = Blend.weighed(parts, found)
    assert blend.names == ("naught", "cycle")
    batch = data.batch(torch.tensor([3, 300]))
    forecasts = torch.stack([part(*batch.inputs) for part in parts[1:]], dim=1)
    usual = found.common[1:, 0].expand(2, -1)
    for item, shares in (
        (batch.item, found.of_series[:, 1:]), (torch.tensor([2, 2]), usual), (None, usual),
    ):  # fmt: skip
        wanted = (forecasts * shares[..., None, None]).sum(dim=1)
        torch.testing.assert_close(blend(*batch.inputs, item), wanted)
    assert torch.equal(blend.within(1).of_series, torch.ones(2, 1))


class TestRehearsal:
    """If few windows choose, the later half of the training windows is used to choose, too."""

    def test_the_halves_share_no_target_and_many_windows_have_none(self):
        rehearsal = FEW.rehearsal
        assert rehearsal.train.last == rehearsal.choose.first == 240 - len(FEW.train) // 2
        assert rehearsal.choose.last == FEW.choose.last
        assert len(rehearsal.train) == len(FEW.train) - len(FEW.train) // 2
        long = replace(FEW, choose=folds.windows(folds.series(), 240, 360))
        alone = replace(FEW, train=folds.windows(folds.series(), 0, PAST + HORIZON))
        assert [each.rehearsal for each in (long, alone)] == [None] * 2
        assert replace(long, seasons=(6, 61)).rehearsal, "not two of the longest cycle"
        panel = replace(folds.panel_fold(), seasons=(31,))
        earlier, later = panel.rehearsal.train, panel.rehearsal.choose
        assert earlier.last == later.first
        assert len(later) > len(panel.choose)
        assert len(earlier) < len(panel.train)
        tried, found = weigh_forms(long, fit_forms(long), Constant(FEW.task, "network", 0.3))
        for own, wanted in zip(
            found[:2], weigh(tried, long.choose, len(long.train))[:2], strict=True
        ):
            assert torch.equal(own, wanted)

    def test_what_was_chosen_there_is_fitted_to_all_training_rows(self):
        rehearsed = [part for kind in KINDS.values() for part in kind.fit(FEW.rehearsal)]
        for part, other in zip(fit_forms(FEW)[0], rehearsed, strict=True):
            assert part.settings == other.settings
            wanted = other.refit(FEW)
            assert torch.equal(*(folds.forecast(each, FEW.choose) for each in (part, wanted)))

    def test_the_network_is_weighed_on_what_stops_training_alone(self):
        """It was fitted to the training rows, and would look good there."""
        network = Constant(FEW.task, "network", 0.3)

        def common(**changes):
            fold = replace(FEW, **changes)
            return weigh_forms(fold, fit_forms(fold), network)[1].common

        tried, (weights, errors, _) = weigh_forms(FEW, fit_forms(FEW), network)
        assert tried[-1] is network
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(dim=0), torch.ones(HORIZON))
        wanted = [folds.error(part, FEW.choose) for part in tried]
        assert errors.tolist() == pytest.approx(wanted, rel=1e-4)
        random = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
        other = common(train=replace(FEW.train, values=FEW.train.values + random))
        assert not torch.allclose(*(own[:-1] / own[:-1].sum(dim=0) for own in (other, weights)))
        exact = common(choose=replace(FEW.choose, values=torch.full((400, 3), 0.3)))
        assert float(weights[-1].mean()) < float(exact[-1].mean()) == 0.25, "at most a quarter"
