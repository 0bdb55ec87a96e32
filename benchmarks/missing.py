"""Train on a data set with a share of its values removed, and on the complete data set.

    FORECASTER_DATA=... python benchmarks/missing.py --data ETTm1 --config ETTm1 --horizon 96

Both are trained as a user would train on their own file, with parts of 70, 10 and 20 %, and with
the same configuration. Cells are removed independently, with a fixed seed; the test error of the
file with missing values is over the values that are left.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from training import RESULTS

from forecaster.base.installation import commit
from forecaster.base.machine import hardware
from forecaster.datasets import load_card, locate
from forecaster.evaluate.figures import whole


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ETTm1")
    parser.add_argument("--config", default="ETTm1")
    parser.add_argument("--horizon", type=int, default=96)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    file = (
        RESULTS / f"missing-{arguments.data}-{arguments.horizon}-{arguments.share:g}"
        f"-s{arguments.seed}.json"
    )
    if not file.exists():
        RESULTS.mkdir(exist_ok=True)
        file.write_text(json.dumps(measure(**vars(arguments)), indent=1) + "\n")


def measure(data: str, config: str, horizon: int, share: float, seed: int) -> dict[str, Any]:
    """Run both trainings, in separate processes."""
    card = load_card(data)
    table = pd.read_csv(locate(card))
    values = table[list(card.columns)].to_numpy(copy=True)
    removed = np.random.default_rng(seed).random(values.shape) < share
    values[removed] = np.nan
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in (("complete", table), ("holed", table.copy())):
            if name == "holed":
                frame[list(card.columns)] = values
            frame.to_csv(Path(folder) / f"{name}.csv", index=False)
            command = [
                *("forecaster", "train", "--config", config, "--data", f"{name}.csv"),
                *("--horizon", str(horizon), "--seed", str(seed), "--no-register", "--json"),
            ]
            print(shlex.join(command), file=sys.stderr)
            environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True
            )
            found[name] = json.loads(done.stdout)
    config_used = found["holed"]["config"]
    metrics = [metric.name for metric in whole("tables")]
    return {
        "kind": "missing",
        "command": f"python benchmarks/missing.py --data {data} --config {config} "
        f"--horizon {horizon} --share {share:g} --seed {seed}",
        "data": data,
        "config": config,
        "horizon": horizon,
        "past": config_used["window"]["past"],
        "attn": config_used["attn"]["name"],
        "seed": seed,
        "removed": float(removed.mean()),
        **{
            name: {key: result["test"][key] for key in ("windows", *metrics)}
            for name, result in found.items()
        },
        "commit": commit(),
        "hardware": hardware(),
    }


if __name__ == "__main__":
    main()
