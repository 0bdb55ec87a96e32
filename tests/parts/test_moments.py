import pytest
import torch

from forecaster.parts import Fold, moments
from forecaster.parts.moments import Layout
from tests.parts import folds
from tests.parts.folds import HORIZON, PAST, SEASON

KNOWN = torch.sin(torch.arange(400.0))[:, None] * torch.tensor([1.0, -2.0])


def slowly(fold, layout):
    """The products of one window after the other, by target; only for complete series."""
    data = fold.train
    for target in data.targets:
        sums = torch.zeros((PAST + HORIZON + layout.width(HORIZON),) * 2, dtype=torch.float64)
        for number in range(len(data)):
            _, row, _ = data.origin(number)
            extras = layout.extras(fold.task, *data.batch(torch.tensor([number])).inputs)[0]
            own = data.values[row - data.past : row + HORIZON, target]
            every = torch.cat([own, extras]).double()
            sums += torch.outer(every, every)
        yield sums


FOLDS = {
    "alone": folds.fold(folds.series()),
    "with covariates": folds.fold(folds.series(), moving=2, covariates=KNOWN),
    "with seasons that nothing tells": folds.fold(folds.series(), (SEASON, 9)),
}


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_sliding_products_are_those_of_each_window(fold):
    layout = Layout.of(fold)
    slow = [*slowly(fold, layout)]
    sliding = [*moments.moments(fold.train, fold.task, layout)]
    gathered = [*moments._gathered(fold.train, fold.task, layout)]
    for one, other, wanted in zip(sliding, gathered, slow, strict=True):
        torch.testing.assert_close(one.sums, wanted, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(other.sums, wanted, rtol=1e-5, atol=1e-4)
        assert one.values == other.values == len(fold.train) * HORIZON
    together = moments.summed(fold.train, fold.task, layout)
    torch.testing.assert_close(together.sums, sum(slow), rtol=1e-5, atol=1e-4)
    assert together.values == len(sliding) * len(fold.train) * HORIZON


def test_long_series_are_correlated_by_fft():
    values = folds.series(30_000, seed=1)
    data = folds.windows(values, 0, 30_000, targets=(1,))
    fold = Fold(folds.task_of(data), data, data, (SEASON,), ((),), 0, data.past, SEASON)
    layout = Layout.of(fold)
    (sliding,), (gathered,) = (
        [*way(data, fold.task, layout)] for way in (moments.moments, moments._gathered)
    )
    torch.testing.assert_close(sliding.sums, gathered.sums, rtol=1e-4, atol=1e-2)


def test_of_many_windows_some_stand_for_all(monkeypatch):
    fold = folds.panel_fold(missing=False)
    layout = Layout.of(fold)
    whole = [*moments.moments(fold.train, fold.task, layout)]
    size = fold.train.past + HORIZON + layout.width(HORIZON)
    monkeypatch.setattr(moments, "MULTIPLICATIONS", 20 * 2 * size**2)
    some = moments.moments(fold.train, fold.task, layout)
    for one, other in zip(some, whole, strict=True):
        assert one.values == other.values
        assert not torch.equal(one.sums, other.sums)
        assert float(one.sums.trace()) == pytest.approx(float(other.sums.trace()), rel=0.2)


def test_wide_windows_with_gaps_are_summed_some_columns_at_a_time(monkeypatch):
    fold = folds.fold(folds.holed(folds.series()))
    together = [*moments.moments(fold.train, fold.task, Layout.of(fold))]
    monkeypatch.setattr(moments, "HELD", 0)
    apart = moments.moments(fold.train, fold.task, Layout.of(fold))
    assert all(torch.equal(a.sums, b.sums) for a, b in zip(together, apart, strict=True))


class TestLayout:
    def test_what_stands_beside_the_past(self):
        fold = folds.fold(folds.series(), moving=2, covariates=KNOWN)
        layout = Layout.of(fold)
        assert (layout.moving, layout.others, layout.before) == (2, (1,), SEASON)
        found = layout.extras(fold.task, *fold.train.batch(torch.tensor([3])).inputs)[0]
        assert len(found) == layout.width(HORIZON)
        row = PAST + 3
        known = KNOWN[row - SEASON : row + HORIZON].T.flatten()
        past = fold.train.values[row - SEASON : row, 1]
        angle = 2 * torch.pi * row / SEASON * torch.arange(1, 4)
        wanted = torch.cat([known, past, torch.ones(1), angle.cos(), angle.sin()])
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)

    @pytest.mark.parametrize(
        ("room", "moving", "others", "before"),
        [(2 * HORIZON + 9, 2, (1,), 3), (2 * HORIZON, 2, (), 0), (2 * HORIZON - 1, 0, (1,), 6),
         (2, 0, (1,), 2), (0, 0, (), 0)],
    )  # fmt: skip
    def test_what_does_not_fit_is_left_out(self, room, moving, others, before, monkeypatch):
        monkeypatch.setattr(moments, "EXTRAS", room)
        fold = folds.fold(folds.series(), moving=2, covariates=KNOWN)
        layout = Layout.of(fold)
        assert (layout.moving, layout.others, layout.before) == (moving, others, before)
        found = layout.extras(fold.task, *fold.train.batch(torch.arange(5)).inputs)
        assert found.shape == (5, layout.width(HORIZON))
