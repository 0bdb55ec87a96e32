"""Ten short trainings on one thread give the models, forecasts and verdicts that they gave.

They are close to what was recorded on a machine with the same processor and torch, and less so
elsewhere, where weights of the network are not compared: where a gradient is nearly zero, the
optimiser moves one by the sign of a rounding error.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from forecaster import Forecaster
from tests import conftest
from tests.equality import cases

FOLDER = cases.RECORDS / "trainings"
SAME, OTHER = 1e-6, 2e-3
"""How far a tensor may be from the recorded one, over the largest of its values: all of them on a
machine like the one that recorded it, elsewhere the median."""
LARGE = 1000
"""Of tensors with more values, their norm and a sum with random weights are kept."""
TINY = {"model.width": 4, "model.feed_forward": 4}
INFORMER = {"model.name": "informer", "model.width": 8, "model.heads": 2, "model.feed_forward": 8}


def gaps(rows):
    """Missing cells, and a missing stretch, in one of two columns."""
    frame = cases.two(rows)
    frame.loc[rows // 3 : rows // 3 + 10, "load"] = np.nan
    return frame.assign(wind=frame["wind"].mask(np.arange(rows) % 17 == 0))


def known(rows):
    """The load falls by two for each degree, which is known ahead."""
    frame = cases.waves(["load", "degrees"], rows, 2)
    return frame.assign(load=frame["load"] - 2 * frame["degrees"])


def words(rows):
    """A word known ahead that moves the load, and one that is only observed."""
    frame = cases.two(rows).assign(wind=np.where(np.arange(rows) % 5 < 2, "calm", "windy"))
    frame["day"] = np.where(np.arange(rows) // 24 % 9 == 4, "fair", "usual")
    return frame.assign(load=frame["load"] + 6 * (frame["day"] == "fair"))


def months(rows):
    frame = cases.waves(["sales"], 150, 3, "MS")
    season = 8 * np.sin(2 * np.pi * np.arange(150) / 12)
    return frame.assign(sales=frame["sales"] + season)


def etth1(rows):
    return pd.read_csv(next(Path(str(conftest.DATA)).rglob("ETTh1.csv"))).head(4000)


QUICK = {"train.stride": 16, "train.validation_stride": 16, **TINY}
TRAININGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "own": (cases.two, {"attention": "prob"}),
    "panel": (cases.panel, {"attention": "full", "id": "shop", "static": "size"}),
    "known": (known, {"attention": "single", "target": "load", "future_covariates": "degrees"}),
    "gaps": (gaps, {"attention": "full"}),
    "words": (words, {"attention": "aft-simple", "target": "load", "past_covariates": "wind",
                      "future_covariates": "day"}),
    "lookback": (cases.transformer, {"attention": "prob", "lookback": 96}),
    "informer": (cases.two, {"attention": "logsparse", "blend": "none", "options": INFORMER}),
    "plugin": (cases.two, {"attention": "none"}),
    "months": (months, {"attention": "full", "lookback": 24}),
    "ETTh1": (etth1, {"attention": "prob", "config": "default", "horizon": 96, "lookback": None,
                      "options": QUICK}),
}  # fmt: skip
"""The data of each, and what differs from the settings in `train`."""


def train(name, folder):
    """The tensors of the bundle by the part that has learned them, with the forecast after the
    data, and the record of the test split."""
    data, settings = TRAININGS[name]
    given = {
        "horizon": cases.HORIZON,
        "lookback": 48,
        "epochs": 1,
        "device": "cpu",
        "options": TINY,
    }
    frame = data(cases.ROWS)
    with cases.at(folder, theirs=name == "plugin"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Forecaster(**(given | settings)).fit(frame)
        model.save(folder / "bundle")
        future = None
        if "future_covariates" in settings:
            future = model.make_future().assign(
                **{settings["future_covariates"]: frame.iloc[-1][settings["future_covariates"]]}
            )
        ahead = model.predict(levels=(0.1, 0.9), future=future)
    parts, found = json.loads((folder / "bundle" / "parts.json").read_text()), {}
    for file in ("model", "parts", "intervals"):
        for key, tensor in load_file(folder / "bundle" / f"{file}.safetensors").items():
            if key in ("errors", "apart"):  # evaluate/test_joint.py: errors over these widths
                continue
            place, slash, inner = key.partition("/")
            owner = f"{parts[int(place)]['name']}: {inner}" if slash else f"{file}: {key}"
            found[owner] = tensor
    numbers = ahead.select_dtypes("floating")
    found |= {f"forecast: {column}": torch.tensor(numbers[column].to_numpy()) for column in numbers}
    return {
        key: small(tensor.double()) for key, tensor in found.items()
    }, model.bundle.record.judged


def small(tensor):
    """A tensor, or of a large one its norm and a sum."""
    if tensor.numel() <= LARGE:
        return tensor
    draw = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1), dtype=tensor.dtype)
    return torch.stack([tensor.norm(), (tensor * draw).sum()])


def said(test):
    """What the record of a test split says, without the finer figures."""
    fields = ("windows", "mse", "mae", "best_floor", "outcome")
    floors = {name: floor["mse"] for name, floor in test.floors.items()}
    return {**{key: test.to_dict()[key] for key in fields}, "floors": floors}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.data] * (name == "ETTh1")) for name in TRAININGS]
)
def test_it_ends_with_the_same_model(name, tmp_path):
    found, test = train(name, tmp_path)
    expected = load_file(FOLDER / f"{name}.safetensors")
    recorded = json.loads((FOLDER / f"{name}.json").read_text())
    alike = recorded["machine"] == cases.machine()
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert found[key].shape == tensor.shape, key
        there = tensor.isfinite()
        assert torch.equal(found[key].isfinite(), there), key
        if not there.any() or (key.startswith("model: ") and not alike):
            continue
        away = (found[key] - tensor)[there].abs() / tensor[there].abs().max().clamp(min=1e-3)
        off = away.max() if alike else away.median()
        assert off <= (SAME if alike else OTHER), f"{key} is {off:.1e} away"
    own, theirs = said(test), recorded["said"]
    for key in ("windows", *(["best_floor", "outcome"] if alike else [])):
        assert own[key] == theirs[key]
    for key in ("mse", "mae", "floors"):
        assert own[key] == pytest.approx(theirs[key], rel=SAME if alike else OTHER)
