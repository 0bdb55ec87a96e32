"""A search: what it tries, what it keeps, and how it continues."""

import json
from pathlib import Path
from weakref import ref

import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from forecaster.base.errors import (
    ConfigError,
    DeviceLostError,
    DivergedError,
    ForecasterError,
    UnavailableError,
    UsageError,
)
from forecaster.config.run_config import load
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.run import train, tune
from forecaster.run.tune import read_space
from forecaster.tracking.store import MlflowClient  # which silences MLflow first
from tests import small

SPACE = {
    "train.lr": FloatDistribution(1e-4, 1e-2, log=True),
    "model.width": CategoricalDistribution([8, 16]),
}


@pytest.fixture(autouse=True)
def _home(tmp_path):
    with small.at_home(tmp_path):
        yield


@pytest.fixture
def judged(monkeypatch):
    """Trials that take no time: the error is least for a rate of 0.001 and a width of 16."""
    asked = []

    def judge(dataset, config, seconds):
        asked.append(config)
        rate, width = config.train.lr, config.model.options["width"]
        return {"validation_mse": abs(rate - 0.001) + (width == 8), "best_epoch": 1.0}

    monkeypatch.setattr(tune, "judge", judge)
    return asked


def search(
    space=SPACE, name="toy", trials=4, limit=None, storage=None, sets=(), say=print, tracked=False
):
    def loading(more):
        return load("small.yaml", [*sets, *more], {"horizon": 5}, {})

    return tune.run(
        loading, space, name, say, trials=trials, limit=limit, storage=storage, tracked=tracked
    )


def test_a_space_has_a_distribution_for_each_value():
    space = read_space("default")
    assert space["train.lr"] == FloatDistribution(0.0001, 0.01, log=True)
    assert space["train.batch"] == CategoricalDistribution([16, 32, 64])
    Path("space.yaml").write_text("model.width: {low: 8, high: 16, step: 4}\n")
    assert read_space("space.yaml") == {"model.width": IntDistribution(8, 16, step=4)}


def test_a_space_that_is_none_names_its_value():
    rates = ("0.1", "[]", "{low: 2, high: 1}", "{low: 1}", "{low: 0, high: 1, log: true}")
    rates += ("{low: 1, high: 2, hihg: 3}", "{low: a, high: 2.0}")
    for text in ("{}", *(f"train.lr: {rate}" for rate in rates)):
        Path("space.yaml").write_text(text)
        with pytest.raises(ConfigError, match=r"space.yaml: (train.lr: |expected values)"):
            read_space("space.yaml")


def test_what_is_set_or_unknown_is_not_searched():
    with pytest.raises(UsageError, match=r"model.width is searched, but --set model.width=8"):
        search(sets=["model.width=8"])
    with pytest.raises(UsageError, match=r"unknown key 'model.widht'"):
        search(space={"model.widht": CategoricalDistribution([1, 2])})


def test_the_best_is_kept_and_can_be_trained(judged):
    found = search(trials=12)
    assert len(judged) == len(found.trials) == 12
    errors = [trial.validation_mse for trial in found.trials]
    assert errors == sorted(errors)
    assert found.trials[0].values["model.width"] == 16
    kept = load(str(found.file), [], {}, {}).config
    assert kept.train.lr == pytest.approx(found.trials[0].values["train.lr"])
    assert kept.model.options["width"] == 16
    assert yaml.safe_load(found.file.read_text())["window"]["horizon"] == 5
    assert found.text(most=1).startswith(f"trial {found.trials[0].number}: validation MSE ")
    json.dumps(found.to_dict(), allow_nan=False)


def test_it_goes_on_and_proposes_what_is_new(judged):
    storage = "sqlite:///shared.db"
    search(trials=3, storage=storage)
    assert len(search(trials=5, storage=storage).trials) == 5
    assert len(judged) == 5
    rates = {config.train.lr for config in judged}
    assert len(rates) == 5, "a seed that began anew would propose the first ones again"
    assert len(search(trials=2, storage=storage).trials) == 5
    assert len(judged) == 5


def test_another_search_of_that_name_is_refused(judged):
    search(trials=1)
    with pytest.raises(UsageError, match=r"another search .*\n.*train.epochs: 2 there, 3 here"):
        search(trials=1, sets=["train.epochs=3"])


def test_a_trial_that_fails_is_told_and_stops_no_other(monkeypatch, judged):
    plain = tune.judge

    def judge(dataset, config, seconds):
        if len(judged) != 1:
            return plain(dataset, config, seconds)
        judged.append(config)
        raise raised

    monkeypatch.setattr(tune, "judge", judge)
    raised = DivergedError("in epoch 1")
    found = search(trials=3)
    assert [trial.failed for trial in found.trials] == ["", "", "in epoch 1"]
    assert [trial.validation_mse is None for trial in found.trials] == [False, False, True]
    judged[:] = [None]
    raised = MemoryError("too much")
    with pytest.raises(ForecasterError, match=r"the first: MemoryError: too much"):
        search(name="none", trials=1)
    with pytest.raises(ForecasterError, match="the time was over"):
        search(name="other", limit=0.0)
    with pytest.raises(UnavailableError, match=r"sqlite:////nowhere/x\.db"):
        search(storage="sqlite:////nowhere/x.db")


def test_memory_is_free_again_and_a_lost_gpu_ends_the_search(monkeypatch):
    def network(splits, device):
        assert all(model() is None for model in models), "no earlier model is left"
        if len(models) == 2:
            raise RuntimeError("illegal memory access")
        model, fitted = original(splits, device)
        models.append(ref(model))
        return model, fitted

    models, original = [], train.train_network
    monkeypatch.setattr(train, "train_network", network)
    monkeypatch.setattr(tune, "works", lambda device: False)
    with pytest.raises(DeviceLostError, match="illegal memory access"):
        search(trials=6)
    assert len(models) == 2


@pytest.mark.slow
def test_a_real_search_is_judged_on_validation_within_its_time(tmp_path):
    found = search(trials=2)
    assert all(trial.validation_mse > 0 for trial in found.trials)
    best = load(str(found.file), [], {}, {})
    splits = make_splits(make_plan(*find_data(best, print)))
    _, fitted = train.train_network(splits, "cpu")
    assert found.trials[0].validation_mse == pytest.approx(fitted.validation_mse, rel=1e-6)
    with pytest.raises(ForecasterError, match=r"took longer than|before one ended"):
        search(name="late", limit=0.01)


def test_each_trial_is_a_run_below_that_of_the_search(judged):
    found = search(trials=2, tracked=True)
    runs = MlflowClient(f"sqlite:///{Path.cwd()}/mlflow.db").search_runs(["1"])
    parent, first, second = sorted(runs, key=lambda run: run.info.run_name)
    assert [run.info.run_name for run in (parent, first, second)] == ["toy", "toy-0", "toy-1"]
    trials = sorted(found.trials, key=lambda each: each.number)
    for run, trial in zip((first, second), trials, strict=True):
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.metrics["validation_mse"] == pytest.approx(trial.validation_mse, rel=1e-5)
        assert {key: float(run.data.params[key]) for key in SPACE} == trial.values
        assert len(run.data.params) < 16
        wanted = {"tune": "toy", "attn": "prob", "data": "small", "horizon": "5"}
        assert wanted.items() <= run.data.tags.items()
    assert found.ui_command.startswith("mlflow ui")
