"""A run can be trained again from its bundle."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from forecaster.base.errors import DataError
from forecaster.config.run_config import load
from forecaster.forecast import bundle
from forecaster.run import experiment, reproduce

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "refit"])
def kept(request):
    sets = ("track.register_model=false", "train.epochs=1")
    loaded = load("small.yaml", sets, {"refit": request.param}, {})
    found = experiment.run(loaded, lambda line: None, lambda metrics: None)
    return bundle.load(found.folder)


def test_it_is_the_same_to_the_bit(kept):
    runs = list(Path("runs").iterdir())
    found = reproduce.reproduce(kept, lambda line: None)
    assert (found.equal, found.others) == (True, ())
    assert [file.file for file in found.files] == [
        "model.safetensors", "parts.safetensors", "intervals.safetensors"
    ]  # fmt: skip
    assert found.files[0].tensors == len(kept.weights) > 0
    assert list(Path("runs").iterdir()) == runs, "nothing is kept"


def test_what_differs_is_named_with_what_may_be_why(kept, monkeypatch):
    name, weight = next(iter(kept.weights.items()))
    other = {**kept.weights, name: weight + 1, "another": torch.zeros(2)}
    about = {**kept.about, "commit": "older", "versions": {"torch": "1.0"}, "threads": 0}
    found = reproduce.reproduce(replace(kept, weights=other, about=about), lambda line: None)
    assert not found.equal
    assert f"2 of {len(other)} tensors differ, by at most inf ({name}, another)" in str(
        found.files[0]
    )
    assert found.files[1].differing == ()
    assert f"torch was 1.0 and is {torch.__version__.partition('+')[0]}" in " ".join(found.others)
    assert any(line.startswith("commit was older and is ") for line in found.others)
    monkeypatch.setattr(reproduce.machine, "hardware", lambda device: "a GPU")
    assert "CUDA differences are expected" in reproduce._others(kept, "cuda")[0]
    assert found.to_dict()["files"]["model.safetensors"]["differing"] == [name, "another"]


def test_as_many_threads_are_used_as_then(kept, monkeypatch):
    monkeypatch.setattr(reproduce.torch, "set_num_threads", lambda count: 1 / (count - 3))
    with pytest.raises(ZeroDivisionError):
        reproduce.reproduce(replace(kept, about={**kept.about, "threads": 3}), print)


def test_other_data_are_refused(kept):
    about = {**kept.about, "data_digest": "sha256:other"}
    with pytest.raises(DataError, match="trained on sha256:other"):
        reproduce.reproduce(replace(kept, about=about), print)
