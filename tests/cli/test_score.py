import json
from pathlib import Path

import pandas as pd
import pytest

from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import read
from tests.forecast.test_predictor import history
from tests.service.toy import KINDS, make_bundle


def test_forecasts_are_kept_and_scored_when_their_values_come(run, tmp_path):
    model = make_bundle(tmp_path / "model", **KINDS["panel"])
    forecaster = Predictor(model, "cpu")
    past, horizon, schema = forecaster.bundle.past, forecaster.bundle.horizon, forecaster.schema
    frame = forecaster.example.assign(town=schema.items[0])[: past + 1]
    step = frame[schema.time].diff().iloc[-1]
    later = [frame[:past], frame.assign(**{schema.time: frame[schema.time] + step})[:past]]
    for number, own in enumerate(later):
        own.to_csv(f"{number}.csv", index=False)
        status, out, err = run("predict", "--model", tmp_path / "model", "--input", f"{number}.csv",
                               "--ledger", "kept")  # fmt: skip
        assert status == 0, err
        assert "kept the forecast in kept" in err
        assert out == forecaster.predict(own).to_csv(index=False)
    kept = read(Path("kept"), "forecasts")
    assert len(kept) == 2 * horizon
    assert set(kept["series"]) == {schema.items[0]}
    status, _, err = run("score", "--model", tmp_path / "model", "--ledger", "kept")
    assert status == 2
    assert f"no value came yet for the {2 * horizon} steps" in err
    came = pd.concat([later[0], later[1].tail(1)])
    came.to_csv("came.csv", index=False)
    status, out, err = run("score", "--model", tmp_path / "model", "--ledger", "kept", "--actuals",
                           "came.csv", "--picture", "live.svg", "--json")  # fmt: skip
    assert status == 0, err
    found = json.loads(out)
    assert found["scored"] == 1
    assert found["waiting"] == 2 * horizon - 1
    everything = found["periods"][-1]
    assert everything["period"] == "all"
    value, forecast = later[1]["load"].iloc[-1], kept["forecast"].iloc[0]
    assert everything["mae"] == pytest.approx(abs(value - forecast))
    assert Path("live.svg").is_file()
    status, out, _ = run(
        "score", "--model", tmp_path / "model", "--ledger", "kept", "--by", "series"
    )
    assert status == 0
    assert schema.items[0] in out


def test_what_cannot_be_scored_is_told(run, tmp_path):
    make_bundle(tmp_path / "model")
    status, _, err = run("score", "--model", tmp_path / "model", "--ledger", "nowhere")
    assert status == 65
    assert "nowhere is not there" in err
    history().to_csv("x.csv", index=False)
    asked = ("--model", tmp_path / "model", "--input", "x.csv", "--ledger", "kept")
    status, _, err = run("predict", *asked, "--output", "folder")
    assert status == 2
    assert "--ledger needs --model, and no --output FOLDER" in err
    Path("kept/forecasts").mkdir(parents=True)
    status, _, err = run("score", "--model", tmp_path / "model", "--ledger", "kept")
    assert status == 2
    assert "kept has no forecast of this model" in err
