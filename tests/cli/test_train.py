import json
import re
from pathlib import Path

import pytest
import yaml

from forecaster.base import installation
from forecaster.forecast import bundle
from forecaster.run import train
from forecaster.tracking.store import MlflowClient  # which silences MLflow first
from tests import small


@pytest.fixture
def small_run(tmp_path, monkeypatch):
    """The options of a tiny training."""
    return "--config", small.install(tmp_path, monkeypatch), "--no-register"


class TestConfig:
    def test_each_value_says_where_it_came_from(self, done, monkeypatch):
        monkeypatch.setenv("FORECASTER_SEED", "4")
        Path("my.yaml").write_text("train: {lr_of: {linear: 1e-3}}\nattn: {name: prob, factor: 2}")
        arguments = ("--config", "my.yaml", "--set", "attn.factor=3", "--data", f"{'a' * 50}.csv")
        out, _ = done("config", *arguments)
        said = [line.split("  # ") for line in out.splitlines() if "#" in line]
        assert [[value.strip(), origin] for value, origin in said] == [
            [f"name: {'a' * 50}.csv", "--data"],
            ["name: prob", "my.yaml"],
            ["factor: 3", "--set attn.factor=3"],
            ["linear: 0.001", "my.yaml"],
            ["seed: 4", "$FORECASTER_SEED"],
        ]
        Path("again.yaml").write_text(out)
        again = done("config", "--config", "again.yaml", "--json")[0]
        assert json.loads(again)["config"] == yaml.safe_load(out), "it can be given back"

    def test_flags_mean_the_same_as_in_train(self, run, done, monkeypatch):
        seen = []

        def look(loaded, *rest):
            seen.append(loaded)
            raise SystemExit(0)

        monkeypatch.setattr(train, "run", look)
        words = "--attn mean --horizon 5 --lookback 504 --features MS --target OT --epochs 2"
        flags = [*words.split(), "--refit", "--no-register", "--set", "train.batch=7"]
        run("train", *flags)
        shown = json.loads(done("config", *flags, "--json")[0])
        assert shown["config"] == seen[0].config.to_dict()
        assert shown["origins"] == seen[0].origins
        assert shown["config"]["window"]["past"] == 504
        assert not shown["config"]["track"]["register_model"]


@pytest.mark.usefixtures("untracked")
def test_a_run_goes_on_as_it_was_begun_by_its_name_alone(
    small_run, run, done, refused, monkeypatch
):
    err = refused(2, "train", "--resume", "small-5")
    assert "--resume small-5: there is no such run in " in err
    assert not Path("runs").exists()
    with monkeypatch.context() as patch:
        patch.setattr(train, "judge", lambda *arguments: 1 / 0)
        assert run("train", *small_run, "--seed", "3", "--cutoffs", "2")[0] == 70
    (unfinished,) = Path("runs").iterdir()
    name = unfinished.name
    err = refused(69, "evaluate", "--model", unfinished)
    assert f"runs/{name} is an unfinished run: forecaster train --resume {name} ends it" in err
    out, err = done("train", "--resume", name)
    assert f"resuming {name} at the end of its training" in err
    assert "2 cut-offs of the test split" in out
    (folder,) = Path("runs").iterdir()
    assert bundle.load(folder).config.seed == 3


def test_a_finished_run_is_shown_again(small_run, done, monkeypatch):
    monkeypatch.setattr(installation, "commit", lambda: "c")
    train = ("train", *small_run, "--epochs", "1", "--json")
    first = json.loads(done(*train)[0])
    (folder,) = Path("runs").iterdir()
    kept = bundle.load(folder)
    assert first["test"] == kept.record.to_dict()["test"]
    assert first["config"] == kept.config.to_dict()
    out, err = done(*train)
    again = json.loads(out)
    assert again == {**first, "ui": again["ui"]}, "it was trained again"
    assert again["ui"].startswith("mlflow ui --backend-store-uri sqlite:///mlflow.db\n")
    shown = f"{folder} has the same configuration, data and code, and is shown"
    assert shown in err
    assert shown in done("train", "--config", folder / "config.json")[1]


@pytest.mark.usefixtures("untracked")
def test_a_refitted_model_is_shown_as_it_was_judged(small_run, done):
    done("train", *small_run, "--refit")
    (folder,) = Path("runs").iterdir()
    out, err = done("evaluate", "--model", folder, "--json")
    assert json.loads(out) == bundle.load(folder).record.to_dict()["test"]
    assert err == "the model was refitted to all rows; these are the figures from before\n"


def test_a_run_is_judged_at_cut_offs_and_again_from_its_bundle(small_run, done, refused):
    err = refused(2, "train", *small_run, "--cutoffs", "17")
    assert "17 cut-offs are too many: each takes 4 of the 80 steps" in err
    assert not Path("runs").exists()
    out, err = done("train", *small_run, "--attn", "mean", "--cutoffs", "2", "--details")
    assert "attention mean at these lengths: " in err
    assert "--epochs 4" in err, "two epochs are few"
    (folder,) = Path("runs").iterdir()
    record, run_id = bundle.load(folder).record, bundle.load(folder).about["run_id"]
    for words in ("Typical error of ", "test split, 76 windows (all of them)", "seasonal naive, 12",
                  "The 80 % intervals cover ", f"bundle   {folder}", f"forecaster report {folder}",
                  f"forecaster predict --model {folder}",
                  f"forecaster serve --model {folder}"):  # fmt: skip
        assert words in out
    ui, address = out.splitlines()[-2:]
    assert "mlflow ui --backend-store-uri sqlite:///" in ui
    assert "/runs?workflowType=machine_learning" in address
    kept = record.to_dict()["cutoffs"]
    assert kept["verdict"] in out
    assert "2 cut-offs of the test split, trained anew at each" in out
    for line in ("cut-off 1 of 2: forecasts steps ", "cut-off 2 of 2: forecasts steps "):
        (said,) = (each for each in err.splitlines() if line in each)
        assert re.search(r"; about .* left$", said)
    (found,) = MlflowClient(f"sqlite:///{Path.cwd()}/mlflow.db").search_runs(["1"])
    logged = found.data.metrics["cutoffs/mse_mean"]
    assert logged == pytest.approx(kept["mse"]["mean"], rel=1e-5)

    shown = done("evaluate", "--model", run_id, "--json")
    assert (json.loads(shown[0]), shown[1]) == (record.to_dict()["test"], "")
    evaluate = ("evaluate", "--model", folder)
    out, err = done(*evaluate)
    assert record.test.verdict in out
    assert "MASE" in out
    assert err == ""
    again = json.loads(done(*evaluate, "--cutoffs", "2", "--json")[0])
    assert [each["mse"] for each in again["each"]] == [each["mse"] for each in kept["each"]]
    assert again["coverage"] == kept["coverage"]
