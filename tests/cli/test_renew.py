import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from forecaster.forecast import kept
from forecaster.record.ledger import Ledger
from forecaster.run import renew as renewing
from tests.record.test_live import actuals, forecasts
from tests.service.toy import make_bundle


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
