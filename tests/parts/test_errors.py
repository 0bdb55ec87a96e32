from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.base.errors import DivergedError
from forecaster.datasets.windows import Windows
from forecaster.parts import DampedTrend, LastValue, TrainingMean
from forecaster.parts.errors import chosen, mse, of_maps, products
from tests.parts import folds
from tests.parts.folds import HORIZON, SEASON

DATA = {"whole": folds.rest(folds.series()), "missing": folds.rest(folds.holed(folds.series())),
        "panel": folds.panel()}  # fmt: skip


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_products_equal_the_loop(data: Windows) -> None:
    task = folds.task_of(data)
    parts = [TrainingMean(task, "a", 1), LastValue(task, "b", data.past)]
    found, counts = products(parts, data)
    sums = torch.zeros(HORIZON, 2, 2, dtype=torch.float64)
    seen = torch.zeros(HORIZON)
    for number in range(len(data)):
        batch = data.batch(torch.tensor([number]))
        for t in range(HORIZON):
            for k in range(2):
                if batch.target_observed is not None and not batch.target_observed[0, t, k]:
                    continue
                off = [
                    (part(*batch.inputs)[0, t, k] - batch.target[0, t, k]).double()
                    for part in parts
                ]
                sums[t] += torch.outer(torch.stack(off), torch.stack(off))
                seen[t] += 1
    torch.testing.assert_close(counts, seen.double())
    torch.testing.assert_close(found, sums / seen[:, None, None], rtol=1e-6, atol=1e-9)
    assert mse(parts, data).tolist() == pytest.approx([folds.error(part, data) for part in parts])


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_the_errors_of_maps_are_those_of_their_forecasts(data: Windows) -> None:
    task = folds.task_of(data)
    rates = {"trend": 0.1, "seasonal": 0.05, "damping": 0.9}
    parts = [DampedTrend(task, "x", 12, season=SEASON, level=level, **rates)
             for level in (0.1, 0.5)]  # fmt: skip
    maps = torch.stack([part.ahead.double() @ part.states.double() for part in parts])
    for most in (7, 10**6):
        found = of_maps(maps, data, SEASON, most)
        torch.testing.assert_close(found, mse(parts, data, most), rtol=1e-5, atol=0)


def test_of_many_windows_some_stand_for_all() -> None:
    data = folds.rest(folds.series())
    assert chosen(data, 3).tolist() == [0, (len(data) - 1) // 2, len(data) - 1]
    assert chosen(data, 10**6).tolist() == [*range(len(data))]
    calls: list[Tensor] = []

    def zero(past: Tensor, *_: Tensor | None) -> Tensor:
        calls.append(past)
        return past.new_zeros(len(past), HORIZON, 2)

    products([zero], data, most=5)
    assert sum(map(len, calls)) == 5


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_a_part_whose_forecast_is_not_finite_is_named(data: Windows, value: float) -> None:
    task = folds.task_of(data)

    class Broken(LastValue):
        """Right except for the last step of one window."""

        def forward(self, *inputs: Any) -> Tensor:
            ahead = super().forward(*inputs).clone()
            ahead[-1, -1] = value
            return ahead

    parts = [TrainingMean(task, "fine", 1), Broken(task, "theirs", data.past)]
    with pytest.raises(DivergedError, match="the part 'theirs' is not finite"):
        mse(parts, data)
    assert mse(parts[:1], data).isfinite().all()
