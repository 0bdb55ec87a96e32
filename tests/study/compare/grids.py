"""A tiny grid over the generated data set `small`, and untrained cells."""

from typing import Any

import numpy as np
from safetensors.numpy import save_file

from forecaster.study.compare.cell import ARRAYS, Finished, keep, train
from forecaster.study.compare.grid import define, resolve
from forecaster.study.compare.record import CellRecord

WINDOWS = 400
"""Those of each cell of the fixture `cells`."""
REGIMES: dict[str, Any] = {
    "few": {},
    "many": {"set": ["model.tokens=point", "model.channels=mixed"], "linear": [False]},
}


def values(**changes):
    """A grid file as plain values: 9 or 36 tokens, 6 steps."""
    protocol = {
        "config": "small.yaml",
        "steps": 6,
        "set": ["model.width=8", "model.feed_forward=64", "train.lr_of={linear: 0.001}"],
        "regimes": REGIMES,
    }
    return {"data": ["small"], "horizons": [5], "attn": [], "seeds": 1, "protocol": protocol} | (
        changes
    )


def small_grid(name="toy", **changes):
    changes = {"attn": ["full"]} | changes
    return resolve(name, define(values(), changes, "toy.yaml"))


def trained(grid, cell, cells, command="forecaster compare"):
    """A cell of a grid, trained and kept below the folder `cells`."""
    return keep(cells / cell.name, train((grid.data, "abc", command), cell))


def finished(folder, errors, **facts):
    """A finished cell with these errors of its windows."""
    errors = np.asarray(errors, dtype=np.float64)
    known = {
        "attn": "prob", "data": "small", "horizon": 2, "regime": "few", "linear": False, "seed": 0,
        "tokens": 9, "parameters": 1000, "budget_parameters": 1000, "within_budget": True,
        "effective": "encoder.0: prob", "is_full": False, "steps": 6, "train_seconds": 1.5,
        "windows_per_second": 100.0, "mse": float(np.nanmean(errors)), "mae": 0.5,
        "windows": len(errors), "floors": {"low": {"mse": 0.5}, "high": {"mse": 2.0}},
        "inference_ms": 1.25, "peak_mib": 3.0, "config": {}, "config_digest": "c",
        "data_digest": "d", "best_step": 6, "validation_mse": 1.0, "by_step": {},
        "hardware": "one", "commit": "abc", "command": "forecaster compare", "seconds": 1.0,
    }  # fmt: skip
    facts = known | facts
    own = folder / "-".join(str(facts[key]) for key in ("attn", "regime", "linear", "seed"))
    own.mkdir(parents=True)
    save_file({"by_window": errors}, own / ARRAYS)
    return Finished(own, CellRecord.read(facts))


def by_attention(rows):
    return {row.attn: row for row in rows}
