from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor

from forecaster import config
from forecaster.datasets import Items, Windows, load_card
from forecaster.datasets.reader import read_card
from forecaster.errors import DataError
from forecaster.evaluate import Floor, all_floors, floors, score
from forecaster.problem import make_problem

TARGETS = [2, 0]


def series(rows: int = 400, seed: int = 0) -> Tensor:
    """Three columns with a cycle of six steps whose level wanders."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, 3, generator=generator)
    cycle = torch.sin(torch.arange(rows) * torch.pi / 3)[:, None]
    return cycle + 0.5 * noise + 0.1 * noise.cumsum(dim=0)


def windows(values: Tensor, first: int, last: int, past: int = 20, horizon: int = 8) -> Windows:
    return Windows(values, torch.zeros(len(values), 1), past, horizon, first, last, tuple(TARGETS))


def forecast_all(floor: Floor, data: Windows) -> Tensor:
    data = data.looking_back(floor.past)
    return floor.forecast(data.batch(torch.arange(len(data))))


def naive(name: str, past: Tensor, season: int, cycles: int) -> Tensor:
    """One window: past (P, K) -> (8, K), step by step."""
    steps = []
    for t in range(8):
        match name:
            case "training mean":
                steps.append(torch.zeros(past.shape[1]))
            case "last value":
                steps.append(past[-1])
            case "cycle mean":
                seen = [past[len(past) - season * c + t % season] for c in range(1, cycles + 1)]
                steps.append(torch.stack(seen).mean(dim=0))
    return torch.stack(steps)


@pytest.mark.parametrize(
    ("floor", "name", "season", "cycles"),
    [
        (floors.training_mean(2, 8), "training mean", 0, 0),
        (floors.last_value(TARGETS, 8), "last value", 0, 0),
        (floors.cycle_mean(6, 1, TARGETS, 8, "x"), "cycle mean", 6, 1),
        (floors.cycle_mean(6, 5, TARGETS, 8, "x"), "cycle mean", 6, 5),
        (floors.cycle_mean(13, 3, TARGETS, 8, "x"), "cycle mean", 13, 3),
    ],
)
def test_floors_equal_the_loops(floor: Floor, name: str, season: int, cycles: int) -> None:
    values = series()
    data = windows(values, 100, 200)
    got = forecast_all(floor, data)
    first_target = 100
    assert len(got) == 100 - 8 + 1
    for i in range(len(got)):
        past = values[: first_target + i, TARGETS]
        torch.testing.assert_close(got[i], naive(name, past, season, cycles))


def test_the_number_of_cycles_is_the_best_on_validation() -> None:
    values = series()
    validation = windows(values, 200, 300)
    floor = floors.best_cycle_mean(6, TARGETS, 8, validation, 200)
    errors = {
        k: score(
            floors.cycle_mean(6, k, TARGETS, 8, "x").forecast, validation.looking_back(6 * k)
        ).mse
        for k in floors.CYCLES
        if 6 * k <= 200
    }
    best = min(errors, key=errors.__getitem__)
    assert len(errors) == 9  # 42 cycles are more than there is before validation
    assert best not in (1, 28)
    assert floor.past == 6 * best
    assert floor.chosen == f"k = {best} cycles of 6 steps, chosen on validation"


def test_no_choice_looks_at_the_test_rows() -> None:
    values = series()
    noisy = values.clone()
    noisy[300:] = 100 * torch.randn(100, 3)
    chosen = []
    for rows in (values, noisy):
        train, validation = windows(rows, 0, 200), windows(rows, 200, 300)
        chosen.append(all_floors(train, validation, (6, 12), 200))
    for one, other in zip(*chosen, strict=True):
        assert (one.name, one.past, one.chosen) == (other.name, other.past, other.chosen)
        data = windows(values, 300, 400)
        assert torch.equal(forecast_all(one, data), forecast_all(other, data))


def test_choices_do_look_at_validation() -> None:
    values, train = series(), windows(series(), 0, 200)
    chosen = set()
    for noise in (0.0, 3.0):
        rows = values.clone()
        rows[200:300] += noise * torch.randn(100, 3, generator=torch.Generator().manual_seed(1))
        found = all_floors(train, windows(rows, 200, 300), (6,), 200)
        chosen.add((found[-2].chosen, found[-1].chosen))
    assert len(chosen) == 2


@pytest.mark.parametrize("penalty", [1e-4, 0.1, 10.0])
def test_the_linear_map_is_ridge_regression(
    penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "PENALTIES", (penalty,))
    values = series()
    train = windows(values, 0, 200)
    floor = floors.linear_map(train, windows(values, 200, 300))
    x, y = [], []
    for start in range(200 - 28 + 1):
        for column in TARGETS:
            row = values[start : start + 28, column].double() - values[start + 19, column]
            x.append(row[:20])
            y.append(row[20:])
    inputs, outputs = torch.stack(x).numpy(), torch.stack(y).numpy()
    alpha = penalty * np.trace(inputs.T @ inputs) / 20
    ridge = Ridge(alpha, fit_intercept=False).fit(inputs, outputs)

    data = windows(values, 300, 400)
    batch = data.batch(torch.arange(len(data)))
    got = floor.forecast(batch)
    last = batch.past[:, -1:, TARGETS]
    for k, column in enumerate(TARGETS):
        past = (batch.past[:, :, column] - last[:, :, k]).double().numpy()
        wanted = ridge.predict(past) + last[:, :, k].double().numpy()
        np.testing.assert_allclose(got[:, :, k].numpy(), wanted, atol=2e-4)


def test_the_penalty_is_the_best_on_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    values = series()
    train, validation = windows(values, 0, 200), windows(values, 200, 300)
    chosen = floors.linear_map(train, validation)
    errors = {}
    for penalty in floors.PENALTIES:
        monkeypatch.setattr(floors, "PENALTIES", (penalty,))
        errors[penalty] = score(floors.linear_map(train, validation).forecast, validation).mse
    best = min(errors, key=errors.__getitem__)
    assert chosen.chosen == f"ridge, P = 20, penalty {best:g} chosen on validation"
    assert min(errors) < best < max(errors)


def test_columns_that_never_change_give_the_last_value() -> None:
    values = torch.full((400, 3), 0.5)
    train, validation = windows(values, 0, 200), windows(values, 200, 300)
    for floor in all_floors(train, validation, (6,), 200):
        wanted = 0.0 if floor.name == "training mean" else 0.5
        got = forecast_all(floor, windows(values, 300, 400))
        torch.testing.assert_close(got, torch.full_like(got, wanted))


def test_all_floors_score_the_same_windows() -> None:
    values = series()
    train, validation = windows(values, 0, 100), windows(values, 100, 150)
    found = all_floors(train, validation, (6, 12, 101), 100)
    names = ["training mean", "last value", "seasonal naive, 6", "seasonal naive, 12",
             "cycle mean", "linear map"]  # fmt: skip
    assert [floor.name for floor in found] == names  # 101 steps are more than the training rows
    test = windows(values, 150, 200)
    for floor in found:
        for data in (validation, test):
            assert len(data.looking_back(floor.past)) == len(data)


def test_a_season_longer_than_the_training_rows_is_refused() -> None:
    values = series()
    with pytest.raises(DataError, match="100 training rows do not hold one cycle of 101 steps"):
        all_floors(windows(values, 0, 100), windows(values, 100, 150), (101,), 100)


@pytest.mark.data
def test_the_floors_of_etth1_are_the_known_ones() -> None:
    card = load_card("ETTh1")
    problem = make_problem(config.load(sets=["window.horizon=336"]).config, read_card(card))
    test = problem.test("cpu")
    found = all_floors(
        problem.training("cpu"), problem.validation("cpu"), card.seasons, problem.borders.train
    )
    scores = {floor.name: score(floor.forecast, test.looking_back(floor.past)) for floor in found}
    assert {got.windows for got in scores.values()} == {2545}
    known = {
        "training mean": (1.107, 0.800),
        "last value": (1.330, 0.746),
        "seasonal naive, 24": (0.650, 0.501),
        "seasonal naive, 168": (0.683, 0.520),
        "cycle mean": (0.399, 0.418),
        "linear map": (0.417, 0.429),
    }
    for name, (mse, mae) in known.items():
        assert (scores[name].mse, scores[name].mae) == pytest.approx((mse, mae), abs=0.002), name
    chosen = {floor.name: floor.chosen for floor in found}
    assert chosen["cycle mean"] == "k = 21 cycles of 24 steps, chosen on validation"
    assert "penalty 1 " in chosen["linear map"]


@pytest.mark.parametrize("targets", [(0, 1), (1,)])
def test_the_products_of_windows_are_those_of_each_window(targets: tuple[int, ...]) -> None:
    values = torch.randn(60, 2).cumsum(dim=0)
    windows = Windows(values, torch.zeros(60, 1), 7, 5, 11, 53, targets)
    wanted = torch.zeros(12, 12, dtype=torch.float64)
    for start in range(4, 4 + len(windows)):
        for target in targets:
            window = values[start : start + 12, target].double()
            window = window - window[6]
            wanted += torch.outer(window, window)
    torch.testing.assert_close(floors.centred_products(windows), wanted, rtol=1e-10, atol=1e-10)


def panel(missing: bool = True) -> Windows:
    """Three items with a cycle of six steps, of which the last has few rows before its windows."""
    rows = torch.cat([series(120), series(90, seed=1), series(40, seed=2)])
    if missing:
        rows[torch.rand(rows.shape, generator=torch.Generator().manual_seed(3)) < 0.25] = torch.nan
        rows[140:180] = torch.nan
    items = Items(tuple("abc"), np.array([0, 120, 210, 250]), np.array([0, 10, 80]))
    return Windows(rows, torch.zeros(120, 1), 9, 8, 60, 120, tuple(TARGETS), items)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("cycles", [0, 1, 4])
def test_floors_of_panels_and_missing_values_equal_the_loops(cycles: int, missing: bool) -> None:
    data = panel(missing)
    floor = (
        floors.cycle_mean(6, cycles, TARGETS, 8, "x")
        if cycles
        else floors.last_value(TARGETS, 8, data.past)
    )
    got = forecast_all(floor, data)
    assert len(got) == len(data)
    assert data.items is not None
    fallbacks = 0
    for number in range(len(data)):
        item, row, _ = data.origin(number)
        first = int(data.items.bounds[item])
        for k, column in enumerate(TARGETS):
            for t in range(8):
                rows = [row - 6 * c + t % 6 for c in range(1, cycles + 1)]
                seen = [data.values[r, column] for r in rows if r >= first]
                if not cycles:
                    seen = list(data.values[max(first, row - 9) : row, column])
                seen = [float(value) for value in seen if not value.isnan()]
                seen = seen if cycles else seen[-1:]
                fallbacks += not seen
                assert float(got[number, t, k]) == pytest.approx(
                    np.mean(seen) if seen else 0, abs=1e-6
                )
    assert (fallbacks > 0) == missing or cycles == 1


def test_every_floor_scores_the_windows_of_the_model() -> None:
    data = panel()
    train = replace(data, first=0, last=60)
    for floor in all_floors(train, data, (6, 24), 60):
        got = score(floor.forecast, data.looking_back(floor.past))
        assert got.windows == len(data)
        assert np.isfinite(got.mse)


def test_the_products_of_a_panel_are_those_of_each_window() -> None:
    data = panel(missing=False)
    gram, cross, count = floors.products(data)
    wanted = torch.zeros(9, 17, dtype=torch.float64)
    for number in range(len(data)):
        _, row, _ = data.origin(number)
        for target in TARGETS:
            window = data.values[row - 9 : row + 8, target].double() - data.values[row - 1, target]
            wanted += torch.outer(window[:9], window)
    assert count == len(data)
    torch.testing.assert_close(torch.cat([gram, cross], dim=1), wanted, rtol=1e-5, atol=1e-5)


def test_missing_targets_count_like_the_others() -> None:
    """Of each step ahead the products are of the windows that have it, as if all had."""
    data = panel()
    _, cross, _ = floors.products(data)
    sums, counts = torch.zeros(9, 8, dtype=torch.float64), torch.zeros(8)
    for number in range(len(data)):
        batch = data.batch(torch.tensor([number]))
        assert batch.observed is not None
        assert batch.target_observed is not None
        for k, target in enumerate(TARGETS):
            seen = batch.observed[0, :, target]
            past = batch.past[0, :, target]
            last = past[seen][-1] if seen.any() else torch.tensor(0.0)
            inputs = torch.where(seen, past - last, 0)
            ahead = batch.target_observed[0, :, k]
            sums += torch.outer(inputs, torch.where(ahead, batch.target[0, :, k] - last, 0))
            counts += ahead
    torch.testing.assert_close(
        cross, sums * (2 * len(data) / counts), rtol=1e-5, atol=1e-5, check_dtype=False
    )


def test_missing_values_hardly_change_the_linear_map() -> None:
    values = series(3000)
    holes = values.clone()
    holes[:2500][torch.rand(2500, 3, generator=torch.Generator().manual_seed(0)) < 0.1] = torch.nan
    test = windows(values, 2500, 3000)
    errors = []
    for rows in (values, holes):
        floor = floors.linear_map(windows(rows, 0, 2000), windows(rows, 2000, 2500))
        errors.append(score(floor.forecast, test).mse)
    last = score(floors.last_value(TARGETS, 8).forecast, test).mse
    assert errors[0] < errors[1] < errors[0] + 0.1 * (last - errors[0])


def test_of_many_windows_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    data = panel(missing=False)
    monkeypatch.setattr(floors, "MULTIPLICATIONS", 40 * 2 * 9 * 17)
    assert floors.products(data)[2] == 40
    floor = floors.linear_map(replace(data, first=0, last=60), data)
    assert floor.chosen.endswith("chosen on validation, from 40 of 78 windows")
