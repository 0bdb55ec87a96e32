import json

from forecaster.forecast.predictor import load_bundle
from tests.forecast.test_recalibrated import tell
from tests.service.toy import COLUMNS, make_bundle


def test_the_model_is_written_anew_with_its_widths(run, tmp_path):
    before = make_bundle(tmp_path / "m").digest
    tell(tmp_path, range(5))
    status, out, err = run("recalibrate", "--model", tmp_path / "m", "--ledger", tmp_path / "l")
    assert status == 0, err
    digest = load_bundle(tmp_path / "m").digest
    assert digest != before
    lines = out.splitlines()
    assert [line.split(",")[0] for line in lines[:-1]] == sorted(COLUMNS)
    assert "80% band: 2.72 times" in lines[0]
    assert lines[-1].endswith(digest)
    asked = ("recalibrate", "--model", tmp_path / "m", "--ledger", tmp_path / "l", "--json")
    status, out, err = run(*asked)
    assert (status, json.loads(out)["digest"]) == (0, digest)
    assert "the intervals stay as they are" in err


def test_a_name_needs_a_folder(run, tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path / "m")
    monkeypatch.setattr("forecaster.forecast.predictor.load_bundle", lambda name: bundle)
    status, _, err = run("recalibrate", "--model", "forecaster-x", "--ledger", tmp_path / "l")
    assert status == 2
    assert "write it with --to FOLDER" in err
