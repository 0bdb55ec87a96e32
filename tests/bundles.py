"""Tiny untrained bundles."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from forecaster.config.run_config import load_dict
from forecaster.datasets.reading import Reading
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.bundle import FILES, MANIFEST, Bundle, Share
from forecaster.forecast.intervals import Intervals
from forecaster.parts import Blend, CycleMean, LastValue, Network
from forecaster.plan.schema import Schema
from forecaster.record import Backtest, Record, Training, Weighed

COLUMNS = ("load", "wind", "Zürich °C")
SEASON = 4
LEVELS = (0.1, 0.5, 0.9)
MODELS: dict[str, dict[str, Any]] = {
    "cycle": {  # the untrained model forecasts the mean of the past cycles
        "model": {"name": "tokens", "parts": 2, "width": 4, "heads": 2, "linear": False,
                  "shrink": False},
    },
    "informer": {
        "model": {"name": "informer", "width": 8, "heads": 2, "feed_forward": 8},
        "attn": {"name": "prob", "factor": 1},
    },
}  # fmt: skip


def whole_errors(series, horizon, targets, windows=39, seed=0):
    """Normal errors of whole windows, each step half of the one before it; half precision."""
    errors = np.random.default_rng(seed).normal(size=(windows, series, horizon, targets))
    for step in range(1, horizon):
        errors[:, :, step] += errors[:, :, step - 1] / 2
    return errors.astype(np.float16)


def unsaved(
    model="cycle",
    *,
    targets=COLUMNS,
    freq="h",
    timezone="naive",
    past=12,
    horizon=6,
    calibrated=False,
    loss="mse",
):
    """A bundle in memory; its weights depend only on its configuration.

    If calibrated, its quantiles at 0.1, 0.5, 0.9 are -1, 0 and 2 times the step number away from
    the forecast, in units.
    """
    window = {"past": past, "start": past // 2, "horizon": horizon}
    sections = {"train": {"loss": loss}, "intervals": {"levels": list(LEVELS)}}
    config = load_dict({"window": window, **sections, **MODELS[model]}, "the test")
    scaler = Scaler(mean=(1.0, -20.0, 300.0), std=(2.0, 0.5, 40.0))
    reading = Reading(
        time="time", targets=targets, past_covariates=tuple(c for c in COLUMNS if c not in targets),
        freq=freq, seasons=(SEASON, 2 * SEASON), panel=False, timezone=timezone,
    )  # fmt: skip
    schema = Schema(COLUMNS, targets, reading, scaler)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = config.build_model(schema.task(past, past // 2, horizon))
    intervals = None
    if calibrated:
        steps = np.arange(1.0, horizon + 1).repeat(len(targets)).reshape(horizon, -1)
        scale = steps / schema.target_scaler.std
        errors = whole_errors(1, horizon, len(targets))
        offsets = scale[..., None] * [-1.0, 0.0, 2.0]
        intervals = Intervals(LEVELS, offsets, scale, 99, errors=errors, apart=5.0)
    about = {
        "name": f"forecaster-toy-M-all-{horizon}",
        "refit": False,
        "intervals": "none: nobody calibrated it",
    }
    record = Record(test=judged(mse=0.1 + 0.2, mae=None, windows=3))
    return Bundle(config, schema, dict(built.state_dict()), record, about, intervals)


def of_splits(
    splits: Any,
    test: Backtest | None = None,
    intervals: Intervals | None = None,
    *,
    refit: bool = False,
) -> Bundle:
    """The untrained bundle of some splits, with a record as after a training."""
    train = Training(
        windows=1, peak_mib=None, expected_mib=1, epochs=1, seconds=61.4, best_epoch=1, steps=1,
        windows_per_second=5678.2, still_falling=False,
    )  # fmt: skip
    about = {
        "name": splits.plan.name, "data_digest": splits.plan.dataset.digest,
        "refit": refit, "commit": "abc",
        "attn_effective": "encoder.0: prob: 4 of 9 queries active",
    }  # fmt: skip
    record = Record(validation_mse=0.12345, validation_windows=1, train=train, test=test)
    weights = dict(splits.build_model().state_dict())
    return Bundle(splits.plan.config, splits.schema, weights, record, about, intervals)


FLOOR = {"skill": None, "paired_low": None, "paired_high": None, "chosen": "", "weight": 0.0}


def judged(**given):
    """What was found on a test split, with neutral values for all that is not given."""
    floors = {name: FLOOR | own for name, own in given.pop("floors", {"last value": {}}).items()}
    if network := given.get("network"):
        given["network"] = {"weight": 0.0, "adds": None, "verdict": ""} | network
    if intervals := given.get("intervals"):
        bands = {
            key: {"by_step": {}, "columns": {}} | own if own and key[0].isdigit() else own
            for key, own in intervals.items()
        }
        unknown = {"levels": (), "calibration_windows": 0, "again": False, "pinball": {}}
        given["intervals"] = {**unknown, "verdict": "", **bands}
    blank = {
        "windows": 3, "every": 1, "columns": {}, "by_step": {}, "items": None, "network": None,
        "floors": floors, "best_floor": next(iter(floors)), "lost_to": (), "verdict": "",
        "adds": {}, "headline": "", "outcome": "", "intervals": None,
    }  # fmt: skip
    return Backtest.read({**blank, **given})


def rejudged(bundle, **given):
    """The same model, of which something else was found on the test split."""
    assert bundle.record.test
    test = judged(**{**bundle.record.test.to_dict(), **given})
    return replace(bundle, record=bundle.record.model_copy(update={"test": test}))


def scaled(bundle, factor):
    """The bundle with its weights times a factor."""
    own = {k: v * factor if v.is_floating_point() else v for k, v in bundle.weights.items()}
    return replace(bundle, weights=own)


def blended(bundle, **weights):
    """The same network as a part, beside the mean of the last 8 steps' cycles of 4 and the last
    value, by the weights of `network`, `cycle` and `last`; what has none is left out. Each series
    of a panel has them in another order."""
    task = bundle.schema.task(*bundle.config.window.lengths())
    parts = {
        "network": Network(bundle.build_network(task)),
        "cycle": CycleMean(task, "cycle mean", 8, "k = 2 cycles of 4 steps", season=4),
        "last": LastValue(task, "last value", task.past),
    }
    shares = torch.tensor([[each] * task.horizon for each in weights.values()])
    turned = [shares[:, 0].roll(number + 1) for number in range(len(bundle.schema.items))]
    of_series = torch.stack(turned) if turned else None
    blend = Blend(task, {parts[name].name: parts[name] for name in weights}, shares, of_series)
    tried = {
        part.name: Weighed(weight=weights.get(name, 0.0), validation_mse=0.125, chosen=part.chosen)
        for name, part in parts.items()
    }
    network = weights.get("network", 0.0)
    found = {"mse": 0.5, "weight": network, "verdict": f"The network is {network:.0%} of it."}
    assert bundle.record.test
    floors = {
        **bundle.record.test.to_dict()["floors"],
        "cycle mean": {"mse": 0.75, "mae": 0.7, "skill": 0.5},
    }
    found_too = rejudged(bundle, network=found, floors=floors)
    record = found_too.record.model_copy(update={"parts": tried})
    kept = bundle.weights if network else {}
    return replace(bundle, parts=Share.of(blend), weights=kept, record=record)


def warning(bundle, past=0.0):
    """The same model, of which everything is told that can be.

    It lost to a floor, its band covered too little, training never changed within a step, and
    there its histories lay at `past`, scaled.
    """
    columns, targets = len(bundle.schema.columns), len(bundle.schema.targets)
    range_ = [[past] * columns, [0.0] * columns, [0] * columns]
    ranges = {"low": range_, "high": range_, "change": [0.0] * targets}
    found = rejudged(
        bundle,
        windows=1000,
        columns={name: {} for name in bundle.schema.targets},
        floors={"last value": {"mse": 0.2, "mae": 0.2, "skill": -1.0, "paired_low": 0.1}},
        intervals={"80": {"coverage": 0.44}},
        outcome="worse",
        verdict="Worse than the best floor.",
    )
    return replace(found, about={**bundle.about, "ranges": ranges})


def sign(folder):
    """Rewrite the manifest, as somebody would who changed a file on purpose."""
    files = [folder / name for name in FILES]
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / MANIFEST).write_text("".join(lines))
