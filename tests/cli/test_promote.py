from forecaster.forecast.predictor import load_bundle
from forecaster.tracking import registry
from tests.service.toy import make_bundle


def test_it_says_what_was_done_with_a_name_or_the_folder_of_a_run(done, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "promote", lambda reference: f"{reference} is the champion")
    make_bundle(tmp_path / "bundle")
    run_id = str(load_bundle(tmp_path / "bundle").about.get("run_id"))
    for given, meant in (("forecaster-x/3", "forecaster-x/3"), (tmp_path / "bundle", run_id)):
        assert done("promote", given) == (f"{meant} is the champion\n", "")


def test_without_a_store(refused):
    assert "there is no MLflow database" in refused(69, "promote", "forecaster-x/3")
