import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from forecaster.base import installation
from forecaster.base.errors import DataError, DivergedError, UsageError
from forecaster.base.installation import is_bundle
from forecaster.config.run_config import Loaded, load, load_dict
from forecaster.evaluate.judge import rejudge
from forecaster.forecast import bundle
from forecaster.forecast.predictor import Predictor
from forecaster.record.folder import read
from forecaster.run import train
from forecaster.tracking import texts
from forecaster.tracking.store import MlflowClient  # which silences MLflow first
from tests import small

pytestmark = pytest.mark.usefixtures("home")
DATA = os.environ.get("FORECASTER_DATA", "")
WINDOWS = small.TEST - small.VALIDATION - 5 + 1
UNREGISTERED = "track.register_model=false"
DIVERGING = ("train.lr=1e30", "model=informer", "model.width=4", "model.heads=1")


def resolve(*sets, **flags):
    return load("small.yaml", sets, flags, {})


def run(*sets, call=None, **flags):
    """Train; the result and the printed lines."""
    said = []
    call = {} if call is None else call
    loaded = resolve(*sets, **flags)
    return train.run(loaded, said.append, lambda metrics: None, **call), said


def end_early(monkeypatch, what, *sets, **flags):
    """Begin a run that ends at the function `what`; its folder."""
    with monkeypatch.context() as patch:
        patch.setattr(train, what, lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(UNREGISTERED, *sets, **flags)
    (folder,) = unfinished()
    return folder


def unfinished():
    return [file.parent for file in Path("runs").glob("*/run.json") if not is_bundle(file.parent)]


def same(one, other):
    """Whether two results have the same weights, bit for bit."""
    return all(torch.equal(other.bundle.weights[k], w) for k, w in one.bundle.weights.items())


@pytest.fixture(scope="module")
def trained():
    return run()


@pytest.fixture(scope="module")
def result(trained):
    return trained[0]


@pytest.fixture(scope="module")
def client(result):
    return MlflowClient(f"sqlite:///{Path.cwd()}/mlflow.db")


@pytest.fixture(scope="module")
def tracked(client, result):
    return client.get_run(result.run_id)


class TestRun:
    def test_every_test_window_is_scored_beside_the_floors(self, result):
        found = result.record.to_dict()
        test, windows = found["test"], (found["validation_windows"], found["stopping_windows"])
        assert (test["windows"], *windows) == (WINDOWS, 56, 26)
        assert list(test["floors"]) == [
            "training mean", "last value", "seasonal naive, 12", "seasonal naive, 24", "cycle mean",
            "smoothing", "ridge, 36", "calendar ridge, 36", "level ridge, 36",
            "ridge, 12", "calendar ridge, 12", "level ridge, 12",
        ]  # fmt: skip
        assert 0 < test["mse"] < 1, "the series is a sine with little noise"
        intervals = test["intervals"]
        assert intervals["calibration_windows"] == 26
        assert 0.5 < intervals["80"]["coverage"] <= 1
        assert intervals["95"] is None, "26 windows are too few"
        assert intervals["verdict"].startswith("The 80 % intervals cover ")

    def test_the_bundle_holds_the_run(self, result, home):
        found = bundle.load(home / result.folder)
        assert (found.digest, found.record) == (result.bundle.digest, result.record)
        assert found.about["run_id"] == result.run_id
        assert found.about["name"] == "forecaster-small-M-all-5"
        assert found.about["data_digest"].startswith("sha256:")
        assert found.about["borders"] == [small.TRAIN, small.VALIDATION, small.TEST]
        assert (found.about["refit"], bool(found.about["attn_effective"])) == (False, True)
        assert Predictor.load(home / result.folder, "cpu").ranges.low.shape == (3, 3)
        assert rejudge(found, "cpu").backtest == result.record.test

    def test_what_has_no_weight_is_in_the_run_alone(self, trained, home):
        result, said = trained
        tried, served = result.record.parts, bundle.load(home / result.folder).build()
        assert list(tried) == [*result.record.test.floors, "network"]
        assert sum(own.weight for own in tried.values()) == pytest.approx(1, abs=1e-5)
        weighty = {name: own.weight for name, own in tried.items() if own.weight}
        assert served.shares == pytest.approx(weighty)
        line = next(line for line in said if "is made of" in line)
        assert all(f"{100 * weight:.0f} % {name}" in line for name, weight in weighty.items())

    @pytest.mark.usefixtures("untracked")
    def test_the_seed_decides(self, result):
        again, _ = run(UNREGISTERED)
        assert (again.record.test, again.registered) == (result.record.test, "")
        assert same(result, again)
        assert again.name != result.name, "two runs of one configuration are told apart"
        other, _ = run(UNREGISTERED, seed=1)
        assert other.record.test["mse"] != result.record.test["mse"]
        assert other.name.startswith("small-5-prob-s1-")

    def test_a_training_that_diverges_fails_and_leaves_nothing_to_resume(self, client, tracked):
        with pytest.raises(DivergedError):
            run(*DIVERGING, seed=9)
        experiments = [tracked.info.experiment_id]
        (failed,) = client.search_runs(experiments, "attributes.run_name LIKE 'small-5-prob-s9-%'")
        assert failed.info.status == "FAILED"
        assert unfinished() == []

    @pytest.mark.usefixtures("untracked")
    def test_no_picture_no_example_and_no_effect_costs_a_run(self, monkeypatch):
        monkeypatch.setattr(train, "example", lambda *arguments: 1 / 0)
        monkeypatch.setattr(texts, "figures", lambda *arguments: 1 / 0)
        monkeypatch.setattr(train.effects, "measure", lambda *arguments: 1 / 0)
        result, said = run(UNREGISTERED)
        what = {"no pictures", "no examples", "the effects of inputs were not measured"}
        assert {f"{each}: ZeroDivisionError: division by zero" for each in what} <= {*said}
        assert bundle.load(result.folder).record == result.record

    @pytest.mark.usefixtures("untracked")
    def test_the_data_of_a_test_of_memory_have_a_bundle_too(self):
        few = ("train.updates=2", "train.windows=64", "model.width=4", "model.feed_forward=4")
        loaded = load(
            "own", few, {"data": "recall-64", "horizon": 8, "lookback": 64, "epochs": 1}, {}
        )
        result = train.run(loaded, lambda text: None, lambda metrics: None)
        assert not Predictor.load(result.folder, "cpu").schema.scaler.mean.any()

    def test_other_data_are_not_judged(self, result):
        about = {**result.bundle.about, "data_digest": "sha256:other"}
        with pytest.raises(DataError, match=r"sha256:other, but .*small.csv"):
            rejudge(replace(result.bundle, about=about), "cpu")


class TestResume:
    """An interrupted run goes on; test_reliability.py kills processes."""

    def test_a_training_that_ended_is_not_repeated(self, result, client, monkeypatch):
        folder = end_early(monkeypatch, "judge", seed=0)
        name = folder.name
        again, said = run(UNREGISTERED, call={"resume": "auto"}, seed=0)
        assert f"resuming {name} at the end of its training" in said
        assert again.folder == Path("runs", name)
        assert again.record.test == result.record.test
        assert same(result, again)
        assert unfinished() == []
        info = client.get_run(again.run_id).info
        assert (info.status, info.run_name, again.name) == ("FINISHED", name, name)
        losses = client.get_metric_history(again.run_id, "train_loss")
        assert [point.step for point in losses] == [1, 2], "none is told twice"
        own = client.get_metric_history(again.run_id, "network_test_mse")
        assert [point.step for point in own] == [-1, 0]

    def test_nor_is_the_refit(self, refitted, monkeypatch):
        folder = end_early(monkeypatch, "keep", refit=True)
        assert {"fit", "refit"} == {file.stem for file in (folder / "unfinished").iterdir()}
        again, _ = run(UNREGISTERED, call={"resume": folder.name}, refit=True)
        assert same(refitted[0], again)

    def test_a_tracker_that_has_forgotten_the_run_gets_a_new_one(self, client, monkeypatch):
        folder = end_early(monkeypatch, "make_blend")
        about = read(folder)
        forgotten = about.run_id
        client.delete_run(forgotten)
        again, said = run(UNREGISTERED, call={"resume": folder.name})
        assert again.run_id == again.bundle.about["run_id"] != forgotten
        assert again.folder == folder
        assert any(f"the tracker does not know run {forgotten}" in line for line in said)
        assert client.get_run(again.run_id).data.tags["forecaster.run"] == about.key

    @pytest.mark.usefixtures("untracked")
    def test_without_any_it_begins_anew_and_says_so(self):
        again, said = run(UNREGISTERED, "train.epochs=1", call={"resume": "auto"})
        assert any(line.startswith("--resume auto: no unfinished run") for line in said)
        assert again.folder.exists()


@pytest.mark.usefixtures("untracked")
def test_an_unfinished_run_is_offered(monkeypatch):
    monkeypatch.setattr(installation, "commit", lambda: "c")
    sets = ("train.lr=0.008", "train.epochs=1")
    folder = end_early(monkeypatch, "judge", *sets)
    found, said = run(UNREGISTERED, *sets, call={"force": False})
    assert any(f"{folder} " in line and "--resume auto" in line for line in said)
    assert found.folder != folder
    shutil.rmtree(folder)


class TestTracking:
    def test_a_run_is_named_and_grouped(self, tracked, result):
        assert tracked.info.run_name == result.name == result.folder.name
        assert re.fullmatch(r"small-5-prob-s0-[0-9a-f]{8}", result.name)
        params, flat = tracked.data.params, result.bundle.config.flat()
        own = {"model.parts", "model.feed_forward", "attn.factor", "train.schedule", "train.refit"}
        assert own < params.keys() <= {*texts.PARAMS, *own}, "the file is the user's own"
        assert params.items() <= flat.items()
        tags, about = tracked.data.tags, result.bundle.about
        wanted = {"data": "small", "horizon": "5", "attn": "prob", "config": "small.yaml"}
        wanted |= {"attn.effective": about["attn_effective"], "data.digest": about["data_digest"]}
        assert wanted.items() <= tags.items()
        assert {"git.commit", "device"} <= set(tags)
        assert "data.instead_of" not in tags
        (data,) = tracked.inputs.dataset_inputs
        assert data.dataset.name == "small"

    def test_data_instead_of_those_that_cannot_be_found_are_named(self, home, client):
        card = yaml.safe_load((home / "cards" / "small.yaml").read_text())
        absent = {"name": "absent", "sources": [{"files": ["x"], "sha256": "0" * 64}]}
        (home / "cards" / "absent.yaml").write_text(yaml.safe_dump(card | absent))
        data, track = {"name": "absent", "otherwise": "small"}, {"register_model": False}
        config = load_dict(small.CONFIG | {"data": data, "track": track}, "the test")
        loaded, said = Loaded(config, {"data.otherwise": "default.yaml"}), []
        found = train.run(loaded, said.append, lambda metrics: None)
        assert "This run uses small instead of absent" in "\n".join(said)
        assert found.name.startswith("small-5-prob-s0-")
        run = client.get_run(found.run_id).data
        assert (run.params["data.name"], run.tags["data.instead_of"]) == ("small", "absent")

    def test_some_ten_figures_the_first_is_the_networks_own(self, tracked, client, result):
        metrics, test = tracked.data.metrics, result.record.to_dict()["test"]
        curves = {"train_loss", "validation_mse", "learning_rate", "windows_per_second"}
        assert metrics == pytest.approx({
            **{key: metrics[key] for key in curves},
            "network_test_mse": test["network"]["mse"],
            "network_test_mae": test["network"]["mae"],
            "network_weight": test["network"]["weight"],
            "test_mse": test["mse"],
            "test_mae": test["mae"],
            "skill": test["floors"][test["best_floor"]]["skill"],
            "coverage_80": test["intervals"]["80"]["coverage"],
            "train_seconds": result.record.train.seconds,
            "best_epoch": result.record.train.best_epoch,
            "peak_mib": result.record.train.peak_mib,
            "parameters": train.parameters(result.bundle.build().network),
        }, rel=1e-5)  # fmt: skip
        assert next(iter(metrics)) == "network_test_mse", "MLflow draws what it was told first"
        losses = client.get_metric_history(result.run_id, "train_loss")
        assert [point.step for point in losses] == [1, 2]

    def test_all_other_figures_are_in_files(self, client, result, tmp_path):
        folder = Path(client.download_artifacts(result.run_id, "", str(tmp_path)))
        tables = {file.stem: pd.read_json(file, orient="split")
                  for file in (folder / "tables").iterdir()}  # fmt: skip
        test = result.record.to_dict()["test"]
        parts = tables["parts"].set_index("part")
        assert list(parts.index) == ["model", "network", *test["floors"]]
        assert parts.loc["network", "mse"] == pytest.approx(test["network"]["mse"])
        columns = tables["columns"].set_index("column")
        assert columns.loc["a", "mae_units"] == pytest.approx(test["columns"]["a"]["mae_units"])
        assert tables["steps"]["mse"].to_list() == pytest.approx(test["by_step"]["mse"])
        assert json.loads((folder / "metrics.json").read_text()) == result.record.to_dict()
        config = yaml.safe_load((folder / "config.yaml").read_text())
        assert load_dict(config, "the artifact") == result.bundle.config
        plots = {path.name for path in (folder / "plots").iterdir()}
        assert plots == {"forecast.png", "error_by_step.png", "picture.png"}

    def test_run_and_version_are_described(self, tracked, client, result):
        text = tracked.data.tags["mlflow.note.content"]
        assert text.startswith("\n\n".join(result.record.test.verdicts))
        picture = f"(get-artifact?path=plots%2Fpicture.png&run_uuid={tracked.info.run_id})"
        assert f"![forecast]{picture}" in text
        name = "forecaster-small-M-all-5"
        version = client.get_model_version_by_alias(name, "champion")
        assert (version.run_id, version.description) == (result.run_id, text)
        assert "is the champion" in result.registered
        about = client.get_registered_model(name).description
        assert about.startswith("Forecasts of small, 5 steps of h ahead.")
        (made,) = tracked.outputs.model_outputs
        (file,) = Path("mlartifacts").rglob(f"{made.model_id}/artifacts/MLmodel")
        described = yaml.safe_load(file.read_text())
        assert (file.parent / described["saved_input_example_info"]["artifact_path"]).exists()


@pytest.mark.usefixtures("untracked")
class TestIntervals:
    def test_without_calibration_all_of_validation_stops(self):
        plain, _ = run(UNREGISTERED, "intervals.calibrate=false")
        problem = small.splits("intervals.calibrate=false")
        model, _ = train.train_network(problem, "cpu")
        assert len(problem.stopping("cpu")) == len(problem.validation("cpu")) == 56
        assert plain.bundle.intervals is None
        assert "intervals.calibrate" in plain.bundle.about["intervals"]
        assert (plain.record.stopping_windows, plain.record.test.intervals) == (56, None)
        for name, weight in model.state_dict().items():
            assert torch.equal(plain.bundle.weights[name], weight)

    def test_without_two_halves_the_intervals_come_from_a_rehearsal(self):
        result, said = run(UNREGISTERED, "train.epochs=1", horizon=31)
        (sentence,) = [line for line in said if line.startswith("intervals: ")]
        assert sentence.endswith("validation has 60 rows, fewer than two horizons of 31")
        again = f"{sentence}; then again with the 50 test windows"
        assert f"intervals: {result.bundle.about['intervals']}" == again
        assert len(result.bundle.intervals.levels) == 9
        assert result.record.stopping_windows == result.record.validation_windows == 30


@pytest.fixture(scope="module")
def refitted(result):
    return run(UNREGISTERED, refit=True)


def test_a_refit_changes_all_but_figures_choices_and_widths(refitted, result):
    again, said = refitted
    assert any("refit on all 400 rows for" in line for line in said)
    assert again.record.test == result.record.test
    new, old = again.bundle, result.bundle
    assert new.about["refit"] is True
    assert new.schema.scaler != old.schema.scaler
    assert not same(result, again)
    for part, before in zip(new.parts, old.parts, strict=True):
        assert (part.name, part.settings) == (before.name, before.settings)
        assert torch.equal(part.weights, before.weights)
        if part.kind == "ridge":
            assert not torch.equal(part.tensors["weights"], before.tensors["weights"])
    units = [own.intervals.offsets * own.schema.target_scaler.std[:, None] for own in (new, old)]
    np.testing.assert_allclose(*units, rtol=1e-12)
    with pytest.raises(UsageError, match="refitted"):
        rejudge(new, "cpu")


@pytest.mark.long
@pytest.mark.data
def test_the_quick_start_on_etth1_is_as_good_as_docs_results_says(tmp_path):
    command = [*(sys.executable, "-m", "forecaster", "train", "--attn", "prob")]
    environment = {**os.environ, "FORECASTER_DATA": DATA}
    done = subprocess.run(
        [*command, "--horizon", "336", "--json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    test = json.loads(done.stdout)["test"]
    assert test["windows"] == 2_880 - 336 + 1
    assert test["mse"] <= 0.42
    assert test["network"]["mse"] <= 0.41
