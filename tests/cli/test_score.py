import json
from pathlib import Path

import pandas as pd
import pytest

from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import read
from tests.service.toy import KINDS, make_bundle


def test_forecasts_are_kept_and_scored_when_their_values_come(done, refused, tmp_path):
    model = make_bundle(tmp_path / "model", **KINDS["panel"])
    forecaster = Predictor(model, "cpu")
    past, horizon, schema = forecaster.bundle.past, forecaster.bundle.horizon, forecaster.schema
    frame = forecaster.example.assign(town=schema.items[0])[: past + 1]
    step = frame[schema.time].diff().iloc[-1]
    later = [frame[:past], frame.assign(**{schema.time: frame[schema.time] + step})[:past]]
    asked = ("--model", tmp_path / "model", "--ledger", "kept")
    for number, own in enumerate(later):
        own.to_csv(f"{number}.csv", index=False)
        out, err = done("predict", *asked, "--input", f"{number}.csv")
        assert "kept the forecast in kept" in err
        assert out == forecaster.predict(own).to_csv(index=False)
    kept = read(Path("kept"), "forecasts")
    assert len(kept) == 2 * horizon
    assert set(kept["series"]) == {schema.items[0]}
    assert f"no value came yet for the {2 * horizon} steps" in refused(2, "score", *asked)
    pd.concat([later[0], later[1].tail(1)]).to_csv("came.csv", index=False)
    drawn = ("--actuals", "came.csv", "--picture", "live.svg", "--json")
    found = json.loads(done("score", *asked, *drawn)[0])
    assert (found["scored"], found["waiting"]) == (1, 2 * horizon - 1)
    everything = found["periods"][-1]
    assert everything["period"] == "all"
    value, forecast = later[1]["load"].iloc[-1], kept["forecast"].iloc[0]
    assert everything["mae"] == pytest.approx(abs(value - forecast))
    assert Path("live.svg").is_file()
    assert schema.items[0] in done("score", *asked, "--by", "series")[0]


def test_what_cannot_be_scored_is_told(refused, tmp_path):
    make_bundle(tmp_path / "model")
    score = ("score", "--model", tmp_path / "model", "--ledger", "kept")
    assert "kept is not there" in refused(65, *score)
    Path("kept/forecasts").mkdir(parents=True)
    assert "kept has no forecast of this model" in refused(2, *score)
