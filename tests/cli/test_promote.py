from forecaster.forecast.predictor import load_bundle
from forecaster.tracking import registry
from tests.service.toy import make_bundle


def test_it_says_what_was_done(run, monkeypatch):
    monkeypatch.setattr(registry, "promote", lambda reference: f"{reference} is the champion")
    assert run("promote", "forecaster-x/3") == (0, "forecaster-x/3 is the champion\n", "")


def test_the_folder_of_a_run(run, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "promote", lambda reference: reference)
    make_bundle(tmp_path / "bundle")
    expected = str(load_bundle(tmp_path / "bundle").about.get("run_id"))
    assert run("promote", str(tmp_path / "bundle")) == (0, f"{expected}\n", "")


def test_without_a_store(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, out, err = run("promote", "forecaster-x/3")
    assert (status, out) == (69, "")
    assert "there is no MLflow database" in err
