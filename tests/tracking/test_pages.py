"""What MLflow's pages show of a run; test_experiment.py tests it with a complete run."""

import yaml

from forecaster.config.run_config import load
from forecaster.tracking import pages


class TestParams:
    def test_as_far_as_the_model_has_them(self):
        config = load("informer", ["blend=none"], {}, {}).config
        found = pages.params(config, [])
        assert found == {key: value for key, value in config.flat().items() if key in pages.PARAMS}
        assert (found["model.name"], found["blend"]) == ("informer", "none")
        config = load("default", [], {}, {}).config
        assert set(pages.params(config, [])) == set(pages.PARAMS)

    def test_values_and_sections_that_were_chosen(self):
        config = load("default", ["attn.factor=3"], {}, {}).config
        found = pages.params(config, ["attn", "train.lr_of", "track.uri"])
        assert set(found) - set(pages.PARAMS) == {
            *(key for key in config.flat() if key.startswith("attn.") and key != "attn.name"),
            "train.lr_of.linear",
        }


class TestChosen:
    def test_options_variables_and_calls_but_not_what_is_shipped(self):
        environment = {"FORECASTER_TRAIN__CLIP": "2"}
        for sets in (["model.dropout=0.1"], {"model.dropout": 0.1}):
            loaded = load("default", sets, {"seed": 3}, environment)
            assert set(pages.chosen(loaded)) == {"model.dropout", "seed", "train.clip"}

    def test_a_file_of_ones_own(self, tmp_path):
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump({"base": "default", "train": {"batch": 8}}))
        loaded = load(str(file), [], {}, {})
        assert pages.chosen(loaded) == ["train.batch"]
        assert (loaded.file, load("ETTh1", [], {}, {}).file) == (str(file), "ETTh1")
