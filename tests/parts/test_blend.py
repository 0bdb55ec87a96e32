import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from forecaster import parts as library
from forecaster.base.errors import BundleError
from forecaster.datasets.items import Items
from forecaster.datasets.windows import Windows
from forecaster.parts import (
    KINDS,
    Blend,
    CycleMean,
    LastValue,
    Once,
    Part,
    TrainingMean,
    boosted,
    fit_and_weigh,
    fit_parts,
    kind_of,
    weigh,
)  # fmt: skip
from forecaster.parts import blend as module
from forecaster.parts.blend import mixed, nearest
from forecaster.parts.errors import by_window, ratio
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


FEW = FOLDS["whole"]
"""A fold in which few windows choose."""


class Constant(Part):
    """A forecast that is the same number everywhere."""

    kind = "constant"

    def __init__(self, task, name, value, family=""):
        super().__init__(task, name, 1)
        self.value, self.group = value, family

    @property
    def family(self):
        return self.group or super().family

    @classmethod
    def fit(cls, fold):
        return []

    def forward(self, past, past_known, future_known, observed=None):
        return past.new_full((len(past), self.task.horizon, len(self.task.targets)), self.value)


@cache
def fitted(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosted, "FEWEST", 0)
        return fit_parts(FOLDS[name])


def weights_of(parts, data):
    return weigh(parts, data)[0].mean(dim=1).tolist()


def blended(parts, weights):
    """Parts with weights (n,) or (n, T), which are scaled to sum to one."""
    shares = weights.reshape(len(parts), -1).expand(-1, parts[0].task.horizon)
    return Blend(parts[0].task, {each.name: each for each in parts}, shares / shares.sum(dim=0))


@pytest.mark.parametrize("name", FOLDS)
class TestEveryPart:
    """The contract of every kind, on every fold."""

    def test_forecasts_the_same_in_batches_of_any_size(self, name):
        fold, parts = FOLDS[name], fitted(name)
        assert len({part.name for part in parts}) == len(parts)
        for part in parts:
            whole = folds.forecast(part, fold.choose)
            assert whole.shape == (len(fold.choose), fold.task.horizon, len(fold.task.targets))
            assert whole.isfinite().all(), part.name
            torch.testing.assert_close(folds.forecast(part, fold.choose, 7), whole)
            if name == "constant" and not isinstance(part, TrainingMean):
                torch.testing.assert_close(whole, torch.full_like(whole, 0.5), atol=1e-5, rtol=0)

    def test_comes_back_from_plain_settings_and_its_tensors_bit_for_bit(self, name):
        fold = FOLDS[name]
        for part in fitted(name):
            settings = json.loads(json.dumps(part.settings))
            again = kind_of(part.kind).build(fold.task, settings, part.state_dict())
            assert again.settings == part.settings
            assert (again.name, again.past, again.needs) == (part.name, part.past, part.needs)
            assert torch.equal(*(folds.forecast(p, fold.choose) for p in (part, again)))

    def test_reads_no_more_than_it_says(self, name):
        fold = FOLDS[name]
        batch = fold.choose.batch(torch.arange(min(9, len(fold.choose))))
        if batch.observed is not None:
            return  # gaps are filled from the whole history
        for part in fitted(name):
            past, known = batch.past.clone(), batch.past_known.clone()
            before = fold.task.past - max(
                part.needs, part.past * (part.kind in ("last-value", "smoothing"))
            )
            past[:, :before] += 7
            known[:, :before] += 7
            with torch.inference_mode():
                moved = part(past, known, *batch.inputs[2:])
                assert torch.equal(moved, part(*batch.inputs)), part.name

    def test_is_fitted_again_to_other_rows_with_its_choices_unchanged(self, name):
        fold = FOLDS[name]
        for part in fitted(name):
            again = part.refit(fold)
            assert again.settings == part.settings
            own, other = (folds.forecast(each, fold.choose) for each in (part, again))
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)

    def test_weights_are_shares(self, name):
        fold, parts = FOLDS[name], fitted(name)
        found, errors, _ = weigh(parts, fold.choose)
        assert (found >= 0).all()
        torch.testing.assert_close(found.sum(dim=0), torch.ones(fold.task.horizon))
        wanted = [folds.error(part, fold.choose) for part in parts]
        assert errors.tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-9)
        assert [part.kind for part in parts if not part.weighed] == [TrainingMean.kind]
        assert float(found[0].max()) == 0, "it is a floor, which is never weighed"

    def test_linear_parts_are_one_product(self, name):
        fold = FOLDS[name]
        parts = [part for part in fitted(name) if part.linear() is not None]
        parts += [Constant(fold.task, "constant", 2.0)]
        draw = torch.Generator().manual_seed(0)
        blend = blended(parts, torch.rand(len(parts), fold.task.horizon, generator=draw))
        wanted = mixed([folds.forecast(part, fold.choose) for part in parts], blend.weights)
        torch.testing.assert_close(folds.forecast(blend, fold.choose), wanted, rtol=1e-5, atol=2e-6)
        assert blend.merged is not None
        assert blend.apart == [len(parts) - 1]


class TestWeigh:
    def test_equal_parts_share_alike_and_families_too(self):
        fold = FOLDS["whole"]
        equal = [LastValue(fold.task, each, PAST) for each in "abc"]
        assert weights_of(equal, fold.choose) == pytest.approx([1 / 3] * 3)
        mixed = [Constant(fold.task, "a", 0.1, "one"), Constant(fold.task, "b", 0.1, "two"),
                 Constant(fold.task, "c", 0.1, "two")]  # fmt: skip
        assert weights_of(mixed, fold.choose) == pytest.approx([0.5, 0.25, 0.25], abs=1e-4)
        hopeless = [fitted("whole")[-1], Constant(fold.task, "c", 50.0)]
        assert weights_of(hopeless, fold.choose) == [1.0, 0.0]

    def test_few_windows_say_little(self):
        parts = [
            Constant(FOLDS["whole"].task, "a", 0.0, "a"),
            Constant(FOLDS["whole"].task, "b", 0.0, "b"),
        ]
        products = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        one, many = (float(module.shares(parts, products, apart)[1, 0]) for apart in (1, 10_000))
        assert many == 0 < 0.2 < one

    @pytest.mark.parametrize("pull", [0.0, 0.3, 1.0, 30.0])
    @pytest.mark.parametrize("seed", range(4))
    def test_the_nearest_is_found_by_brute_force(self, seed, pull):
        random = np.random.default_rng(seed)
        root = random.normal(size=(3, 5))
        products, shares = root @ root.T, np.array([0.5, 0.25, 0.25])
        grid = np.linspace(0, 1, 201)
        a, b = (each.ravel() for each in np.meshgrid(grid, grid))
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
        data, parts = FOLDS["whole"].choose, fitted("whole")[1:4]
        weights = torch.rand(3, HORIZON, generator=torch.Generator().manual_seed(0))
        blend = blended(parts, weights)
        own = [folds.forecast(part, data) for part in parts]
        wanted = sum(w[:, None] * each for w, each in zip(blend.weights, own, strict=True))
        torch.testing.assert_close(folds.forecast(blend, data), wanted)
        means = blend.weights.mean(dim=1).tolist()
        assert blend.shares == pytest.approx(dict(zip((p.name for p in parts), means, strict=True)))
        quantiles = blend.quantiles(*data.batch(torch.arange(3)).inputs)
        assert (quantiles.shape, blend.middle, blend.spread) == ((3, HORIZON, 2, 1), 0, None)
        assert blend.effective() == {}

    def test_one_part_is_the_forecast(self):
        for part in fitted("gaps"):
            alone = Blend.alone(part)
            assert torch.equal(*(folds.forecast(e, FOLDS["gaps"].choose) for e in (alone, part)))
            assert alone.needs == part.needs

    def test_a_short_history_leaves_what_can_read_it(self):
        task = FOLDS["whole"].task
        parts = [
            LastValue(task, "last", PAST), CycleMean(task, "cycle", 6, season=6),
            CycleMean(task, "cycles", 18, season=6),
        ]  # fmt: skip
        blend = blended(parts, torch.tensor([0.2, 0.2, 0.6]))
        assert blend.needs == 18
        left = [blend.within(steps) for steps in (18, 17, 5)]
        shares = [each.shares for each in left if each is not None]
        assert shares[0] == pytest.approx({"last": 0.2, "cycle": 0.2, "cycles": 0.6})
        assert shares[1] == pytest.approx({"last": 0.5, "cycle": 0.5})
        assert shares[2] == pytest.approx({"last": 1.0})
        assert Blend.alone(parts[2]).within(17) is None

    @pytest.mark.parametrize(
        "weights",
        [torch.ones(2, HORIZON), torch.ones(1, HORIZON), torch.full((2, HORIZON), torch.nan),
         torch.tensor([[1.5], [-0.5]]).expand(-1, HORIZON)],
    )  # fmt: skip
    def test_weights_that_are_none_are_refused(self, weights):
        task = FOLDS["whole"].task
        with pytest.raises(ValueError, match="weights"):
            Blend(task, {name: LastValue(task, name, PAST) for name in "ab"}, weights)

    def test_parts_forecast_a_batch_once(self):
        fold = FOLDS["whole"]
        calls = []

        class Counted(LastValue):
            def forward(self, *inputs):
                calls.append(self.name)
                return super().forward(*inputs)

        once = Once([Counted(fold.task, name, PAST) for name in "ab"])
        one, other = (fold.choose.batch(torch.tensor([i])) for i in (3, 4))
        for batch in (one, one, other):
            found = once(*batch.inputs)
            assert torch.equal(found[0][:, 0], batch.past[:, -1, list(fold.task.targets)])
        assert calls == ["a", "b", "a", "b"]


def test_an_unknown_kind_is_told_with_those_there_are():
    with pytest.raises(BundleError, match=r"'oracle', .* training-mean, .*ridge;"):
        kind_of("oracle")
    assert [kind_of(name) for name in KINDS] == [*KINDS.values()]
    assert library.kinds().items() >= KINDS.items()
    with pytest.raises(ValueError, match="25 steps, but the task has 24"):
        CycleMean(FOLDS["whole"].task, "x", PAST + 1, season=5)


def test_a_window_of_extreme_values_does_not_decide_alone():
    some = torch.tensor([[1.0, 9], [1, 9], [1, 9], [100, 100]])
    others = torch.tensor([[0.5, 8], [0.5, 8], [0.5, 8], [110, 110]])
    assert some.mean(dim=0).min() < others.mean(dim=0).min()
    assert 1 < ratio(some, others) < 2
    torch.testing.assert_close(ratio(some, others), 1 / ratio(others, some))


def test_the_errors_of_windows_have_the_mean_of_all():
    fold, parts = FOLDS["gaps"], fitted("gaps")
    found = by_window(parts, fold.choose)
    assert found.shape == (len(fold.choose), len(parts))
    each = replace(fold.choose, first=fold.choose.first, last=fold.choose.first + HORIZON)
    alone = [folds.error(part, each) for part in parts]
    assert found[0].tolist() == pytest.approx(alone, rel=1e-4)


class TestSeries:
    """A panel of two noisy series, the cycle of the first turned over each time."""

    def windows(self):
        random = torch.Generator().manual_seed(0)
        cycle = torch.arange(12.0) - 5.5
        turned = torch.cat([cycle * (-1) ** number for number in range(20)])
        rows = torch.cat([turned, cycle.repeat(20)])[:, None]
        rows = rows + torch.randn(rows.shape, generator=random)
        items = Items(("a", "b"), np.array([0, 240, 480]), np.array([0, 0]))
        return Windows(rows, folds.places(240), 24, 12, 40, 240, (0,), items)

    def test_each_leans_to_what_is_better_in_it(self):
        data = self.windows()
        task = folds.task_of(data)
        parts = [
            TrainingMean(task, "mean", 1), Constant(task, "naught", 0.0),
            CycleMean(task, "cycle", 12, season=12),
        ]  # fmt: skip
        found = weigh(parts, data)
        torch.testing.assert_close(found.of_series.sum(dim=1), torch.ones(2))
        assert found.of_series[:, 0].tolist() == [0.0, 0.0], "a floor"
        own, common = found.of_series[:, 2], float(found.common[2, 0])
        assert float(own[0]) < common < float(own[1])
        few = weigh(parts, replace(data, first=216, last=240))
        assert few.of_series.diff(dim=0).abs().max() < found.of_series.diff(dim=0).abs().max()
        blend = Blend.weighed(parts, found)
        assert blend.names == ("naught", "cycle")
        batch = data.batch(torch.tensor([3, 300]))
        forecasts = torch.stack([part(*batch.inputs) for part in parts[1:]], dim=1)
        for item, shares in (
            (batch.item, found.of_series[:, 1:]),
            (torch.tensor([2, 2]), found.common[1:, 0].expand(2, -1)),
        ):
            wanted = (forecasts * shares[..., None, None]).sum(dim=1)
            torch.testing.assert_close(blend(*batch.inputs, item), wanted)
        unknown = blend(*batch.inputs, torch.tensor([2, 2]))
        torch.testing.assert_close(blend(*batch.inputs), unknown)
        alone = blend.within(1)
        assert torch.equal(alone.of_series, torch.ones(2, 1))

    def test_without_windows_it_has_the_common_weights(self):
        data = self.windows()
        task = folds.task_of(data)
        parts = [Constant(task, "naught", 0.0), CycleMean(task, "cycle", 12, season=12)]
        found = weigh(parts, replace(data, first=(40, 240)))
        torch.testing.assert_close(found.of_series[1], found.common.mean(dim=1))

    @pytest.mark.parametrize("own", [[[0.5, 0.6]], [[1.5, -0.5]], [[1.0]]])
    def test_what_are_no_shares_is_an_error(self, own):
        task = FEW.task
        parts = {name: LastValue(task, name, PAST) for name in "ab"}
        with pytest.raises(ValueError, match="the weights of series are not shares"):
            Blend(task, parts, torch.full((2, HORIZON), 0.5), torch.tensor(own))


class TestRehearsal:
    """If few windows choose, the later half of the training windows is used to choose, too."""

    def test_the_halves_share_no_target_and_many_windows_have_none(self):
        fold, rehearsal = FEW, FEW.rehearsal
        assert rehearsal.train.last == rehearsal.choose.first == 240 - len(fold.train) // 2
        assert rehearsal.choose.last == fold.choose.last
        assert len(rehearsal.train) == len(fold.train) - len(fold.train) // 2
        long = replace(fold, choose=folds.windows(folds.series(), 240, 360))
        alone = replace(fold, train=folds.windows(folds.series(), 0, PAST + HORIZON))
        assert [each.rehearsal for each in (long, alone, folds.panel_fold())] == [None] * 3
        network = Constant(fold.task, "network", 0.3)
        tried, found = fit_and_weigh(long, network)
        wanted = weigh(tried, long.choose)
        assert torch.equal(found.common, wanted.common)
        assert torch.equal(found.mse, wanted.mse)

    def test_what_was_chosen_there_is_fitted_to_all_training_rows(self):
        rehearsed = [part for kind in KINDS.values() for part in kind.fit(FEW.rehearsal)]
        for part, other in zip(fit_parts(FEW), rehearsed, strict=True):
            assert part.settings == other.settings
            wanted = other.refit(FEW)
            assert torch.equal(*(folds.forecast(each, FEW.choose) for each in (part, wanted)))

    def test_the_network_is_weighed_on_what_stops_training_alone(self):
        """It was fitted to the training rows, and would look good there."""
        fold, network = FEW, Constant(FEW.task, "network", 0.3)
        tried, (weights, errors, _) = fit_and_weigh(fold, network)
        assert tried[-1] is network
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(dim=0), torch.ones(HORIZON))
        wanted = [folds.error(part, fold.choose) for part in tried]
        assert errors.tolist() == pytest.approx(wanted, rel=1e-4)
        shares = weights[:-1] / weights[:-1].sum(dim=0)
        random = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
        train = replace(fold.train, values=fold.train.values + random)
        other = fit_and_weigh(replace(fold, train=train), network)[1].common
        assert not torch.allclose(other[:-1] / other[:-1].sum(dim=0), shares)
        choose = replace(fold.choose, values=torch.full((400, 3), 0.3))
        exact = fit_and_weigh(replace(fold, choose=choose), network)[1].common
        assert float(exact[-1].mean()) > float(weights[-1].mean())
