"""A model is trained anew on newer rows, and both are compared on rows that neither has seen."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import UsageError
from forecaster.config.run_config import load
from forecaster.forecast.predictor import Predictor, load_bundle
from forecaster.record.challenge import stretches
from forecaster.run import renew as module
from forecaster.run import train
from forecaster.run.renew import renew
from forecaster.tracking import registry, store
from tests import small

HORIZON, SHIFTED = 5, 300
quiet = [].append
SETS = ("train.epochs=1", "data.target=y")


def frame(rows):
    random = np.random.default_rng(1)
    steps = np.arange(600)
    y = 20 + 3 * np.sin(steps * np.pi / 6) + 0.1 * random.normal(size=600) + 8 * (steps >= SHIFTED)
    times = pd.date_range("2026-01-01", periods=600, freq="h")
    return pd.DataFrame({"time": times, "y": y.round(4)})[:rows]


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory):
    with small.at_home(tmp_path_factory.mktemp("home")):
        for name, rows in (("old", SHIFTED), ("new", 480)):
            frame(rows).to_csv(f"{name}.csv", index=False)
        yield


@pytest.fixture(scope="module")
def champion():
    found = train.run(load("small.yaml", SETS, {"data": "old.csv"}, {}), quiet, quiet)
    return found.bundle.name


def scaled(bundle, origins):
    """The squared errors of a model on "new.csv", in standard deviations before them."""
    errors, table = [], frame(480)
    for origin in origins:
        ahead = Predictor(bundle, "cpu").predict(table[:origin])["y"].to_numpy()
        off = (ahead - table["y"][origin : origin + HORIZON]) / table["y"][: origins[0]].std(ddof=0)
        errors.append(np.mean(off**2))
    return errors


@pytest.fixture(scope="module")
def renewed(champion):
    """The champion before, and what became of it."""
    before = load_bundle(champion)
    return before, renew(before, "new.csv", quiet, quiet, horizons=12, to=Path("served"))


def test_after_a_shift_the_challenger_is_served_and_the_record_says_why(champion, renewed):
    before, found = renewed
    contest = found.contest
    assert contest.first == frame(480)["time"].iloc[-60].isoformat()
    assert found.challenger.bundle.about["seen_until"] < contest.first
    now = load_bundle(champion)
    assert (now.origin["version"], now.origin["alias"]) == ("2", "champion")
    assert now.name == champion, "also where the file is called otherwise"
    with store.asked() as client:
        tags = client.get_model_version(champion, "2").tags
    assert tags["decision"] in found.became
    assert json.loads(tags["contest"])["champion"] == [*contest.champion]
    written = load_bundle("served")
    assert written.about["renewed"]["before"] == before.digest
    assert written.about["renewed"]["judged"]
    errors = scaled(before, range(480 - 60, 480 - HORIZON + 1))
    assert contest.champion == pytest.approx(stretches(np.array(errors), HORIZON), rel=1e-4)


def test_a_difference_on_few_rows_changes_nothing(champion, renewed, monkeypatch):
    registry.promote(f"{champion}/1")
    monkeypatch.setattr(module, "_train", lambda *_: renewed[1].challenger)
    monkeypatch.setattr(module, "MOST", 2)  # the origins of many series are further apart
    before = load_bundle(f"{champion}/1")
    found = renew(before, "new.csv", quiet, quiet, horizons=2)
    assert found.contest.champion == pytest.approx(scaled(before, range(470, 480, 5)), rel=1e-4)
    assert found.to_dict()["outcome"] == "kept"
    assert load_bundle(champion).origin["version"] == "1"


@pytest.mark.long
def test_a_winner_may_train_on_all_rows_and_says_that_this_was_not_judged(champion, tmp_path):
    bundle = load_bundle(load_bundle(f"{champion}/1").about["run_id"])
    found = renew(bundle, "new.csv", quiet, quiet, horizons=12, whole=True, to=tmp_path / "served")
    written = load_bundle(tmp_path / "served")
    assert written.about["seen_until"] == frame(480)["time"].iloc[-1].isoformat()
    assert not written.about["renewed"]["judged"]
    assert found.challenger.bundle.about["seen_until"] < found.contest.first
    assert load_bundle(champion).origin["version"] == "1", "it did not come from the registry"


def test_rows_that_the_model_has_seen_judge_nothing(champion):
    bundle = load_bundle(f"{champion}/1")
    seen = bundle.about["seen_until"]
    frame(600)[lambda table: table["time"] <= pd.Timestamp(seen)].to_csv("seen.csv", index=False)
    with pytest.raises(UsageError, match=f"has 0 rows after those that the model has seen.*{seen}"):
        renew(bundle, "seen.csv", quiet, quiet, horizons=8)
