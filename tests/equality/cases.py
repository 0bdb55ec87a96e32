"""What was recorded of release 0.2.0, and data to train on."""

import os
import platform
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

HERE = Path(__file__).parent
RECORDS, THEIRS = HERE / "records", HERE / "theirs"
ROWS, HORIZON = 700, 12
OWN = (
    "train", "--data", "own.csv", "--horizon", str(HORIZON), "--lookback", "48", "--epochs", "1",
    "--set", "model.width=4", "--set", "model.feed_forward=4", "--device", "cpu", "--no-register",
)  # fmt: skip
"""The command that trains a model on the rows of `two` in own.csv."""


def machine():
    """What decides about the last bits of a result."""
    lines = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    models = [line.partition(":")[2].strip() for line in lines.splitlines() if "model name" in line]
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": models[0] if models else platform.processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


# Data.


def waves(columns, rows, seed, freq="h"):
    """Correlated columns with a daily and a weekly cycle, a drifting level and noise."""
    random = np.random.default_rng(seed)
    steps, count = np.arange(rows)[:, None], len(columns)
    angles = 2 * np.pi * steps / [24, 168] + random.uniform(0, 6, 2)
    common = np.sin(angles) @ [4.0, 1.5] + random.normal(0, 0.15, rows).cumsum()
    noise = random.normal(0, 0.6, (rows, count))
    values = 30 + common[:, None] * random.uniform(0.3, 1.5, count) + noise
    frame = pd.DataFrame(values.round(3), columns=list(columns))
    frame.insert(0, "time", pd.date_range("2024-01-01", periods=rows, freq=freq))
    return frame


def two(rows):
    return waves(["load", "wind"], rows, 1)


def panel(rows):
    """Four shops with their sizes; the last one opened later."""
    frames = []
    for place, shop in enumerate(["Bern", "Graz", "Łódź", "7"]):
        frame = waves(["sales"], rows, 10 + place)[rows // 8 * (place == 3) :]
        frames.append(frame.assign(shop=shop, size=100 + 50 * place))
    return pd.concat(frames, ignore_index=True)


def transformer(rows):
    """Like ETTh1: seven columns, hourly."""
    return waves(["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"], rows, 5)


@contextmanager
def at(folder, *, theirs=False):
    """In a folder, without settings of the caller; the part of another package may be installed."""
    others = ("FORECASTER_", "MLFLOW_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    if theirs:
        mine["FORECASTER_PARTS"] = "repeated"
    mine |= {"XDG_CACHE_HOME": str(folder), "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    before, path = Path.cwd(), [*([str(THEIRS)] if theirs else ()), *sys.path]
    os.chdir(folder)
    try:
        with patch.dict(os.environ, mine, clear=True), patch.object(sys, "path", path):
            yield
    finally:
        os.chdir(before)
        sys.modules.pop("repeated_part", None)


def status(*arguments):
    """The exit status of the command, run in this process."""
    from forecaster import cli

    words = patch.object(sys, "argv", ["forecaster", *arguments])
    with words, patch.object(cli, "leave", sys.exit):  # else it would end this process
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0)
