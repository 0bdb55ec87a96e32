"""Short trainings on one thread give the networks and ridges that release 0.2.0 gave.

They are equal bit for bit on a machine on which they were recorded, and close to those elsewhere.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from forecaster import Forecaster
from tests import conftest
from tests.equality import cases

FOLDER = cases.RECORDS / "trainings"
FAR, FEW = 1e-4, 0.01
"""On another machine this share of the weights may be further away: where a gradient is nearly
zero, the optimiser moves a weight by the sign of a rounding error."""
TINY = {"model.width": 4, "model.feed_forward": 4}
INFORMER = {"model.name": "informer", "model.width": 8, "model.heads": 2, "model.feed_forward": 8}
TRAININGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lookback": (cases.transformer, {"attention": "prob", "lookback": 96, "options": TINY}),
    "panel": (cases.panel, {"attention": "full", "id": "shop", "static": "size", "options": TINY}),
    "informer": (cases.two, {"attention": "logsparse", "blend": "none", "options": INFORMER}),
    "ETTh1": (
        lambda rows: pd.read_csv(next(Path(str(conftest.DATA)).rglob("ETTh1.csv"))),
        {"attention": "prob", "lookback": 96, "options": {**TINY, "train.stride": 16}},
    ),
}  # fmt: skip


def train(name, folder):
    """The tensors of the bundle, by the part that has learned them."""
    data, settings = TRAININGS[name]
    given = {"horizon": cases.HORIZON, "lookback": 48, "epochs": 1, "device": "cpu", **settings}
    Forecaster(**given).fit(data(cases.ROWS)).save(folder)
    parts, found = json.loads((folder / "parts.json").read_text()), {}
    for file in ("model", "parts", "intervals"):
        for key, tensor in load_file(folder / f"{file}.safetensors").items():
            place, slash, inner = key.partition("/")
            owner = f"{parts[int(place)]['name']}: {inner}" if slash else f"{file}: {key}"
            found[owner] = tensor
    return found


def digest(tensor):
    sizes = f"{tensor.dtype} {[*tensor.shape]} ".encode()
    return hashlib.sha256(sizes + tensor.contiguous().numpy().tobytes()).hexdigest()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.data] * (name == "ETTh1")) for name in TRAININGS]
)
def test_it_ends_with_the_same_weights(name, tmp_path):
    found = train(name, tmp_path)
    learned = [key for key in found if key.startswith("model") or "ridge" in key]
    digests = {key: digest(found[key]) for key in learned}
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    for recorded in expected:
        if recorded["machine"] == cases.machine():
            assert digests.items() <= recorded["digests"].items()
            return
    assert digests.keys() <= expected[0]["digests"].keys()
    kept = load_file(FOLDER / f"{name}.safetensors")
    both = [key for key in learned if key in kept]  # without the largest
    mine, theirs = (torch.cat([x[key].flatten().double() for key in both]) for x in (found, kept))
    away = ~torch.isclose(mine, theirs, atol=FAR, rtol=FAR)
    assert away.double().mean() <= FEW
