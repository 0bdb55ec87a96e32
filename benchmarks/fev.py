"""Seven tasks of fev-bench, a public benchmark with pretrained models, by its protocol.

    FORECASTER_DATA=... OMP_NUM_THREADS=1 python benchmarks/fev.py          # 20 minutes
    python benchmarks/fev.py --tasks epf-NP

Five electricity markets with two inputs known ahead, 24 hours ahead, and two tasks of two ETT sets,
all columns, 168 hours and 96 quarter-hours ahead. A model is trained once, with the defaults for a
file and `refit`, on the rows before the last 20 windows; then each window, a horizon after the one
before it, is forecast from the rows before it. Errors are divided by the mean seasonal change of
each column in all rows before the window (MASE), pinball losses at nine levels, doubled, by the
same (SQL). The MASE of the seasonal naive forecast beside them agrees with the published one.
"""

import argparse
import json
import os
import sys
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from suite import LEVELS, RESULTS

from forecaster.base import machine
from forecaster.base.installation import commit
from forecaster.datasets.card import load_card
from forecaster.datasets.reader import read_card
from forecaster.estimator import Forecaster

WINDOWS = 20
ROWS = 6_000
"""The newest rows that a model sees before a window, more than any of its parts reads."""
TASKS = {
    f"epf-{market}": ((f"epf-{market}",), 24, 24) for market in ("NP", "PJM", "BE", "FR", "DE")
}
TASKS |= {
    "ETT, hours": (("ETTh1", "ETTh2"), 168, 24),
    "ETT, quarter-hours": (("ETTm1", "ETTm2"), 96, 96),
}
"""The sets, the horizon and the season of each task."""


def table(name: str) -> tuple[pd.DataFrame, list[str], list[str]]:
    """All rows of a set, its targets, and the inputs known ahead."""
    series = read_card(load_card(name)).series
    known = list(series.known_columns) if name.startswith("epf") else []
    targets = ["OT"] if known else list(series.columns)
    wide = pd.DataFrame(series.values, columns=list(series.columns))[targets]
    if known:
        wide[known] = series.known
    wide.insert(0, "time", pd.DatetimeIndex(series.times))
    return wide, targets, known


def losses(truth: Any, point: Any, bands: Any, scale: Any) -> tuple[float, float]:
    """MASE and SQL of forecasts (T, K) and quantiles (T, K, levels), means over columns."""
    off, levels = truth[..., None] - bands, np.array(LEVELS)
    pinball = 2 * np.maximum(levels * off, (levels - 1) * off).mean(axis=(0, 2))
    mase = np.abs(truth - point).mean(axis=0) / scale
    return float(mase.mean()), float((pinball / scale).mean())


def measure(name: str) -> dict[str, Any]:
    """The scores of a task: means over its sets, columns, steps and windows."""
    sets, horizon, season = TASKS[name]
    scores, naive, begun = [], [], time.process_time()
    for source in sets:
        wide, targets, known = table(source)
        first = len(wide) - WINDOWS * horizon
        model = Forecaster(
            "prob", horizon, target=targets, time="time", future_covariates=known or None,
            refit=True, device="cpu",
        ).fit(wide[:first])  # fmt: skip
        for cut in range(first, len(wide), horizon):
            past, ahead = wide[:cut], wide[cut : cut + horizon]
            answer = model.predict(
                past[-ROWS:], levels=LEVELS, future=ahead[["time", *known]] if known else None
            )
            values, truth = past[targets].to_numpy(), ahead[targets].to_numpy()
            scale = np.abs(values[season:] - values[:-season]).mean(axis=0)
            bands = [answer[[f"{c} {level:g}" for c in targets]] for level in LEVELS]
            point = answer[targets].to_numpy()
            scores.append(losses(truth, point, np.stack(bands, axis=-1), scale))
            last = np.tile(values[-season:], (-(-horizon // season), 1))[:horizon]
            naive.append((np.abs(truth - last).mean(axis=0) / scale).mean())
    mase, sql = np.mean(scores, axis=0).tolist()
    return {
        "kind": "fev", "task": name, "mase": mase, "sql": sql, "naive_mase": float(np.mean(naive)),
        "command": f"python benchmarks/fev.py --tasks {name!r}", "windows": WINDOWS,
        "processor_s": round(time.process_time() - begun, 1),
        "threads": os.environ.get("OMP_NUM_THREADS"), "hardware": machine.hardware("cpu"),
        "commit": commit(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    warnings.filterwarnings("ignore")
    for name in parser.parse_args().tasks:
        file = RESULTS / f"fev-{name}.json".replace(", ", "-")
        if not file.exists():
            result = measure(name)
            file.write_text(json.dumps(result, indent=1) + "\n")
            print(f"{name}: MASE {result['mase']:.3f}, SQL {result['sql']:.3f}", file=sys.stderr)


if __name__ == "__main__":
    main()
