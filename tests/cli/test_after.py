import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from forecaster.forecast import kept
from forecaster.forecast.predictor import Predictor, load_bundle
from forecaster.record.ledger import Ledger, read
from forecaster.run import renew as renewing
from tests.forecast.test_recalibrated import tell
from tests.record.test_live import actuals, forecasts
from tests.service.toy import COLUMNS, KINDS, make_bundle


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


def test_the_model_is_written_anew_with_its_widths(done, tmp_path):
    before = make_bundle(tmp_path / "m").digest
    tell(tmp_path, range(5))
    asked = ("recalibrate", "--model", tmp_path / "m", "--ledger", tmp_path / "l")
    lines = done(*asked)[0].splitlines()
    digest = load_bundle(tmp_path / "m").digest
    assert digest != before
    assert [line.split(",")[0] for line in lines[:-1]] == sorted(COLUMNS)
    assert "80% band: 2.72 times" in lines[0]
    assert lines[-1].endswith(digest)
    out, err = done(*asked, "--json")
    assert json.loads(out)["digest"] == digest
    assert "the intervals stay as they are" in err


def test_a_name_needs_a_folder(refused, tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path / "m")
    monkeypatch.setattr("forecaster.forecast.predictor.load_bundle", lambda name: bundle)
    err = refused(2, "recalibrate", "--model", "forecaster-x", "--ledger", tmp_path / "l")
    assert "write it with --to FOLDER" in err


@pytest.mark.parametrize(("wins", "code"), [(True, 0), (False, 10)])
def test_the_exit_code_says_whether_the_model_stays(run, tmp_path, monkeypatch, wins, code):
    done = SimpleNamespace(became="why", folder=Path("there"), served=wins)
    given = {}
    monkeypatch.setattr(renewing, "renew", lambda *them, **options: given.update(options) or done)
    make_bundle(tmp_path / "model")
    status, out, _ = run("renew", "--model", tmp_path / "model", "--data", "x.csv", "--all-rows",
                         "--horizons", "6", "--to", "there")  # fmt: skip
    assert (status, out) == (code, "\noutcome  why\nbundle   there\n")
    assert given == {"horizons": 6, "whole": True, "to": Path("there"), "device": "auto"}


def test_without_an_alarm_nothing_is_trained(run, refused, tmp_path, monkeypatch):
    monkeypatch.setattr(renewing, "renew", lambda *_, **__: pytest.fail("nothing is to be done"))
    ledger, own = Ledger(tmp_path / "l"), kept.trained(make_bundle(tmp_path / "model"))
    ledger.add("forecasts", forecasts(model=own))
    ledger.add("actuals", actuals())
    ledger.flush()
    asked = ("renew", "--model", tmp_path / "model", "--data", "x.csv", "--if-alarmed")
    status, out, err = run(*asked, "--ledger", tmp_path / "l", "--json")
    assert (status, json.loads(out)["outcome"]) == (11, "calm")
    assert "nothing is to be renewed" in err
    assert "--if-alarmed needs the --ledger" in refused(2, *asked)
