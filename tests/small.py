"""A small generated data set that can be used by name, and settings that train on it quickly."""

import hashlib
import os
from contextlib import contextmanager
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml

from forecaster.base import installation
from forecaster.config.run_config import load

ROWS, TRAIN, VALIDATION, TEST = 400, 240, 300, 380
COLUMNS = ("a", "b", "c")
CONFIG = {
    "data": {"name": "small"},
    "window": {"past": "3 cycles", "horizon": 5},
    "model": {"name": "tokens", "parts": 3, "width": 4, "feed_forward": 4},
    "attn": {"name": "prob", "factor": 1},
    "train": {"epochs": 2, "batch": 32, "lr": 0.003, "schedule": "constant", "refit": False},
}


def install(folder, patch):
    """Make the data set `small` available; returns a configuration file for it."""
    random = np.random.default_rng(0)
    steps = np.arange(ROWS)[:, None]
    values = 20 + np.sin(steps * np.pi / 6) * [1, 5, 0.2] + 0.1 * random.normal(size=(ROWS, 3))
    frame = pd.DataFrame(values, columns=list(COLUMNS))
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=ROWS, freq="h"))
    for name in ("cards", "data"):
        (folder / name).mkdir()
    file = folder / "data" / "small.csv"
    frame.to_csv(file, index=False)
    card = {
        "name": "small", "title": "A small series", "about": "generated",
        "sources": [
            {"files": ["small.csv"], "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        ],
        "time": "date",
        "timezone": "naive", "freq": "h", "columns": list(COLUMNS), "target": "b",
        "seasons": [12, 24], "split": {"rows": [TRAIN, VALIDATION, TEST]}, "licence": "none",
        "citation": "none",
    }  # fmt: skip
    (folder / "cards" / "small.yaml").write_text(yaml.safe_dump(card))
    patch.setattr(installation, "cards", lambda: folder / "cards")
    patch.setenv("FORECASTER_DATA", str(folder / "data"))
    config = folder / "small.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    return config


def splits(*sets, **flags):
    """The splits of `small.yaml` in the working directory, with further values and flags."""
    from forecaster.plan.data import find_data
    from forecaster.plan.plan import make_plan
    from forecaster.plan.splits import make_splits

    return make_splits(
        make_plan(*find_data(load("small.yaml", sets, flags, {}), lambda said: None))
    )


def planned(splits, **changes):
    """The same windows, under a plan with some changes."""
    other = copy(splits)
    other.plan = replace(splits.plan, **changes)
    return other


@contextmanager
def at_home(folder):
    """In a separate working directory, where `small` is known, without settings of the caller."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name.startswith(("FORECASTER_", "MLFLOW_TRACKING", "MLFLOW_REGISTRY")):
                patch.delenv(name)
        patch.chdir(folder)
        install(folder, patch)
        yield folder
