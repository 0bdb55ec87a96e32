import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from forecaster import cli
from forecaster.base import installation
from forecaster.base.errors import DataError, DivergedError, UsageError
from forecaster.config.run_config import load, load_dict
from forecaster.evaluate.judge import rejudge
from forecaster.evaluate.problem import find_data, make_problem
from forecaster.forecast import bundle
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.questions import Question
from forecaster.run import experiment
from forecaster.tracking import pages
from forecaster.tracking.store import MlflowClient  # which silences MLflow first
from forecaster.train.run import fit
from tests import small

DATA = os.environ.get("FORECASTER_DATA", "")
WINDOWS = small.TEST - small.VALIDATION - 5 + 1


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A separate working directory, where the data set `small` is known."""
    with small.at_home(tmp_path_factory.mktemp("home")) as folder:
        yield folder


def resolve(*sets, **flags):
    return load("small.yaml", sets, flags, {})


def run(*sets, **flags):
    """Train; the result and the printed text."""
    said = []
    result = experiment.run(resolve(*sets, **flags), said.append, lambda metrics: None)
    return result, "\n".join(said)


@pytest.fixture(scope="module")
def trained(home):
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
    def test_what_is_said(self, trained):
        result, said = trained
        lines = said.splitlines()
        assert lines[0].startswith("small-5-prob-s0: small (400 rows of 3 columns every h), ")
        assert "look back 36, forecast 5; tokens with " in lines[0]
        assert lines[1].startswith("attention prob amounts to: ")
        assert "kept the weights after" in said
        assert f"bundle written to {result.folder}" in said
        assert result.record.train.still_falling is True, "two epochs are few"
        assert "validation was still falling at the end: give it more epochs, --epochs 4" in lines

    def test_every_test_window_is_scored_beside_the_floors(self, result):
        test = result.record.to_dict()["test"]
        assert test["windows"] == WINDOWS
        assert list(test["floors"]) == [
            "training mean", "last value", "seasonal naive, 12", "seasonal naive, 24", "cycle mean",
            "drift", "damped trend", "ridge, 36", "calendar ridge, 36", "level ridge, 36",
            "ridge, 12", "calendar ridge, 12", "level ridge, 12",
        ]  # fmt: skip
        assert test["verdict"].startswith("The model ")
        assert 0 < test["mse"] < 1, "the series is a sine with little noise"
        assert list(test["columns"]) == ["a", "b", "c"]

    def test_the_bundle_holds_the_run(self, result, home):
        found = bundle.load(home / result.folder)
        assert found.digest == result.bundle.digest
        assert found.record == result.record
        assert found.config.window.past == 36
        assert found.about["run_id"] == result.run_id
        assert found.about["name"] == "forecaster-small-M-all-5"
        assert found.about["data_digest"].startswith("sha256:")
        assert found.about["borders"] == [small.TRAIN, small.VALIDATION, small.TEST]
        assert found.about["refit"] is False
        assert found.about["attn_effective"]
        assert found.about["intervals"] == (
            "calibrated on the 26 validation windows of rows 270 to 300, too few for the levels "
            "0.025, 0.975"
        )

    def test_what_has_no_weight_is_in_the_run_alone(self, trained, home):
        result, said = trained
        tried, served = result.record.parts, bundle.load(home / result.folder).build()
        assert list(tried)[-1] == "network"
        assert set(tried) == {*result.record.test.floors, "network"}
        assert sum(own.weight for own in tried.values()) == pytest.approx(1, abs=1e-5)
        weighty = {name: own.weight for name, own in tried.items() if own.weight}
        assert served.shares == pytest.approx(weighty)
        assert "training mean" not in served.names
        line = next(line for line in said.splitlines() if "is made of" in line)
        assert all(f"{name} {weight:.0%}" in line for name, weight in weighty.items())

    def test_the_bundle_knows_what_training_was_like(self, result, home):
        forecaster = Predictor.load(home / result.folder, "cpu")
        assert forecaster.ranges.season == 12
        assert list(forecaster.ranges.low.shape) == [5, 3]
        values = pd.read_csv(home / "data" / "small.csv")[["a", "b", "c"]].to_numpy()
        usual = values[np.arange(10)[:, None] * 20 + np.arange(36)]
        odd = usual * [1, 10, 1]
        asked = Question(np.concatenate([usual, odd]), pd.date_range("2026-01-01", periods=20))
        found = forecaster.remarks(asked, usual[:, -1:].repeat(2, 0), False)
        places = [place for place, notice in found if notice.code == "unlike_training"]
        assert places == [*range(10, 20)]

    def test_half_of_validation_stops_and_half_calibrates(self, trained, result):
        assert "on all 56 windows; training stopped by 26" in trained[1]
        assert f"intervals: {result.bundle.about['intervals']}" in trained[1]
        metrics = result.record.to_dict()
        assert (metrics["validation_windows"], metrics["stopping_windows"]) == (56, 26)
        intervals = metrics["test"]["intervals"]
        assert intervals["calibration_windows"] == 26
        assert 0.5 < intervals["80"]["coverage"] <= 1
        assert (intervals["95"], intervals["online"]) == (None, None)
        assert intervals["verdict"].startswith("The 80 % intervals cover ")

    def test_the_result_is_plain_json(self, result):
        document = result.to_dict()
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        assert load_dict(document["config"], "the test") == result.bundle.config

    def test_the_same_again_is_bit_equal(self, result):
        again, _ = run("track.register_model=false")
        assert again.record.test == result.record.test
        for name, weight in result.bundle.weights.items():
            assert torch.equal(again.bundle.weights[name], weight)
        assert again.registered == ""
        assert again.name != result.name, "two runs of one configuration are told apart"

    def test_another_seed_is_another_model(self, result):
        other, _ = run("track.register_model=false", seed=1)
        assert other.record.test["mse"] != result.record.test["mse"]
        assert other.name.startswith("small-5-prob-s1-")

    def test_a_training_that_diverges_ends_as_failed(self, client, tracked):
        with pytest.raises(DivergedError, match="not finite"):
            run("train.lr=1e30", "model=informer", "model.width=4", "model.heads=1", seed=9)
        experiments = [tracked.info.experiment_id]
        (failed,) = client.search_runs(experiments, "attributes.run_name LIKE 'small-5-prob-s9-%'")
        assert failed.info.status == "FAILED"


class TestResume:
    """An interrupted run goes on; test_reliability.py kills processes."""

    @staticmethod
    def end_early(monkeypatch, what, *sets, **flags):
        """Begin a run that ends at the function `what`; its name."""
        with monkeypatch.context() as patch:
            patch.setattr(experiment, what, lambda *arguments: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run("track.register_model=false", *sets, **flags)
        (folder,) = Path("runs").glob("*.unfinished")
        return folder.name.removesuffix(".unfinished")

    @staticmethod
    def go_on(which, *sets, **flags):
        said = []
        loaded = resolve("track.register_model=false", *sets, **flags)
        return experiment.run(loaded, said.append, lambda metrics: None, resume=which), said

    def test_a_training_that_ended_is_not_repeated(self, result, client, monkeypatch):
        name = self.end_early(monkeypatch, "judge", seed=0)
        again, said = self.go_on("auto", seed=0)
        assert f"resuming {name} at the end of its training" in said
        assert again.folder == Path("runs", name)
        assert again.record.test == result.record.test
        for key, weight in result.bundle.weights.items():
            assert torch.equal(again.bundle.weights[key], weight)
        assert list(Path("runs").glob("*.unfinished")) == []
        tracked = client.get_run(again.run_id)
        assert tracked.info.status == "FINISHED"
        assert tracked.info.run_name == again.name == name
        losses = client.get_metric_history(again.run_id, "train_loss")
        assert [point.step for point in losses] == [1, 2], "none is told twice"
        own = client.get_metric_history(again.run_id, "network_test_mse")
        assert [point.step for point in own] == [-1, 0]

    def test_nor_is_the_refit(self, refitted, monkeypatch):
        name = self.end_early(monkeypatch, "keep", refit=True)
        stages = {file.stem for file in Path(f"runs/{name}.unfinished").iterdir()}
        assert {"fit", "refit"} < stages
        again, _ = self.go_on(name, refit=True)
        for key, weight in refitted[0].bundle.weights.items():
            assert torch.equal(again.bundle.weights[key], weight)

    def test_without_any_it_begins_anew_and_says_so(self, result):
        again, said = self.go_on("auto", seed=0)
        assert (
            "--resume auto: no unfinished run has this configuration and these data; starts anew"
            in said
        )
        assert again.record.test == result.record.test

    def test_another_configuration_goes_on_with_nothing(self, monkeypatch):
        name = self.end_early(monkeypatch, "make_blend")
        with pytest.raises(UsageError, match="seed was 0 and is 5"):
            self.go_on(name, seed=5)
        again, _ = self.go_on("auto", seed=5)
        assert again.folder != Path("runs", name)
        assert Path(f"runs/{name}.unfinished").is_dir(), "it is left as it is"
        shutil.rmtree(f"runs/{name}.unfinished")

    def test_a_training_that_diverges_leaves_nothing_to_resume(self):
        with pytest.raises(DivergedError):
            run("train.lr=1e30", "model=informer", "model.width=4", "model.heads=1", seed=8)
        assert list(Path("runs").glob("*.unfinished")) == []

    def test_a_tracker_that_has_forgotten_the_run_gets_a_new_one(self, client, monkeypatch):
        name = self.end_early(monkeypatch, "make_blend")
        forgotten = json.loads(Path(f"runs/{name}.unfinished/run.json").read_text())["run_id"]
        client.delete_run(forgotten)
        again, said = self.go_on(name)
        assert again.run_id != forgotten
        assert again.folder == Path("runs", name)
        assert any(f"the tracker does not know run {forgotten}" in line for line in said)
        assert again.bundle.about["run_id"] == again.run_id


class TestTheSameAgain:
    """Without `force`, as the command line has it."""

    @pytest.fixture(autouse=True)
    def _committed(self, monkeypatch):
        monkeypatch.setattr(installation, "commit", lambda: "c")

    @staticmethod
    def again(*sets, cutoffs=None, **flags):
        said, shown = [], []
        found = experiment.run(resolve(*sets, **flags), said.append, shown.append, cutoffs,
                               force=False)  # fmt: skip
        return found, said, shown

    def test_what_has_ended_is_shown_and_not_trained(self, home):
        first, _ = run("track.register_model=false", "train.lr=0.004")
        found, said, shown = self.again("track.register_model=false", "train.lr=0.004")
        assert (found.folder, found.run_id, found.name) == (first.folder, first.run_id, first.name)
        assert found.to_dict() == {**first.to_dict(), "ui": found.ui_command}
        assert found.ui_command == (
            "mlflow ui --backend-store-uri sqlite:///mlflow.db\n"
            "http://127.0.0.1:5000/#/experiments?workflowType=machine_learning"
        )
        assert shown == [first.record.test]
        assert said[-1].startswith(f"{first.folder} has the same configuration, ")
        assert not any("epoch" in line or "parameters" in line for line in said)

    def test_another_one_is_trained(self, monkeypatch):
        sets = ("track.register_model=false", "train.lr=0.006", "train.epochs=1")
        first, _ = run(*sets)
        others = [self.again(*sets, seed=4)[0], self.again(*sets, cutoffs=2)[0]]
        monkeypatch.setattr(installation, "commit", lambda: "another")
        others.append(self.again(*sets)[0])
        assert len({first.folder, *(each.folder for each in others)}) == 4
        assert self.again(*sets)[0].folder == others[-1].folder
        assert self.again(*sets, cutoffs=2)[0].folder not in (first.folder, others[1].folder)

    def test_a_damaged_one_is_trained_again(self):
        sets = ("track.register_model=false", "train.lr=0.007", "train.epochs=1")
        first, _ = run(*sets)
        (first.folder / "model.safetensors").write_bytes(b"")
        assert self.again(*sets)[0].folder != first.folder

    def test_an_unfinished_one_is_offered(self, monkeypatch):
        sets = ("track.register_model=false", "train.lr=0.008", "train.epochs=1")
        with monkeypatch.context() as patch:
            patch.setattr(experiment, "judge", lambda *arguments: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(*sets)
        (folder,) = Path("runs").glob("*.unfinished")
        found, said, _ = self.again(*sets)
        offer = f"{folder} is the same run, unfinished: --resume auto would continue it; "
        assert f"{offer}this is a new one" in said
        assert found.folder != folder.with_suffix("")
        shutil.rmtree(folder)


class TestTracking:
    def test_the_run_is_named_and_finished(self, tracked, result):
        assert tracked.info.run_name == result.name == result.folder.name
        assert re.fullmatch(r"small-5-prob-s0-[0-9a-f]{8}", result.name)
        assert tracked.info.status == "FINISHED"

    def test_a_dozen_parameters_by_the_names_of_the_configuration(self, tracked, result):
        params = tracked.data.params
        flat = result.bundle.config.flat()
        own = {"model.parts", "model.feed_forward", "attn.factor", "train.schedule"}
        known = {*pages.PARAMS, *own}
        assert own < params.keys() <= known, "the file is the user's own"
        for key in ("attn.name", "data.name", "window.past", "model.parts", "train.lr", "seed"):
            assert params[key] == flat[key], key

    def test_tags_to_group_by(self, tracked, result):
        tags, about = tracked.data.tags, result.bundle.about
        wanted = {"data": "small", "horizon": "5", "attn": "prob", "config": "small.yaml"}
        assert wanted.items() <= tags.items()
        assert tags["attn.effective"] == about["attn_effective"]
        assert tags["data.digest"] == about["data_digest"]
        assert {"git.commit", "device"} <= set(tags)
        assert "data.instead_of" not in tags

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
            "parameters": experiment.parameters(result.bundle.build().network),
        }, rel=1e-5)  # fmt: skip
        assert next(iter(metrics)) == "network_test_mse", "MLflow draws what it was told first"
        losses = client.get_metric_history(result.run_id, "train_loss")
        assert [point.step for point in losses] == [1, 2]

    def test_all_other_figures_are_in_tables(self, tracked, client, result, tmp_path):
        folder = Path(client.download_artifacts(result.run_id, "", str(tmp_path)))
        tables = {file.stem: pd.read_json(file, orient="split")
                  for file in (folder / "tables").iterdir()}  # fmt: skip
        marked = json.loads(tracked.data.tags["mlflow.loggedArtifacts"])
        assert {each["path"] for each in marked} == {f"tables/{name}.json" for name in tables}
        assert all(each["type"] == "table" for each in marked)
        test = result.record.to_dict()["test"]
        parts = tables["parts"].set_index("part")
        assert list(parts.index) == ["model", "network", *test["floors"]]
        assert parts.loc["network", "mse"] == pytest.approx(test["network"]["mse"])
        assert parts.loc["ridge, 36", "skill"] == pytest.approx(
            test["floors"]["ridge, 36"]["skill"]
        )
        columns = tables["columns"].set_index("column")
        own = test["intervals"]["80"]["columns"]["a"]
        assert columns.loc["a", "width_units_80"] == pytest.approx(own["width_units"])
        assert columns.loc["a", "mae_units"] == pytest.approx(test["columns"]["a"]["mae_units"])
        steps = tables["steps"].set_index("step")
        assert steps["mse"].to_list() == pytest.approx(test["by_step"]["mse"])
        config = tables["config"].set_index("key")["value"].astype(str)
        assert config["attn.factor"] == "1"
        assert list(config.index) == list(result.bundle.config.flat())
        assert json.loads((folder / "metrics.json").read_text()) == result.record.to_dict()

    def test_artifacts(self, client, result, tmp_path):
        folder = Path(client.download_artifacts(result.run_id, "", str(tmp_path)))
        config = yaml.safe_load((folder / "config.yaml").read_text())
        assert load_dict(config, "the artifact") == result.bundle.config
        plots = {path.name for path in (folder / "plots").iterdir()}
        assert plots == {"forecast.png", "error_by_step.png", "picture.png"}

    def test_the_description_has_the_verdict_and_the_picture(self, tracked, result):
        text = tracked.data.tags["mlflow.note.content"]
        assert text.startswith(result.record.test.verdict)
        picture = f"(get-artifact?path=plots%2Fpicture.png&run_uuid={tracked.info.run_id})"
        verdict, table = text.split(f"![forecast]{picture}")
        assert result.record.test.network.verdict in verdict
        assert "| network&emsp; |" in table

    def test_the_version_is_described(self, client, result):
        name = "forecaster-small-M-all-5"
        version = client.get_model_version_by_alias(name, "champion")
        run = client.get_run(result.run_id).data
        assert version.description == run.tags["mlflow.note.content"]
        about = client.get_registered_model(name).description
        assert about.startswith("Forecasts of small, 5 steps of h ahead.")
        (made,) = client.get_run(result.run_id).outputs.model_outputs
        (file,) = Path("mlartifacts").rglob(f"{made.model_id}/artifacts/MLmodel")
        described = yaml.safe_load(file.read_text())
        assert described["signature"]["inputs"]
        assert described["signature"]["outputs"]
        assert (file.parent / described["saved_input_example_info"]["artifact_path"]).exists()

    def test_the_data_set_is_noted(self, tracked):
        (data,) = tracked.inputs.dataset_inputs
        assert data.dataset.name == "small"

    def test_the_model_is_registered_under_the_name_of_its_task(self, client, result):
        version = client.get_model_version_by_alias("forecaster-small-M-all-5", "champion")
        assert version.run_id == result.run_id
        assert "is the champion" in result.registered


class TestIntervals:
    def test_without_calibration_all_of_validation_stops(self):
        plain, said = run("track.register_model=false", "intervals.calibrate=false")
        problem = make_problem(*find_data(resolve("intervals.calibrate=false"), print))
        model = problem.build_model()
        fit(
            model, problem.training("cpu"), problem.validation("cpu"), problem.config.train,
            device="cpu", seed=0,
        )  # fmt: skip
        assert plain.bundle.intervals is None
        assert plain.bundle.about["intervals"] == "none: intervals.calibrate is false"
        assert "on all 56 windows; training stopped by 56" in said
        assert plain.record.test.intervals is None
        for name, weight in model.state_dict().items():
            assert torch.equal(plain.bundle.weights[name], weight)

    def test_halves_that_hold_no_window_are_told_with_the_arithmetic(self):
        result, said = run("track.register_model=false", horizon=31)
        sentence = (
            "of the 60 rows of validation, 30 would stop training and 30 calibrate, but each half "
            "must hold a window of 31 steps; the longest horizon with calibrated intervals is 30"
        )
        assert f"intervals will not be calibrated: {sentence}" in said
        assert result.bundle.about["intervals"] == f"none: {sentence}"
        assert result.record.stopping_windows == result.record.validation_windows == 30

    @pytest.mark.parametrize("calibrate", ["true", "false"])
    def test_a_quantile_head_is_trained_judged_and_kept(self, calibrate, home):
        result, said = run(
            "track.register_model=false", "train.loss=pinball", f"intervals.calibrate={calibrate}"
        )
        found = bundle.load(home / result.folder)
        untrained = found.config.build_model(found.schema.task(36, 18, 5)).state_dict()
        for name in ("spread.steps", "spread.power"):
            assert not torch.equal(found.weights[name], untrained[name])
        calibrated = calibrate == "true"
        words = "calibrated on" if calibrated else "the model's own, not calibrated: intervals.cal"
        assert f"intervals: {words}" in said
        intervals = result.record.to_dict()["test"]["intervals"]
        assert intervals["calibration_windows"] == 26 * calibrated
        assert (intervals["95"] is None) == calibrated, "26 windows do not back 95 %"
        assert rejudge(found, "cpu").record == result.record.test

    def test_the_online_form_has_a_column_of_its_own(self):
        result, _ = run("track.register_model=false", "intervals.online=true")
        words = "the online form is only judged: a requested forecast comes without"
        assert words in result.bundle.about["intervals"]
        fixed = result.record.to_dict()["test"]["intervals"]
        online = fixed["online"]
        assert online["80"]["coverage"] != fixed["80"]["coverage"]
        assert "online intervals cover" in online["verdict"]
        assert rejudge(result.bundle, "cpu").record == result.record.test


@pytest.fixture(scope="module")
def refitted(result):
    return run("track.register_model=false", refit=True)


class TestRefit:
    def test_every_part_is_fitted_anew(self, refitted, result):
        for new, old in zip(refitted[0].bundle.parts, result.bundle.parts, strict=True):
            assert (new.name, new.settings) == (old.name, old.settings)
            assert torch.equal(new.weights, old.weights)
            if new.kind == "ridge":
                assert not torch.equal(new.tensors["weights"], old.tensors["weights"])

    def test_the_figures_are_those_from_before(self, refitted, result):
        again, said = refitted
        assert again.record.test == result.record.test
        assert "refit on all 400 rows for" in said

    def test_the_weights_and_the_scaler_are_new(self, refitted, result):
        again = refitted[0].bundle
        assert again.about["refit"] is True
        assert again.schema.scaler != result.bundle.schema.scaler
        weights = result.bundle.weights
        assert any(not torch.equal(again.weights[name], weights[name]) for name in weights)

    def test_the_intervals_are_those_from_before_in_units(self, refitted, result):
        units = [
            own.bundle.intervals.offsets * own.bundle.schema.target_scaler.std[:, None]
            for own in (refitted[0], result)
        ]
        np.testing.assert_allclose(*units, rtol=1e-12)

    def test_such_weights_are_never_judged(self, refitted):
        with pytest.raises(UsageError, match="refitted on all rows, including the test split"):
            rejudge(refitted[0].bundle, "cpu")


class TestRejudge:
    def test_it_repeats_the_evaluation(self, result):
        assert rejudge(bundle.load(result.folder), "cpu").record == result.record.test

    def test_other_data_are_refused(self, result):
        about = {**result.bundle.about, "data_digest": "sha256:other"}
        with pytest.raises(DataError, match=r"trained on sha256:other, but .*small.csv has digest"):
            rejudge(replace(result.bundle, about=about), "cpu")


class TestCommand:
    """`forecaster train` and `evaluate`, as a user sees them."""

    @pytest.fixture
    def call(self, monkeypatch, capfd):
        def call(*arguments):
            monkeypatch.setattr(sys, "argv", ["forecaster", *arguments])
            with pytest.raises(SystemExit) as caught:
                cli.main()
            return caught.value.code, *capfd.readouterr()

        return call

    def test_train_ends_with_the_commands_to_go_on(self, call):
        status, out, err = call("train", "--config", "small.yaml", "--attn", "mean")
        assert status == 0
        assert "attention mean amounts to: " in err
        assert [line for line in err.splitlines() if line.startswith("epoch")] != []
        assert f"test split, {WINDOWS} windows (all of them)" in out
        assert "calendar ridge, 36" in out
        assert "80 % " in out
        assert "The 80 % intervals cover " in out
        folder = next(Path("runs").glob("small-5-mean-s0-*"))
        assert f"forecaster predict --model {folder}" in out
        assert f"forecaster serve --model {folder}" in out
        ui, address = out.splitlines()[-2:]
        assert "mlflow ui --backend-store-uri sqlite:///" in ui
        assert "/runs?workflowType=machine_learning" in address

    def test_one_json_document_and_nothing_else(self, call, result):
        train = ("train", "--config", "small.yaml", "--no-register", "--json")
        status, out, err = call(*train, "--force")
        document = json.loads(out)
        assert status == 0
        assert document["test"] == result.record.to_dict()["test"]
        assert document["config"]["attn"]["name"] == "prob"
        assert "attention prob amounts to: " in err
        status, out, err = call("evaluate", "--model", document["run_id"], "--json")
        assert (status, err) == (0, "")
        assert json.loads(out) == result.record.to_dict()["test"]

    def test_evaluate_for_people(self, call, result):
        status, out, err = call("evaluate", "--model", str(result.folder))
        assert (status, err) == (0, "")
        assert result.record.test.verdict in out
        assert "MASE" in out


QUICK = ("--horizon", "4", "--lookback", "2 cycles", "--epochs", "1", "--set", "train.stride=200",
         "--set", "train.validation_stride=200")  # fmt: skip


@pytest.mark.slow
def test_the_quick_start_without_its_data_goes_on_and_says_so_everywhere(
    tmp_path, monkeypatch, capfd
):
    cards = Path(installation.__file__).parents[2] / "data" / "cards"
    (tmp_path / "cards").mkdir()
    shutil.copy(cards / "vic_elec.yaml", tmp_path / "cards")
    nowhere = yaml.safe_load((cards / "ETTh1.yaml").read_text())
    nowhere["sources"] = [{"files": ["x"], "sha256": "0" * 64}]
    (tmp_path / "cards" / "ETTh1.yaml").write_text(yaml.safe_dump(nowhere))
    monkeypatch.setattr(installation, "cards", lambda: tmp_path / "cards")
    monkeypatch.delenv("FORECASTER_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["forecaster", "train", "--attn", "prob", *QUICK])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capfd.readouterr()
    assert caught.value.code == 0
    assert "This run uses vic_elec instead of ETTh1" in err
    assert "vic_elec-4-prob-s0" in out
    (found,) = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_runs(["1"])
    assert found.data.params["data.name"] == "vic_elec"
    assert found.data.tags["data.instead_of"] == "ETTh1"
    assert found.data.tags["data.instead_of"] == "ETTh1"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_training_that_is_stopped_ends_in_order(number, status, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "FORECASTER_DATA"}
    # a background job, which ignores Ctrl-C, may run this test
    heed = f"import signal; signal.signal({int(number)}, signal.SIG_DFL); "
    command = [sys.executable, "-c", f"{heed}from forecaster.cli import main; main()",
               "train", "--data", "vic_elec", *QUICK, "--epochs", "1000"]  # fmt: skip
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        while not process.stderr.readline().startswith("epoch 2"):
            assert process.poll() is None
        process.send_signal(number)
        begun = time.monotonic()
        rest = process.stderr.read()
        assert process.wait() == status
        assert time.monotonic() - begun < 10
    assert rest.splitlines()[-1] == "stopped"
    assert "Traceback" not in rest
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # MLflow's use of SQLAlchemy
        (found,) = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_runs(["1"])
    assert found.info.status == "KILLED"


@pytest.mark.slow
@pytest.mark.data
def test_the_quick_start_on_etth1_is_as_good_as_docs_results_says(tmp_path):
    command = [sys.executable, "-m", "forecaster", "train", "--attn", "prob",
               "--horizon", "336", "--json"]  # fmt: skip
    environment = {**os.environ, "FORECASTER_DATA": DATA}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout)
    assert result["config"]["data"]["name"] == "ETTh1"
    assert result["test"]["windows"] == 2_880 - 336 + 1
    assert result["test"]["mse"] <= 0.42
    assert result["test"]["network"]["mse"] <= 0.41
    assert "full" not in result["about"]["attn_effective"]


class TestSmallThings:
    def test_places_that_agree_are_joined(self):
        said = experiment.summarise({"encoder.0": "full", "cross": "mean", "encoder.1": "full"})
        assert said == "encoder.0, encoder.1: full; cross: mean"
