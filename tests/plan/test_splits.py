import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.config.run_config import load as load_config
from forecaster.parts import fit_forms
from forecaster.plan.data import take_frame
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from tests import small

pytestmark = pytest.mark.usefixtures("home")


def test_a_refit_takes_every_row():
    made = small.splits()
    everything = made.refitted()
    np.testing.assert_allclose(everything.schema.scaler.mean, made.plan.series.values.mean(0))
    assert len(everything.training("cpu")) == small.ROWS - 36 - 5 + 1


def test_few_training_windows_are_refitted_by_default(monkeypatch):
    assert small.splits("train.refit=null").plan.config.train.refit is True
    monkeypatch.setattr("forecaster.plan.splits.SHORT", small.TRAIN - 36 - 5 + 1)
    assert small.splits("train.refit=null").plan.config.train.refit is False


def test_the_model_is_a_function_of_configuration_and_seed():
    before = torch.get_rng_state()
    one, two, other = small.splits(), small.splits(), small.splits(seed=1)
    weights = [made.build_model().state_dict() for made in (one, two, other)]
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_the_forms_that_chose_the_effects_are_those_of_the_run():
    """They are fitted once more only for other rows."""
    splits = with_covariate()
    assert splits.schema.known.effects is not None
    kept, anew = splits.forms[0], fit_forms(splits.fold("cpu"))[0]
    assert [part.name for part in kept] == [part.name for part in anew]
    batch = splits.test("cpu").batch(torch.arange(3))
    for one, other in zip(kept, anew, strict=True):
        np.testing.assert_array_equal(one(*batch.inputs), other(*batch.inputs))
    assert splits.at(splits.plan.borders).forms is None
    assert splits.refitted().forms is None


@pytest.mark.parametrize("past", [48, 168])
def test_the_look_back_is_as_long_as_the_data_ask_for(past):
    """A week of hours where weekends differ, two days of a random walk; --lookback decides."""
    hours, noise = np.arange(4000), np.random.default_rng(0).normal(size=4000)
    weekly = np.sin(hours * 2 * np.pi / 24) * (1 - 0.7 * (hours // 24 % 7 >= 5))
    values = noise.cumsum() if past == 48 else weekly + 0.2 * noise
    times = pd.date_range("2026", periods=4000, freq="h")
    frame = pd.DataFrame({"time": times, "load": values})

    def look_back(**flags):
        loaded = load_config(None, {"data.name": "./frame"}, {"horizon": 12, "season": 24, **flags})
        splits = make_splits(make_plan(*take_frame(loaded, frame, lambda text: None)), known=None)
        assert splits.training("cpu").past == splits.plan.config.window.past
        return splits.plan.config.window.lengths()[:2]

    assert look_back() == (past, past // 2)
    assert look_back(lookback=96) == (96, 48)


def with_covariate():
    times = pd.date_range("2026", periods=600, freq="h")
    heat = np.random.default_rng(0).normal(size=600).cumsum() / 10
    load = np.sin(np.arange(600) * 2 * np.pi / 24) + heat
    frame = pd.DataFrame({"time": times, "load": load, "heat": heat})
    sets = ["data.future_covariates=[heat]", "data.target=load"]
    loaded = load_config(None, ["data.name=./frame", *sets], {"horizon": 12}, {})
    return make_splits(make_plan(*take_frame(loaded, frame, lambda text: None)))
