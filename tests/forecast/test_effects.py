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
from tests.forecast.export import eager
from tests.plan.test_effects import DAY, load, weather

QUICK = {
    "train.refit": False,
    "train.epochs": 1,
    "model": "tokens",
    "model.width": 4,
    "model.feed_forward": 4,
}
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


def test_the_effect_told_is_what_two_forecasts_differ_by(model) -> None:
    """The mean over the horizon, and over histories that end in each hour of the newest day."""
    frame, moves = table(clock=True), []
    known = model[0].bundle.schema.known
    half = float(known.scaler.std[0]) / 2
    for drop in range(DAY, 2 * DAY):
        rows = frame[: len(frame) - drop + DAY]
        past, ahead = rows[:-DAY], rows[-DAY:].drop(columns="load")
        changes = ahead["heat"] - half, ahead["heat"] + half, known.low[0]
        low, high, held = (
            model[0].predict(past, future=ahead.assign(heat=each))["load"] for each in changes
        )
        was = model[0].predict(past, future=ahead)["load"]
        moves.append([(high - low).mean() / (2 * half), (held - was).mean()])
    heat, sun = model[0].bundle.record.effects
    assert (heat.forecasts, sun.effect) == (len(moves), None)
    assert [heat.effect, heat.curve[0][1]] == pytest.approx(np.mean(moves, axis=0), rel=1e-4)


@pytest.mark.slow
def test_a_summer_that_stops_training_does_not_hide_what_cold_does() -> None:
    """Fourteen months of a utility, whose heating follows the air below 16 degrees and the hour."""
    random, rows = np.random.default_rng(1), 425 * DAY
    frame = pd.DataFrame({"time": pd.date_range("2024-10-01", periods=rows, freq="h")})
    turns, day = 2 * np.pi * np.arange(rows) / DAY, frame["time"].dt.day_of_year.to_numpy()
    spells = 28 * pd.Series(random.normal(size=rows)).ewm(halflife=36).mean().to_numpy()
    frame["air"] = 12 - 9 * np.cos(2 * np.pi * (day - 20) / 365) + 3 * np.sin(turns - 2.2) + spells
    wave = np.sin(turns - 1.9)

    def heating(air: pd.Series) -> pd.Series:
        return 2.1 * np.maximum(0, 16 - air) * (1 + 0.6 * wave[-len(air) :])

    frame["load"] = 90 + 22 * wave + heating(frame["air"]) + random.normal(0, 1.5, rows)
    frame["load"] += 10 * (frame["time"].dt.day_of_week < 5)
    made = Forecaster("prob", horizon=DAY, target="load", future_covariates="air", options=QUICK)
    past, ahead = frame[:-DAY], frame[-DAY:].drop(columns="load")
    made.fit(past)
    colder = ahead.assign(air=ahead["air"] - 5)
    first, second = (made.predict(past, future=each)["load"] for each in (ahead, colder))
    truth = (heating(colder["air"]) - heating(ahead["air"])).mean()
    assert (second - first).mean() == pytest.approx(truth, rel=0.25)
    assert -5 * made.effects()["effect"][0] == pytest.approx(truth, rel=0.25)


def test_words_and_flags_are_asked_as_they_can_be() -> None:
    """A flag is off or on, and a word leaves no place for another."""
    frame, random = table(), np.random.default_rng(0)
    frame["flag"] = (random.random(ROWS) < 0.2) * 1
    frame["word"] = random.choice(["a", "b", "c"], ROWS)
    frame["load"] += 30 * frame["flag"] + 20 * (frame["word"] == "b")
    names = ["heat", "flag", "word"]
    made = Forecaster("prob", horizon=DAY, target="load", future_covariates=names, options=QUICK)
    told = made.fit(frame).effects().set_index("input")["effect"]
    assert told["flag"] == pytest.approx(30, abs=2)
    assert 10 < told["word=b"] < 16  # a third of the steps have it anyway
    assert "word=b throughout: load +1" in " ".join(effects.sentences(made.bundle))


def test_the_command_tells_and_draws(model, tmp_path) -> None:
    run = CliRunner()
    folder = str(model[1] / "bundle")
    found = run.invoke(app, ["effects", "--model", folder, "--picture", str(tmp_path / "a.svg")])
    assert found.exit_code == 0, found.output
    assert "one more of heat: load -" in found.output
    assert "do not determine what 'sun' does" in found.output
    assert "heat" in (tmp_path / "a.svg").read_text()
    rows = json.loads(run.invoke(app, ["effects", "--model", folder, "--json"]).output)
    assert rows == [row.to_dict() for row in model[0].bundle.record.effects]
    table = model[0].effects()
    assert table["effect"].tolist()[0] == rows[0]["effect"]


def test_the_model_can_be_judged_again_and_exported(model, tmp_path, monkeypatch) -> None:
    from forecaster.forecast.export import graph

    bundle = model[0].bundle
    of_file = bundle.config.data.model_copy(update={"name": str(model[1] / "history.csv")})
    config = bundle.config.model_copy(update={"data": of_file})
    assert "times smaller than repeating the last day" in bundle.record.test.headline
    again = rejudge(replace(bundle, config=config), "cpu").backtest
    assert again.mse == pytest.approx(bundle.record.test.mse)
    monkeypatch.setattr(graph, "to_onnx", eager.write)
    graph.export(model[0].fitted, tmp_path)  # raises if its forecasts are not the model's


def test_without_effects_the_parts_answer_alone() -> None:
    """What is told is what they answer; nothing is estimated."""
    made = Forecaster(
        "prob", horizon=DAY, target="load", future_covariates="heat",
        options={**QUICK, "data.effects": False},
    ).fit(table())  # fmt: skip
    assert made.bundle.schema.known.effects is None
    (told,) = made.bundle.record.effects
    assert told.effect is not None
    assert -12 < told.effect < 0
