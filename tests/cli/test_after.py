import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import Ledger, read
from forecaster.run import renew as renewing
from tests.record.test_live import actuals, forecasts
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
    assert [*kept["series"]] == [schema.items[0]] * 2 * horizon
    assert f"no value came yet for the {2 * horizon} steps" in refused(2, "score", *asked)
    pd.concat([later[0], later[1].tail(1)]).to_csv("came.csv", index=False)
    drawn = ("--actuals", "came.csv", "--picture", "live.svg", "--json")
    found = json.loads(done("score", *asked, *drawn)[0])
    assert (found["scored"], found["waiting"]) == (1, 2 * horizon - 1)
    value, forecast = later[1]["load"].iloc[-1], kept["forecast"].iloc[0]
    assert found["periods"][-1]["mae"] == pytest.approx(abs(value - forecast))
    assert Path("live.svg").is_file()
    assert schema.items[0] in done("score", *asked, "--by", "series")[0]
    other = ("score", "--model", tmp_path / "model", "--ledger", "other")
    assert "other is not there" in refused(65, *other)
    Path("other/forecasts").mkdir(parents=True)
    assert "other has no forecast of this model" in refused(2, *other)


def test_the_exit_code_says_whether_the_model_stays(run, refused, tmp_path, monkeypatch):
    done = SimpleNamespace(became="why", folder=Path("there"))
    given = {}
    monkeypatch.setattr(renewing, "renew", lambda *them, **options: given.update(options) or done)
    bundle = make_bundle(tmp_path / "model")
    renew = ("renew", "--model", tmp_path / "model", "--data", "x.csv")
    for done.served, code in ((True, 0), (False, 10)):
        status, out, _ = run(*renew, "--all-rows", "--horizons", "6", "--to", "there")
        assert (status, out) == (code, "\noutcome  why\nbundle   there\n")
    assert given == {"horizons": 6, "whole": True, "to": Path("there"), "device": "auto"}

    monkeypatch.setattr(renewing, "renew", lambda *_, **__: pytest.fail("nothing is to be done"))
    ledger = Ledger(tmp_path / "l")
    ledger.add("forecasts", forecasts(model=bundle.digest))
    ledger.add("actuals", actuals())
    ledger.flush()
    status, out, err = run(*renew, "--if-alarmed", "--ledger", tmp_path / "l", "--json")
    assert (status, json.loads(out)["outcome"]) == (11, "calm")
    assert "nothing is to be renewed" in err
    assert "--if-alarmed needs the --ledger" in refused(2, *renew, "--if-alarmed")
