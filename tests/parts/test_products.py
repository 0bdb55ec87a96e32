import pytest
import torch

from forecaster.base.errors import DivergedError
from forecaster.datasets.windows import evenly
from forecaster.parts import LastValue, TrainingMean
from forecaster.parts.products import by_window, mse, products, ratio
from tests.parts import folds
from tests.parts.folds import HORIZON

DATA = {"whole": folds.rest(folds.series()), "missing": folds.rest(folds.holed(folds.series())),
        "panel": folds.panel()}  # fmt: skip


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_products_are_those_of_all_errors(data):
    task = folds.task_of(data)
    parts = [TrainingMean(task, "a", 1), LastValue(task, "b", data.past)]
    found = products(parts, data)
    errors = torch.stack([folds.errors(part, data) for part in parts])
    off = errors.nan_to_num()
    each = torch.einsum("ibtk,jbtk->bkij", off, off).flatten(0, 1)
    each = each[each[:, 1, 1] > 0]  # the training mean is not weighed
    torch.testing.assert_close(found.relative, (each / each[:, 1:2, 1:2]).mean(dim=0))
    assert found.pairs == len(each)
    squares = errors.square()
    torch.testing.assert_close(found.mse, squares.nanmean(dim=(1, 2, 3)))
    torch.testing.assert_close(mse(parts, data), found.mse)
    windows = squares.nanmean(dim=(2, 3)).T.nan_to_num()
    torch.testing.assert_close(by_window(parts, data), windows, rtol=1e-5, atol=1e-7)


def test_a_window_of_extreme_values_does_not_decide_alone():
    some = torch.tensor([[1.0, 9], [1, 9], [1, 9], [100, 100]])
    others = torch.tensor([[0.5, 8], [0.5, 8], [0.5, 8], [110, 110]])
    assert some.mean(dim=0).min() < others.mean(dim=0).min()
    assert 1 < ratio(some, others) < 2
    assert ratio(some, others) == pytest.approx(1 / ratio(others, some))


def test_of_many_windows_some_stand_for_all():
    data = folds.rest(folds.series())
    assert evenly(data, 3).tolist() == [0, (len(data) - 1) // 2, len(data) - 1]
    assert evenly(data, 10**6).tolist() == [*range(len(data))]
    calls = []

    def zero(past, *_):
        calls.append(past)
        return past.new_zeros(len(past), HORIZON, 2)

    products([zero], data, most=5)
    assert sum(map(len, calls)) == 5


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("measure", [mse, products, by_window])
def test_a_part_whose_forecast_is_not_finite_is_named(measure, value):
    data = DATA["missing"]

    class Broken(LastValue):
        """Right except for the last step of one window."""

        def forward(self, *inputs):
            ahead = super().forward(*inputs).clone()
            ahead[-1, -1] = value
            return ahead

    parts = [kind(folds.task_of(data), "theirs", data.past) for kind in (LastValue, Broken)]
    with pytest.raises(DivergedError, match="the part 'theirs' is not finite"):
        measure(parts, data)
    assert measure(parts[:1], data) is not None
