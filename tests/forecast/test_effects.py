"""What an input known ahead does, from a table to each face: a model of a generated load."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from forecaster import Forecaster
from forecaster.cli import app
from forecaster.evaluate.judge import rejudge
from forecaster.forecast import effects
from tests.datasets.test_effects import DAY, load, weather
from tests.forecast.export import eager

QUICK = {"train.epochs": 1, "model": "tokens", "model.width": 4, "model.feed_forward": 4}
ROWS = 60 * DAY


def table(clock: bool = False) -> pd.DataFrame:
    """A load that rises by 12 for each degree less, half of it within 6 h, and a clock if asked."""
    heat = 10 + 6 * weather(ROWS)
    slow = -pd.Series(heat).ewm(halflife=6).mean()
    frame = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=ROWS, freq="h")})
    frame["load"], frame["heat"] = 500 + 20 * load(ROWS) + 12 * slow, heat
    if clock:
        frame["sun"] = np.sin(np.arange(ROWS) * 2 * np.pi / DAY)
    return frame


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    names = ["heat", "sun"]
    made = Forecaster("prob", horizon=DAY, target="load", future_covariates=names, options=QUICK)
    history = table(clock=True)
    path = tmp_path_factory.mktemp("effects")
    history.to_csv(path / "history.csv", index=False)
    made.fit(history)
    made.save(path / "bundle")
    return made, path


def test_a_changed_input_changes_the_forecast_by_its_effect(model) -> None:
    said: list[str] = []
    frame = table(clock=True)
    past, ahead = frame[:-DAY], frame[-DAY:].drop(columns="load")
    warmer = ahead.assign(heat=ahead["heat"] + 3)
    first, second = (
        model[0].predict(past, future=each, say=said.append)["load"] for each in (ahead, warmer)
    )
    found, truth = (second - first).to_numpy(), -36 * (1 - 0.5 ** ((np.arange(DAY) + 1) / 6))
    assert found.mean() == pytest.approx(truth.mean(), rel=0.15)
    assert found[0] > found[-1] + 10
    assert [text for text in said if "do not determine what 'sun' does" in text]
    found = model[0].effects().set_index("input")
    heat = found.loc["heat"]
    assert heat["low"] < heat["effect"] < heat["high"] < 0
    assert np.isnan(found.loc["sun", "effect"])


def test_the_command_tells_and_draws(model, tmp_path) -> None:
    run = CliRunner()
    folder = str(model[1] / "bundle")
    found = run.invoke(app, ["effects", "--model", folder, "--picture", str(tmp_path / "a.svg")])
    assert found.exit_code == 0, found.output
    assert "one more of heat: load -" in found.output
    assert "do not determine what 'sun' does" in found.output
    assert "heat" in (tmp_path / "a.svg").read_text()
    rows = json.loads(run.invoke(app, ["effects", "--model", folder, "--json"]).output)
    assert [row["input"] for row in rows] == ["heat", "sun"]


def test_the_model_can_be_judged_again_and_exported(model, tmp_path, monkeypatch) -> None:
    from forecaster.forecast.export import graph

    bundle = model[0].bundle
    of_file = bundle.config.data.model_copy(update={"name": str(model[1] / "history.csv")})
    config = bundle.config.model_copy(update={"data": of_file})
    assert "times smaller than repeating the last day" in bundle.record.test.headline
    again = rejudge(replace(bundle, config=config), "cpu").record
    assert again.mse == pytest.approx(bundle.record.test.mse)
    monkeypatch.setattr(graph, "to_onnx", eager.write)
    graph.export(model[0].fitted, tmp_path)  # raises if its forecasts are not the model's


def test_without_effects_the_parts_answer_alone() -> None:
    made = Forecaster(
        "prob", horizon=DAY, target="load", future_covariates="heat",
        options={**QUICK, "data.effects": False},
    ).fit(table())  # fmt: skip
    assert effects.rows(made.bundle.schema) == []
    assert made.effects().empty
