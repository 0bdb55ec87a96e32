import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from forecaster import parts as library
from forecaster.base.errors import BundleError
from forecaster.datasets.windows import Windows
from forecaster.model import Task
from forecaster.parts import (
    KINDS,
    Blend,
    CycleMean,
    Fold,
    LastValue,
    Once,
    Part,
    Ridge,
    TrainingMean,
    fit_and_weigh,
    fit_parts,
    kind_of,
    weigh,
)  # fmt: skip
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


class Constant(Part):
    """A forecast that is the same number everywhere."""

    kind = "constant"

    def __init__(self, task: Task, name: str, value: float, family: str = "") -> None:
        super().__init__(task, name, 1)
        self.value, self.group = value, family

    @property
    def family(self) -> str:
        return self.group or super().family

    @classmethod
    def fit(cls, fold: Fold) -> Sequence["Constant"]:
        return []

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        return past.new_full((len(past), self.task.horizon, len(self.task.targets)), self.value)


def weights_of(parts: Sequence[Part], data: Windows) -> list[float]:
    return weigh(parts, data)[0].mean(dim=1).tolist()


class TestEveryPart:
    @pytest.mark.parametrize("name", FOLDS)
    def test_forecasts_the_same_in_batches_of_any_size(self, name: str) -> None:
        fold = FOLDS[name]
        for part in fit_parts(fold):
            whole = folds.forecast(part, fold.choose)
            assert whole.shape == (len(fold.choose), fold.task.horizon, len(fold.task.targets))
            assert whole.isfinite().all(), part.name
            for size in (1, 7, 64):
                got = folds.forecast(part, fold.choose, size)
                torch.testing.assert_close(got, whole, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("name", FOLDS)
    def test_comes_back_from_plain_settings_and_its_tensors_bit_for_bit(self, name: str) -> None:
        fold = FOLDS[name]
        for part in fit_parts(fold):
            settings = json.loads(json.dumps(part.settings))
            again = kind_of(part.kind).build(fold.task, settings, part.state_dict())
            assert again.settings == part.settings
            assert (again.name, again.past, again.needs) == (part.name, part.past, part.needs)
            assert torch.equal(*(folds.forecast(p, fold.choose) for p in (part, again)))

    @pytest.mark.parametrize("name", [name for name in FOLDS if name not in ("gaps", "panel")])
    def test_reads_no_more_than_it_says(self, name: str) -> None:
        """For a history without gaps; gaps are filled from the whole history."""
        fold = FOLDS[name]
        batch = fold.choose.batch(torch.arange(min(9, len(fold.choose))))
        for part in fit_parts(fold):
            if part.needs == fold.task.past or part.kind == "last-value":
                continue
            past, known = batch.past.clone(), batch.past_known.clone()
            past[:, : -part.needs] += 7
            known[:, : -part.needs] += 7
            with torch.inference_mode():
                moved = part(past, known, *batch.inputs[2:])
                assert torch.equal(moved, part(*batch.inputs)), part.name

    def test_of_columns_that_never_change_gives_their_value(self) -> None:
        fold = FOLDS["constant"]
        for part in fit_parts(fold):
            wanted = torch.full_like(got := folds.forecast(part, fold.choose), 0.5)
            if not isinstance(part, TrainingMean):
                torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
        found, _ = weigh(fit_parts(fold), fold.choose)
        assert found[0].max() < 1e-6, "the training mean is hopeless"
        torch.testing.assert_close(found.sum(dim=0), torch.ones(HORIZON))

    def test_has_a_name_of_its_own(self) -> None:
        for fold in FOLDS.values():
            names = [part.name for part in fit_parts(fold)]
            assert len(set(names)) == len(names)

    def test_reads_no_further_than_the_task(self) -> None:
        with pytest.raises(ValueError, match="looks back 25 steps, but the task has 24"):
            CycleMean(FOLDS["whole"].task, "x", PAST + 1, season=5)


class TestWeigh:
    def test_weights_are_shares(self) -> None:
        for fold in FOLDS.values():
            found, errors = weigh(fit_parts(fold), fold.choose)
            assert (found >= 0).all()
            torch.testing.assert_close(found.sum(dim=0), torch.ones(fold.task.horizon))
            wanted = [folds.error(part, fold.choose) for part in fit_parts(fold)]
            assert errors.tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-9)

    def test_equal_parts_share_alike_and_families_too(self) -> None:
        fold = FOLDS["whole"]
        same = [LastValue(fold.task, each, PAST) for each in "abc"]
        assert weights_of(same, fold.choose) == pytest.approx([1 / 3] * 3)
        mixed = [Constant(fold.task, "a", 0.1, "one"), Constant(fold.task, "b", 0.1, "two"),
                 Constant(fold.task, "c", 0.1, "two")]  # fmt: skip
        assert weights_of(mixed, fold.choose) == pytest.approx([0.5, 0.25, 0.25], abs=1e-4)

    def test_a_hopeless_part_gets_nothing(self) -> None:
        fold = FOLDS["whole"]
        (ridge, *_) = Ridge.fit(fold)
        found = weights_of([ridge, Constant(fold.task, "c", 50.0)], fold.choose)
        assert found == [1.0, 0.0]

    def test_a_strong_pull_leaves_the_shares_of_the_families(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PULL", 1e9)
        fold = FOLDS["whole"]
        parts = fit_parts(fold)
        found = dict(
            zip((part.name for part in parts), weights_of(parts, fold.choose), strict=True)
        )
        for family in ("repeats", "ridge", "calendar ridge"):
            own = [part.name for part in parts if part.weighed and part.family == family]
            assert sum(found[name] for name in own) == pytest.approx(1 / 3)
            assert len({round(found[name], 4) for name in own}) == 1
        assert found["training mean"] == 0

    def test_the_training_mean_is_a_floor_that_is_never_weighed(self) -> None:
        """Not even where no part is better."""
        level = folds.fold(torch.randn(400, 3, generator=torch.Generator().manual_seed(0)))
        parts: list[Part] = [TrainingMean(level.task, "mean", 1), LastValue(level.task, "last", 24)]
        weights, errors = weigh(parts, level.choose)
        assert weights[:, 0].tolist() == [0.0, 1.0]
        assert errors[0] < errors[1], "its error is told all the same"
        for fold in FOLDS.values():
            found = fit_parts(fold)
            places = [i for i, part in enumerate(found) if isinstance(part, TrainingMean)]
            assert [i for i, part in enumerate(found) if not part.weighed] == places == [0]
            assert weigh(found, fold.choose)[0][0].max() == 0

    def test_the_family_of_each(self) -> None:
        families = {part.name: part.family for part in fit_parts(FOLDS["whole"])}
        ridges = {
            "ridge, 24": "ridge", "ridge, 6": "ridge",
            "calendar ridge, 24": "calendar ridge", "calendar ridge, 6": "calendar ridge",
            "level ridge, 24": "calendar ridge", "level ridge, 6": "calendar ridge",
        }  # fmt: skip
        assert {name: families.pop(name) for name in ridges} == ridges
        assert set(families.values()) == {"repeats"}

    def test_no_pull_gives_the_best_blend_there_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PULL", 0.0)
        monkeypatch.setattr(module, "LEAST", 0.0)
        fold = FOLDS["whole"]
        parts = fit_parts(fold)
        weights, _ = weigh(parts, fold.choose)
        blend = Blend(fold.task, {part.name: part for part in parts}, weights)
        best = error_of(blend, fold.choose)
        random = torch.Generator().manual_seed(0)
        for _ in range(50):
            other = torch.rand(len(parts), 1, generator=random) ** 4
            other[[i for i, part in enumerate(parts) if not part.weighed]] = 0
            other = (other / other.sum()).expand(-1, HORIZON)
            named = {part.name: part for part in parts}
            assert best <= error_of(Blend(fold.task, named, other), fold.choose) + 1e-5

    @pytest.mark.parametrize("pull", [0.0, 0.3, 1.0, 30.0])
    @pytest.mark.parametrize("seed", range(4))
    def test_the_nearest_is_found_by_brute_force(self, seed: int, pull: float) -> None:
        random = np.random.default_rng(seed)
        root = random.normal(size=(3, 5))
        products, shares = root @ root.T, np.array([0.5, 0.25, 0.25])
        grid = np.linspace(0, 1, 201)
        a, b = (each.ravel() for each in np.meshgrid(grid, grid))
        points = np.stack([a, b, 1 - a - b], axis=1)[a + b <= 1 + 1e-9]

        def cost(w: Any) -> Any:
            curved = np.einsum("...i,ij,...j->...", w, products, w)
            return curved + pull * np.square(w - shares).sum(axis=-1)

        found = nearest(torch.from_numpy(products), torch.from_numpy(shares), pull).numpy()
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)
        assert cost(found) <= cost(points).min() + 1e-9


def error_of(blend: Blend, data: Windows) -> float:
    batch = data.batch(torch.arange(len(data)))
    return float((folds.forecast(blend, data) - batch.target).square().mean())


class TestBlend:
    def test_it_is_the_weighed_mean(self) -> None:
        fold = FOLDS["whole"]
        parts = fit_parts(fold)[1:4]
        weights = torch.rand(3, HORIZON, generator=torch.Generator().manual_seed(0))
        weights = weights / weights.sum(dim=0)
        blend = Blend(fold.task, {part.name: part for part in parts}, weights)
        own = [folds.forecast(part, fold.choose) for part in parts]
        wanted = sum(w[:, None] * each for w, each in zip(weights, own, strict=True))
        torch.testing.assert_close(folds.forecast(blend, fold.choose), wanted)
        shares = dict(zip((p.name for p in parts), weights.mean(dim=1).tolist(), strict=True))
        assert blend.shares == pytest.approx(shares)
        quantiles = blend.quantiles(*fold.choose.batch(torch.arange(3)).inputs)
        assert (quantiles.shape, blend.middle, blend.spread) == ((3, HORIZON, 2, 1), 0, None)
        assert blend.effective() == {}

    @pytest.mark.parametrize("name", FOLDS)
    def test_linear_parts_are_one_product(self, name: str) -> None:
        fold = FOLDS[name]
        parts = [part for part in fit_parts(fold) if part.weighed]
        parts += [Constant(fold.task, "constant", 2.0)]
        draw = torch.Generator().manual_seed(0)
        weights = torch.rand(len(parts), fold.task.horizon, generator=draw)
        blend = Blend(fold.task, {part.name: part for part in parts}, weights / weights.sum(dim=0))
        own = [folds.forecast(part, fold.choose) for part in parts]
        wanted = mixed(own, blend.weights)
        torch.testing.assert_close(folds.forecast(blend, fold.choose), wanted, rtol=1e-5, atol=2e-6)
        assert blend.merged is not None
        assert blend.apart == [len(parts) - 1]

    def test_one_part_is_the_forecast(self) -> None:
        fold = FOLDS["gaps"]
        for part in fit_parts(fold):
            alone = Blend.alone(part)
            assert torch.equal(*(folds.forecast(each, fold.choose) for each in (alone, part)))
            assert alone.needs == part.needs

    def test_a_short_history_leaves_what_can_read_it(self) -> None:
        fold = FOLDS["whole"]
        parts: list[Part] = [
            LastValue(fold.task, "last", PAST), CycleMean(fold.task, "cycle", 6, season=6),
            CycleMean(fold.task, "cycles", 18, season=6),
        ]  # fmt: skip
        weights = torch.tensor([0.2, 0.2, 0.6])[:, None].expand(-1, HORIZON)
        blend = Blend(fold.task, {part.name: part for part in parts}, weights)
        assert blend.needs == 18
        whole = blend.within(18)
        assert whole is not None
        assert whole.names == blend.names
        some = blend.within(17)
        assert some is not None
        assert some.shares == pytest.approx({"last": 0.5, "cycle": 0.5})
        one = blend.within(5)
        assert one is not None
        assert one.shares == pytest.approx({"last": 1.0})
        assert Blend.alone(parts[2]).within(17) is None
        assert some.learned is blend.learned

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            (torch.ones(2, HORIZON), "do not sum to one"),
            (torch.ones(1, HORIZON), r"\(2 parts, 8 steps\), got \(1, 8\)"),
            (torch.tensor([[1.5], [-0.5]]).expand(-1, HORIZON), "expected weights >= 0"),
            (torch.full((2, HORIZON), torch.nan), "do not sum to one"),
        ],
    )
    def test_weights_that_are_none_are_refused(self, weights: Tensor, words: str) -> None:
        task = FOLDS["whole"].task
        parts = {name: LastValue(task, name, PAST) for name in "ab"}
        with pytest.raises(ValueError, match=words):
            Blend(task, parts, weights)

    def test_parts_forecast_a_batch_once(self) -> None:
        fold = FOLDS["whole"]
        calls: list[str] = []

        class Counted(LastValue):
            def forward(self, *inputs: Any) -> Tensor:
                calls.append(self.name)
                return super().forward(*inputs)

        once = Once([Counted(fold.task, name, PAST) for name in "ab"])
        one, other = (fold.choose.batch(torch.tensor([i])) for i in (3, 4))
        for batch in (one, one, other):
            found = once(*batch.inputs)
            assert torch.equal(found[0][:, 0], batch.past[:, -1, list(fold.task.targets)])
        assert calls == ["a", "b", "a", "b"]


def test_an_unknown_kind_is_told_with_those_there_are() -> None:
    with pytest.raises(BundleError, match=r"kind 'oracle', but .* are training-mean, .*ridge;"):
        kind_of("oracle")
    assert [kind_of(name) for name in KINDS] == [*KINDS.values()]
    assert library.kinds().items() >= KINDS.items()


def test_a_refit_covers_every_part() -> None:
    fold = FOLDS["whole"]
    everything = replace(fold, train=folds.windows(folds.series(), 0, 400))
    for part in fit_parts(fold):
        again = part.refit(everything)
        assert again.settings == part.settings
        learned = isinstance(part, Ridge)
        own, other = (folds.forecast(each, fold.choose) for each in (part, again))
        assert torch.equal(own, other) != learned


class TestRehearsal:
    """If few windows choose, the later half of the training windows is used to choose, too."""

    def test_the_halves_share_no_target(self) -> None:
        fold = few()
        rehearsal = fold.rehearsal
        assert rehearsal is not None
        assert rehearsal.train.last == rehearsal.choose.first == 240 - len(fold.train) // 2
        assert rehearsal.choose.last == fold.choose.last
        assert len(rehearsal.train) == len(fold.train) - len(fold.train) // 2

    def test_many_windows_a_panel_and_a_window_alone_have_none(self) -> None:
        fold = few()
        long = replace(fold, choose=folds.windows(folds.series(), 240, 360))
        alone = replace(fold, train=folds.windows(folds.series(), 0, PAST + HORIZON))
        assert len(alone.train) == 1
        for each in (long, alone, folds.panel_fold()):
            assert each.rehearsal is None
            parts = [part for kind in KINDS.values() for part in kind.fit(each)]
            for one, other in zip(fit_parts(each), parts, strict=True):
                assert one.settings == other.settings
                assert torch.equal(*(folds.forecast(part, each.choose) for part in (one, other)))

    def test_what_was_chosen_there_is_fitted_to_all_training_rows(self) -> None:
        fold = few()
        assert fold.rehearsal is not None
        rehearsed = [part for kind in KINDS.values() for part in kind.fit(fold.rehearsal)]
        for part, other in zip(fit_parts(fold), rehearsed, strict=True):
            assert part.settings == other.settings
            wanted = other.refit(fold)
            assert torch.equal(*(folds.forecast(each, fold.choose) for each in (part, wanted)))

    def test_the_network_is_weighed_on_what_stops_training_alone(self) -> None:
        """It was fitted to the training rows, and would look good there."""
        fold = few()
        network = Constant(fold.task, "network", 0.3)
        tried, weights, errors = fit_and_weigh(fold, network)  # type: ignore[arg-type]
        assert tried[-1] is network
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(dim=0), torch.ones(HORIZON))
        wanted = [folds.error(part, fold.choose) for part in tried]
        assert errors.tolist() == pytest.approx(wanted, rel=1e-4)
        shares = weights[:-1] / weights[:-1].sum(dim=0)
        random = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
        train = replace(fold.train, values=fold.train.values + random)
        other = fit_and_weigh(replace(fold, train=train), network)[1]  # type: ignore[arg-type]
        assert not torch.allclose(other[:-1] / other[:-1].sum(dim=0), shares)
        choose = replace(fold.choose, values=torch.full((400, 3), 0.3))
        exact = fit_and_weigh(replace(fold, choose=choose), network)[1]  # type: ignore[arg-type]
        assert float(exact[-1].mean()) > float(weights[-1].mean())

    def test_with_enough_windows_all_are_weighed_together(self) -> None:
        fold = replace(few(), choose=folds.windows(folds.series(), 240, 360))
        network = Constant(fold.task, "network", 0.3)
        tried, weights, errors = fit_and_weigh(fold, network)  # type: ignore[arg-type]
        wanted = weigh(tried, fold.choose)
        assert torch.equal(weights, wanted[0])
        assert torch.equal(errors, wanted[1])


def few() -> Fold:
    fold = FOLDS["whole"]
    return replace(fold, choose=folds.windows(folds.series(), 240, 320))
