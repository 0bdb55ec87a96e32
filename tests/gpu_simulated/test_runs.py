"""Whole runs on a simulated GPU, from data to a bundle and its answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster import Forecaster
from forecaster.forecast.predictor import Predictor
from tests.gpu_simulated.device import Simulated

ROWS, HORIZON = 600, 6
SMALL = {"model.width": 4, "model.feed_forward": 4, "train.updates": 4, "train.batch": 16}
INFORMER = {"model.name": "informer", "model.width": 8, "model.heads": 2}


def frame(*, holes: bool = False) -> pd.DataFrame:
    """Hourly load, its covariate known ahead, another column."""
    random, steps = np.random.default_rng(0), np.arange(ROWS)
    noise = random.normal(size=(3, ROWS))
    load = 20 + 3 * np.sin(steps * np.pi / 12) + noise[0] + 2 * noise[1]
    if holes:
        load = np.where(random.random(ROWS) < 0.1, np.nan, load.clip(18, 24))
    times = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    return pd.DataFrame({"ds": times, "load": load, "warm": noise[1], "other": noise[2]})


def panel() -> pd.DataFrame:
    one = frame()[["ds", "load"]]
    parts = [one.assign(unique_id=name, y=one.pop("load") * 1.0) for name in ("north",)]
    return pd.concat([*parts, parts[0].assign(unique_id="south", y=parts[0]["y"] * 10)])


AHEAD = {"target": "load", "future_covariates": "warm"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({"target": "load", "features": "S"}, {}),
    "other columns": ({"target": "load"}, {}),
    "all columns, refitted": ({"features": "M", "refit": True}, {}),
    "known ahead": ({**AHEAD, "holidays": "DE"}, {}),
    "holes and limits": ({"target": "load"}, {"data.min": 18, "data.max": 24}),
    "panel": ({}, {}),
    "informer in bf16": ({"blend": "none"}, {**INFORMER, "train.precision": "bf16"}),
    "mean cycle first": ({"target": "load"}, {"model.prior": True}),
    "long strides": (
        {"attention": "strided", "lookback": 390, "blend": "none"},
        {**INFORMER, "model.distil": False, "window.start": 6},
    ),
    "columns as tokens": (
        {"attention": "full"},
        {"model.tokens": "series", "model.output": "written", "model.queries": "temporal"},
    ),
    "decoder, in parts": (
        {"target": "load"},
        {"model.decoder_layers": 1, "model.tokens": "point", "model.output": "written",
         "train.accumulate": 2, "train.checkpointing": True},
    ),
}  # fmt: skip


def fitted(kind: str) -> Forecaster:
    flags, options = KINDS[kind]
    data = panel() if kind == "panel" else frame(holes=kind.startswith("holes"))
    flags = {"attention": "prob", "horizon": HORIZON, "epochs": 1, **flags}
    return Forecaster(**flags, options={**SMALL, **options}, device="cuda").fit(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_forecasts_there_what_it_forecasts_on_a_processor(
    kind: str, tmp_path: Path
) -> None:
    with Simulated():
        fitted(kind).save(tmp_path / "bundle")
        there = Predictor.load(tmp_path / "bundle", "cuda")
        computed = there.predict(there.example)
    wanted = Predictor.load(tmp_path / "bundle", "cpu").predict(there.example)
    numbers = wanted.select_dtypes("number").columns
    np.testing.assert_allclose(computed[numbers], wanted[numbers], rtol=1e-3, atol=1e-3)
