"""Run training cells exactly as a user would and keep one small JSON for each.

    FORECASTER_DATA=... python benchmarks/training.py --data ETTh1 --attn prob full --seeds 0 1 2

A cell that has its file already is not run again; delete the file to measure anew. The tables in
README.md and docs/results.md are rendered from these files alone (benchmarks/render.py).
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
from pathlib import Path
from typing import Any

from forecaster import machine
from forecaster.evaluate import SHARES, percent
from forecaster.evaluate.figures import IntervalMetric, shown, whole

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ETTh1")
    parser.add_argument("--horizon", type=int, nargs="+", default=[336])
    parser.add_argument("--attn", nargs="+", default=["prob"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--config", default="default")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    for horizon in arguments.horizon:
        for attn in arguments.attn:
            for seed in arguments.seeds:
                cell(arguments.config, arguments.set, arguments.data, horizon, attn, seed)


def cell(config: str, sets: list[str], data: str, horizon: int, attn: str, seed: int) -> None:
    """Train one cell in a process of its own, with a tracker of its own."""
    label = ", ".join([config, *sets])
    slug = re.sub(r"[^A-Za-z0-9.=]+", "-", label)
    file = RESULTS / f"train-{slug}-{data}-{horizon}-{attn}-s{seed}.json"
    if file.exists():
        return
    command = [
        *("forecaster", "train", "--config", config, "--data", data, "--attn", attn),
        *("--horizon", str(horizon), "--seed", str(seed), "--no-register", "--json"),
        *(part for each in sets for part in ("--set", each)),
    ]
    print(shlex.join(command), file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
        begun = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True
        )
        seconds = time.monotonic() - begun
    RESULTS.mkdir(exist_ok=True)
    file.write_text(
        json.dumps(kept(json.loads(done.stdout), label, command, seconds), indent=1) + "\n"
    )


def kept(result: dict[str, Any], label: str, command: list[str], seconds: float) -> dict[str, Any]:
    """What a document may quote, and what is needed to measure it again."""
    test, config, about = result["test"], result["config"], result["about"]
    return {
        "kind": "training",
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
        "validation_mse": result["validation_mse"],
        "windows": test["windows"],
        **{metric.name: test[metric.name] for metric in whole()},
        "intervals": covered(test["intervals"]),
        "online": covered((test["intervals"] or {}).get("online")),
        "floors": {
            name: {key: value for key, value in floor.items() if key != "skill"}
            for name, floor in test["floors"].items()
        },
    }


def covered(form: dict[str, Any] | None) -> dict[str, dict[str, float] | None]:
    """The metrics of a form's intervals; None where it has none."""
    found = {name: (form or {}).get(name) for name in map(percent, SHARES)}
    kept = [metric.name for metric in shown(IntervalMetric) if "all" in metric.by]
    return {name: each and {key: each[key] for key in kept} for name, each in found.items()}


def digest(config: dict[str, Any]) -> str:
    """SHA-256 of the resolved configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    main()
