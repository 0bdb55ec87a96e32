import json

from forecaster.forecast.predictor import load_bundle
from tests.forecast.test_recalibrated import tell
from tests.service.toy import COLUMNS, make_bundle


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
