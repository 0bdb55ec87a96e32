"""Run training cells exactly as a user would, and keep one small JSON file for each.

    FORECASTER_DATA=... python benchmarks/training.py --data all
    FORECASTER_DATA=... python benchmarks/training.py --data ETTh1 --attn prob full --seeds 0 1 2

`all` means the cells of docs/results.md; each seed runs for all cells before the next
one. A cell whose file exists is not run again; delete the file to measure it again. A cell that
fails is named, and the others go on. The tables are rendered from these files alone
(benchmarks/render.py). OMP_NUM_THREADS sets the number of threads.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forecaster.base import machine
from forecaster.evaluate.figures import IntervalMetric, QuantileMetric, shown, whole
from forecaster.evaluate.intervals import SHARES, percent

RESULTS = Path(__file__).parent / "results"


HORIZONS = (96, 192, 336, 720)
MARKETS = ("NP", "PJM", "BE", "FR", "DE")


@dataclass(frozen=True)
class Cell:
    """What is trained, except for the seed."""

    config: str
    data: str
    horizon: int
    sets: tuple[str, ...] = ()
    attn: str = "prob"

    @property
    def label(self) -> str:
        return ", ".join([self.config, *self.sets])

    def file(self, seed: int) -> Path:
        slug = re.sub(r"[^A-Za-z0-9.=]+", "-", self.label)
        return RESULTS / f"served-{slug}-{self.data}-{self.horizon}-{self.attn}-s{seed}.json"

    def command(self, seed: int) -> list[str]:
        return [
            *("forecaster", "train", "--config", self.config, "--data", self.data),
            *("--attn", self.attn, "--horizon", str(self.horizon), "--seed", str(seed)),
            *("--no-register", "--json"),
            *(part for each in self.sets for part in ("--set", each)),
        ]


def everything() -> list[Cell]:
    """The cells of docs/results.md, the quickest first."""

    def over(config: str, data: str) -> list[Cell]:
        return [Cell(config, data, horizon) for horizon in HORIZONS]

    return [
        *(Cell("epf", f"epf-{market}", 24, sets)
          for sets in ((), ("data.features=S",)) for market in MARKETS),
        *over("ETTh1", "ETTh1"),
        Cell("default", "ETTh1", 336),
        *over("ETTh2", "ETTh2"),
        *over("ETTh1-96", "ETTh1"),
        *over("ETTm1-96", "ETTm1"),
        *over("weather-96", "weather"),
        Cell("default", "vic_elec", 336),
        *over("ETTm1", "ETTm1"),
        *over("ETTm2", "ETTm2"),
        *over("weather", "weather"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ETTh1", help="a card, or all")
    parser.add_argument("--horizon", type=int, nargs="+", default=[336])
    parser.add_argument("--attn", nargs="+", default=["prob"])
    parser.add_argument("--seeds", type=int, nargs="+", help="default: 0; with all, 0 1 2")
    parser.add_argument("--config", default="default")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    cells = everything() if arguments.data == "all" else [
        Cell(arguments.config, arguments.data, horizon, tuple(arguments.set), attn)
        for horizon in arguments.horizon
        for attn in arguments.attn
    ]  # fmt: skip
    seeds = arguments.seeds or ([0, 1, 2] if arguments.data == "all" else [0])
    failed = [each for seed in seeds for cell in cells for each in train(cell, seed)]
    if failed:
        sys.exit("\n".join([f"{len(failed)} cells failed:", *failed]))


def train(cell: Cell, seed: int) -> list[str]:
    """Train one cell in a separate process with a separate tracker, unless its file exists.

    Returns the command if it fails.
    """
    if cell.file(seed).exists():
        return []
    command = cell.command(seed)
    print(shlex.join(command), file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
        begun = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=False
        )
        seconds = time.monotonic() - begun
    if done.returncode:
        print(f"exit code {done.returncode}: {shlex.join(command)}", file=sys.stderr)
        return [shlex.join(command)]
    row = kept(json.loads(done.stdout), cell.label, command, seconds)
    RESULTS.mkdir(exist_ok=True)
    cell.file(seed).write_text(json.dumps(row, indent=1) + "\n")
    print(f"  {row['mse']:.4f}, network {row['network']['mse']:.4f}", file=sys.stderr)
    return []


def kept(result: dict[str, Any], label: str, command: list[str], seconds: float) -> dict[str, Any]:
    """The result in the form that is kept: what a document may quote, and what is needed to measure
    it again."""
    test, config, about = result["test"], result["config"], result["about"]
    return {
        "kind": "served",
        "command": shlex.join(command),
        "config": label,
        "data": config["data"]["name"],
        "features": config["data"]["features"],
        "past": config["window"]["past"],
        "horizon": config["window"]["horizon"],
        "model": config["model"]["name"],
        "attn": config["attn"]["name"],
        "effective": about["attn_effective"],
        "seed": config["seed"],
        "config_digest": digest(config),
        "data_digest": about["data_digest"],
        "commit": about["commit"],
        "hardware": machine.hardware(machine.device(config["device"])),
        "command_seconds": round(seconds, 1),
        "train_seconds": round(result["train"]["seconds"], 1),
        "epochs": result["train"]["epochs"],
        "best_epoch": result["train"]["best_epoch"],
        "still_falling": result["train"]["still_falling"],
        "validation_mse": result["validation_mse"],
        "windows": test["windows"],
        **{metric.name: test[metric.name] for metric in whole()},
        "network": test["network"],
        "parts": result["parts"],
        "intervals": covered(test["intervals"]),
        "floors": {
            name: {key: value for key, value in floor.items() if key != "skill"}
            for name, floor in test["floors"].items()
        },
    }


def covered(form: dict[str, Any] | None) -> dict[str, Any]:
    """The metrics of a form's intervals and quantiles; None for a missing interval."""
    found = {name: (form or {}).get(name) for name in map(percent, SHARES)}
    kept = [metric.name for metric in shown(IntervalMetric) if "all" in metric.by]
    return {
        **{name: each and {key: each[key] for key in kept} for name, each in found.items()},
        **({metric.name: form[metric.name] for metric in shown(QuantileMetric)} if form else {}),
    }


def digest(config: dict[str, Any]) -> str:
    """SHA-256 of the resolved configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    main()
