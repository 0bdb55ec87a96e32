"""What the records are made of: data, settings and questions. `write.py` writes them."""

import os
import platform
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import requests
import torch
from fastapi.testclient import TestClient

from forecaster.client import Client

HERE = Path(__file__).parent
RECORDS, THEIRS = HERE / "records", HERE / "theirs"
ROWS, ASKED, HORIZON = 700, 220, 12
MARK = -9999  # of a missing value
LEVELS = (0.1, 0.5, 0.9)
SMALL = ("--epochs", "2", "--set", "model.width=4", "--set", "model.feed_forward=4")
LENGTHS = ("--horizon", str(HORIZON), "--lookback", "48")


def machine() -> dict[str, str]:
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


def waves(columns: Sequence[str], rows: int, seed: int, freq: str = "h") -> pd.DataFrame:
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


def two(rows: int) -> pd.DataFrame:
    return waves(["load", "wind"], rows, 1)


def panel(rows: int) -> pd.DataFrame:
    """Four shops with their sizes; the last one opened later."""
    frames = []
    for place, shop in enumerate(["Bern", "Graz", "Łódź", "7"]):
        frame = waves(["sales"], rows, 10 + place)[rows // 8 * (place == 3) :]
        frames.append(frame.assign(shop=shop, size=100 + 50 * place))
    return pd.concat(frames, ignore_index=True)


def known(rows: int) -> pd.DataFrame:
    frame = waves(["load", "temperature"], rows, 2)
    return frame.assign(load=(frame["load"] - 0.8 * frame["temperature"]).round(3))


def missing(rows: int) -> pd.DataFrame:
    """A tenth of the values is missing, some as `MARK`, and so is half a day."""
    frame, random = two(rows), np.random.default_rng(3)
    for name in ("load", "wind"):
        frame.loc[random.random(rows) < 0.05, name] = np.nan
        frame.loc[random.random(rows) < 0.05, name] = MARK
    frame.loc[rows - 60 : rows - 48, "wind"] = np.nan
    return frame


def words(rows: int) -> pd.DataFrame:
    """`sky` is known ahead, `mood` is not; both move the load."""
    frame, random = waves(["load"], rows, 4), np.random.default_rng(4)
    sky = random.integers(3, size=rows // 6 + 1).repeat(6)[:rows]
    mood = random.integers(2, size=rows // 10 + 1).repeat(10)[:rows]
    frame["load"] = (frame["load"] + 2 * sky - 3 * mood).round(3)
    frame["sky"] = np.array(["clear", "rain", "snow"])[sky]
    return frame.assign(mood=np.array(["bad", "good"])[mood])


def transformer(rows: int) -> pd.DataFrame:
    """Like ETTh1: seven columns, hourly."""
    return waves(["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"], rows, 5)


def demand(rows: int) -> pd.DataFrame:
    """In the form of the packaged sample, of which no row is copied."""
    frame = waves(["Demand", "Temperature"], rows, 6, "30min").rename(columns={"time": "Time"})
    frame["Time"] = frame["Time"].dt.tz_localize("UTC")
    return frame.assign(Demand=frame["Demand"] * 150, Temperature=frame["Temperature"] / 2)


# Bundles.


@dataclass(frozen=True)
class Kind:
    """A kind of bundle: its data, and the options of `forecaster train` beside `LENGTHS`."""

    data: Any
    options: tuple[str, ...]
    sample: bool = False
    csv: tuple[tuple[str, str], ...] = ()
    ahead: str = ""
    """The columns that are known ahead, over rows in which the others are missing."""

    def write(self, folder: Path, name: str) -> Path:
        """The file to train on."""
        file = folder / f"{name}.csv"
        self.data(ROWS).to_csv(file, index=False, **dict(self.csv))
        return file

    def question(self) -> str:
        """The history to forecast, which follows the training rows, as a file."""
        frame = self.data(ROWS + ASKED)
        time = next(each for each in ("time", "Time") if each in frame)
        frame = frame[frame[time] >= frame[time].unique()[ROWS]]
        if self.ahead:
            others = [name for name in frame if name not in (time, self.ahead)]
            frame.loc[frame.index[-HORIZON:], others] = np.nan
        return str(frame.to_csv(index=False, **dict(self.csv)))

    def command(self, name: str) -> list[str]:
        """The command that trains it where `write` has written the file."""
        data = "vic_elec" if self.sample else f"{name}.csv"
        return ["train", "--data", data, *LENGTHS, *SMALL, "--device", "cpu", *self.options]


KINDS = {
    "own": Kind(two, ("--attn", "prob"), csv=(("sep", ";"), ("decimal", ","))),
    "panel": Kind(panel, ("--attn", "full", "--id", "shop", "--static", "size")),
    "known": Kind(
        known, ("--attn", "topk", "--future-covariates", "temperature"), ahead="temperature"
    ),
    "missing": Kind(missing, ("--attn", "lsh", f"--missing={MARK}")),
    "pinball": Kind(two, ("--attn", "diff", "--set", "train.loss=pinball", "--target", "load")),
    "words": Kind(
        words,
        ("--attn", "gau", "--past-covariates", "mood", "--future-covariates", "sky"),
        ahead="sky",
    ),
    "sample": Kind(
        demand, ("--attn", "prob", "--lookback", "2 cycles", "--set", "train.stride=32"),
        sample=True,
    ),
    "lookback": Kind(transformer, ("--attn", "logsparse", "--lookback", "96")),
    "plugin": Kind(two, ("--attn", "aft-conv")),
    "alone": Kind(
        two,
        ("--attn", "fastformer", "--set", "model.linear=false", "--set", "model.centre=window",
         "--blend", "none"),
    ),
}  # fmt: skip


@contextmanager
def at(folder: Path, *, theirs: bool = False) -> Iterator[None]:
    """In a folder, without settings of the caller; the part of another package may be installed."""
    others = ("FORECASTER_", "MLFLOW_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    mine |= {"XDG_CACHE_HOME": str(folder), "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    before, path = Path.cwd(), [*([str(THEIRS)] if theirs else ()), *sys.path]
    os.chdir(folder)
    try:
        with patch.dict(os.environ, mine, clear=True), patch.object(sys, "path", path):
            yield
    finally:
        os.chdir(before)
        sys.modules.pop("repeated_part", None)


def unpack(name: str, folder: Path) -> Path:
    """The bundle of a kind, in a folder of that name."""
    with zipfile.ZipFile(RECORDS / "bundles" / name / "bundle.zip") as kept:
        kept.extractall(folder / name)
    return folder / name


def told(service: TestClient, model: str, file: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """What a client makes of the answer of a service, and what it asked."""
    asked: list[dict[str, Any]] = []

    def send(method: str, url: str, **options: Any) -> Any:
        asked.extend([options["json"]] if "json" in options else [])
        passed = {name: each for name, each in options.items() if name in ("json", "headers")}
        return service.request(method, url, **passed)

    with patch.object(requests, "request", send):
        ahead = Client("http://localhost").predict(file, levels=LEVELS, model=model)
    return pd.DataFrame(ahead), asked[0]


def answer(service: TestClient, request: dict[str, Any]) -> dict[str, Any]:
    """The answer of /predict, without its sentences and what no two answers share."""
    response = service.post("/predict", json=request)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    found |= {"notices": [[each["input"], each["code"]] for each in found["notices"]]}
    found |= {"warnings": len(found["warnings"])}
    return {key: value for key, value in found.items() if key not in ("id", "timing")}


def status(*arguments: str) -> int:
    """The exit status of the command, run in this process."""
    from forecaster import cli

    words = patch.object(sys, "argv", ["forecaster", *arguments])
    with words, patch.object(cli, "leave", sys.exit):  # else it would end this process
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0)
