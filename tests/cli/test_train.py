import json
from pathlib import Path

import yaml

from forecaster import experiment


class TestConfig:
    def test_what_it_prints_can_be_given_back(self, run):
        _, out, _ = run("config", "--config", "informer", "--attn", "full", "--horizon", "9")
        Path("again.yaml").write_text(out)
        _, again, _ = run("config", "--config", "again.yaml", "--json")
        assert json.loads(again)["config"] == yaml.safe_load(out)

    def test_each_value_says_where_it_came_from(self, run, monkeypatch):
        monkeypatch.setenv("FORECASTER_SEED", "4")
        Path("my.yaml").write_text("train: {lr_of: {linear: 1e-3}}\nattn: {name: prob, factor: 2}")
        arguments = ("--config", "my.yaml", "--set", "attn.factor=3", "--data", f"{'a' * 50}.csv")
        _, out, _ = run("config", *arguments)
        said = [line.split("  # ") for line in out.splitlines() if "#" in line]
        assert [[value.strip(), origin] for value, origin in said] == [
            [f"name: {'a' * 50}.csv", "--data"],
            ["name: prob", "my.yaml"],
            ["factor: 3", "--set attn.factor=3"],
            ["linear: 0.001", "my.yaml"],
            ["seed: 4", "$FORECASTER_SEED"],
        ]

    def test_flags_mean_the_same_as_in_train(self, run, monkeypatch):
        seen = []

        def look(loaded, say, show):
            seen.append(loaded)
            raise SystemExit(0)

        monkeypatch.setattr(experiment, "run", look)
        flags = ["--attn", "mean", "--horizon", "5", "--lookback", "504", "--features", "MS",
                 "--target", "OT", "--epochs", "2", "--refit", "--no-register", "--seed", "1",
                 "--device", "cpu", "--set", "train.batch=7", "--data", "ETTh2"]  # fmt: skip
        run("train", *flags)
        shown = json.loads(run("config", *flags, "--json")[1])
        assert shown["config"] == seen[0].config.to_dict()
        assert shown["origins"] == seen[0].origins
        assert shown["config"]["window"]["past"] == 504
        assert not shown["config"]["track"]["register_model"]
