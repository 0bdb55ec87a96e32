import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file as load_weights

from forecaster.base.errors import StorageError, UsageError
from forecaster.config.run_config import load_dict
from forecaster.evaluate.judge import judge
from forecaster.parts import Blend, Network
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.study.compare.cell import FACTS, WEIGHTS, read, train
from tests.study.compare.grids import small_grid, trained


@pytest.fixture(scope="module")
def grid(home):
    return small_grid(seeds=2)


@pytest.fixture(scope="module")
def cell(grid):
    """With full attention, few tokens and the linear path."""
    return next(cell for cell in grid.cells if cell.name == "full-5-few-linear-s0")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def done(grid, cell, cells):
    return trained(grid, cell, cells)


def test_facts(done, cell):
    facts = done.facts
    assert json.loads((done.folder / FACTS).read_text()) == facts.to_dict()
    assert read(done.folder).facts == facts
    assert (facts.config, facts.config_digest) == (cell.config.to_dict(), cell.digest)
    assert 0 <= facts.best_step <= facts.steps == 6
    assert facts.budget_parameters == cell.parameters
    assert facts.parameters == cell.parameters + 36 * 5, "and the linear path"
    assert (facts.tokens, facts.effective, facts.is_full) == (9, "encoder.0: full", False)
    assert (facts.commit, facts.command) == ("abc", "forecaster compare")
    assert facts.mlflow_run_id is None
    assert 0 <= facts.together <= 1
    for key in ("train_seconds", "windows_per_second", "inference_ms", "seconds", "validation_mse"):
        assert facts.to_dict()[key] > 0
    assert facts["peak_mib"] >= 0
    assert "1 threads" in facts.hardware


@pytest.mark.parametrize(("holidays", "split"), [("DE", {}), (None, {"split": None})])
def test_the_floors_are_those_of_its_own_problem(done, grid, cell, cells, holidays, split):
    data = {"small": replace(grid.data["small"], **split)}
    config = cell.config.to_dict()
    config["data"]["holidays"] = holidays
    other = replace(cell, name="other", steps=7, config=load_dict(config, "a test"))
    found = trained(replace(grid, data=data), other, cells).facts.floors
    assert found.keys() == done.facts.floors.keys()
    assert found != done.facts.floors
    assert trained(grid, replace(cell, name="again"), cells).facts.floors == done.facts.floors


def test_it_is_what_the_evaluation_says_and_can_be_repeated(done, grid, cell, tmp_path):
    """With every test window, the floors, and the weights that were kept."""
    splits = make_splits(make_plan(cell.config, grid.data["small"]))
    model = splits.build_model()
    model.load_state_dict(load_weights(done.folder / WEIGHTS))
    judged = judge(splits, Blend.alone(Network(model)), "cpu").backtest.to_dict()
    for key in ("mse", "mae", "windows", "by_step"):
        assert done.facts.to_dict()[key] == judged[key]
    for name, floor in judged["floors"].items():
        assert done.facts.floors[name].measured == {"mse": floor["mse"], "mae": floor["mae"]}
    by_window = done.by_window()
    assert by_window.dtype == np.float64
    assert by_window.mean() == pytest.approx(judged["mse"])
    np.testing.assert_array_equal(trained(grid, cell, tmp_path).by_window(), by_window)


def test_what_cannot_be_checked_or_read_is_refused(grid, cell, tmp_path):
    with pytest.raises(UsageError, match="3 steps end before the first check, which comes after 6"):
        train((grid.data, "abc", "forecaster compare"), replace(cell, steps=3))
    with pytest.raises(StorageError, match=r"cell.json cannot be read: .* Remove "):
        read(tmp_path)
