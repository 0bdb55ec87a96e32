import pytest
import torch

from forecaster.base.errors import DivergedError
from forecaster.parts import LastValue, TrainingMean
from forecaster.parts.errors import chosen, mse, products
from tests.parts import folds
from tests.parts.folds import HORIZON

DATA = {"whole": folds.rest(folds.series()), "missing": folds.rest(folds.holed(folds.series())),
        "panel": folds.panel()}  # fmt: skip


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_products_are_those_of_all_errors(data):
    task = folds.task_of(data)
    parts = [TrainingMean(task, "a", 1), LastValue(task, "b", data.past)]
    found = products(parts, data)
    batch = data.batch(torch.arange(len(data)))
    seen = torch.ones_like(batch.target, dtype=torch.bool)
    seen = seen if batch.target_observed is None else batch.target_observed
    off = torch.stack([folds.forecast(part, data) - batch.target for part in parts]).double()
    off = off.where(seen, 0.0)
    each = torch.einsum("ibtk,jbtk->bkij", off, off).flatten(0, 1)
    each = each[each[:, 1, 1] > 0]  # the training mean is not weighed
    torch.testing.assert_close(found.relative, (each / each[:, 1:2, 1:2]).mean(dim=0))
    assert found.pairs == len(each)
    torch.testing.assert_close(found.mse, mse(parts, data))
    assert mse(parts, data).tolist() == pytest.approx([folds.error(part, data) for part in parts])


def test_of_many_windows_some_stand_for_all():
    data = folds.rest(folds.series())
    assert chosen(data, 3).tolist() == [0, (len(data) - 1) // 2, len(data) - 1]
    assert chosen(data, 10**6).tolist() == [*range(len(data))]
    calls = []

    def zero(past, *_):
        calls.append(past)
        return past.new_zeros(len(past), HORIZON, 2)

    products([zero], data, most=5)
    assert sum(map(len, calls)) == 5


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_a_part_whose_forecast_is_not_finite_is_named(data, value):
    task = folds.task_of(data)

    class Broken(LastValue):
        """Right except for the last step of one window."""

        def forward(self, *inputs):
            ahead = super().forward(*inputs).clone()
            ahead[-1, -1] = value
            return ahead

    parts = [TrainingMean(task, "fine", 1), Broken(task, "theirs", data.past)]
    with pytest.raises(DivergedError, match="the part 'theirs' is not finite"):
        mse(parts, data)
    assert mse(parts[:1], data).isfinite().all()
