"""Pretrained models of random weights, made here: what they forecast means nothing."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from forecaster.base.errors import BundleError, UnavailableError, UsageError
from forecaster.config.run_config import load
from forecaster.forecast import bundle
from forecaster.forecast.export.graph import export
from forecaster.forecast.predictor import Predictor
from forecaster.parts.pretrained import Pretrained
from forecaster.run import train
from tests import small
from tests.parts import folds

pytest.importorskip("chronos")
LEVELS = [tenth / 10 for tenth in range(1, 10)]


def tiny(folder, kind):
    """A model with two heads of four and one layer, saved to a folder."""
    from chronos.chronos2 import Chronos2CoreConfig, Chronos2Model
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    torch.manual_seed(0)
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 2}
    reading = {"context_length": 16, "input_patch_size": 4, "input_patch_stride": 4}
    reading |= {"quantiles": LEVELS, "use_reg_token": True}
    if kind == "bolt":
        config = T5Config(**sizes, num_decoder_layers=1, decoder_start_token_id=0, pad_token_id=0)
        config.chronos_config = {**reading, "prediction_length": 4}
        config.chronos_pipeline_class = "ChronosBoltPipeline"
        model = ChronosBoltModelForForecasting(config)
    else:
        reading |= {"output_patch_size": 4, "max_output_patches": 4}
        config = Chronos2CoreConfig(**sizes, chronos_config=reading)
        config.chronos_pipeline_class = "Chronos2Pipeline"
        model = Chronos2Model(config)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["bolt", "second"])
def model(request, tmp_path_factory):
    return tiny(tmp_path_factory.mktemp(request.param) / "model", request.param)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    with small.at_home(tmp_path / "home") as folder:
        yield folder


def fitted(model, values):
    fold = replace(folds.fold(values), pretrained=str(model))
    return Pretrained.fit(fold)


def test_it_forecasts_each_column_of_each_window_by_the_median(model):
    from chronos import BaseChronosPipeline

    values = folds.holed(folds.series())
    (part,) = fitted(model, values)
    batch = folds.rest(values).batch(torch.arange(5))
    ahead = part(*batch.inputs)
    assert part.past == 16
    assert "digest" in part.chosen
    pipeline = BaseChronosPipeline.from_pretrained(model)
    rows = batch.past.masked_fill(~batch.observed, torch.nan)[:, -16:]
    for place, column in enumerate(folds.TARGETS):
        given = rows[..., column] if "bolt" in str(model) else rows[..., column][:, None]
        found, _ = pipeline.predict_quantiles(given, folds.HORIZON, [0.5])
        found = torch.cat(found) if isinstance(found, list) else found
        torch.testing.assert_close(ahead[..., place], found[..., 0], atol=1e-5, rtol=1e-4)
    alone = folds.rest(values).batch(torch.arange(1))
    torch.testing.assert_close(part(*alone.inputs), ahead[:1], atol=1e-5, rtol=1e-4)
    assert not part.state_dict(), "the weights stay where they are"


@pytest.mark.usefixtures("untracked")
def test_it_is_weighed_and_served_while_its_folder_is_what_it_was(model, home, tmp_path):
    folder = shutil.copytree(model, home / "own")
    flags = {"refit": False, "part": "chronos:own", "blend": "chronos"}
    loaded = load("small.yaml", ["track.register_model=false"], flags, {})
    made = train.run(loaded, lambda said: None, lambda metrics: None)
    assert made.bundle.parts[0].settings["folder"] == str(folder)
    assert made.record.parts["chronos"].weight == 1
    served = Predictor(bundle.load(home / made.folder), "cpu")
    with pytest.raises(UnavailableError, match="the part 'chronos' stays in its own folder"):
        export(served, tmp_path / "onnx")
    weights = folder / "model.safetensors"
    held = weights.read_bytes()
    weights.write_bytes(held[:-4] + b"\0\0\0\1")
    with pytest.raises(BundleError, match=r"but .*own now holds one with"):
        Predictor(bundle.load(home / made.folder), "cpu")
    weights.unlink()
    with pytest.raises(BundleError, match=r"reads a pretrained model in .*own: expected a folder"):
        Predictor(bundle.load(home / made.folder), "cpu")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chronos_pipeline_class": "ChronosPipeline"}, "got ChronosPipeline"),
        ({"auto_map": {"AutoModel": "own.Model"}}, "needs no code"),
        (None, "has not both"),
    ],
)
def test_other_folders_are_refused(change, reason, model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    if change is None:
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    else:
        facts = json.loads((folder / "config.json").read_text()) | change
        (folder / "config.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match=f"--part chronos:.*model: .*{reason}"):
        fitted(folder, folds.series())


@pytest.mark.parametrize("damage", ["not weights", "one is missing"])
def test_a_damaged_model_is_refused_at_training(damage, model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    file = folder / "model.safetensors"
    held = load_file(file)
    del held["output_patch_embedding.output_layer.bias"]
    save_file(held, file, {"format": "pt"})
    if damage == "not weights":
        file.write_bytes(b"not weights")
    expected = "header" if damage == "not weights" else r"none of \['output_patch_embedding"
    with pytest.raises(UsageError, match=f"--part chronos:.*model: .*{expected}"):
        fitted(folder, folds.series())
