"""What MLflow's pages show of a run; test_train.py tests it with a complete run."""

from forecaster.config.run_config import load
from forecaster.tracking import texts


def test_params_are_shown_as_far_as_the_model_has_them_or_they_were_chosen():
    config = load("informer", ["blend=none"], {}, {}).config
    found = texts.params(config, [])
    assert found == {key: value for key, value in config.flat().items() if key in texts.PARAMS}
    config = load("default", ["attn.factor=3"], {}, {}).config
    assert set(texts.params(config, [])) == set(texts.PARAMS)
    found = texts.params(config, ["attn", "train.lr_of", "track.uri"])
    assert set(found) - set(texts.PARAMS) == {
        *(key for key in config.flat() if key.startswith("attn.") and key != "attn.name"),
        "train.lr_of.linear",
    }


def test_options_variables_calls_and_own_files_are_chosen_but_not_what_is_shipped(tmp_path):
    environment = {"FORECASTER_TRAIN__CLIP": "2"}
    for sets in (["model.dropout=0.1"], {"model.dropout": 0.1}):
        loaded = load("default", sets, {"seed": 3}, environment)
        assert set(texts.chosen(loaded)) == {"model.dropout", "seed", "train.clip"}
    file = tmp_path / "mine.yaml"
    file.write_text("base: default\ntrain: {batch: 8}")
    loaded = load(str(file), [], {}, {})
    assert (texts.chosen(loaded), loaded.file) == (["train.batch"], str(file))
