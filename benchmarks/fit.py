"""The overhead of `forecaster.train.fit` over a bare training loop.

    python -m benchmarks.fit                           one and two threads
    python -m benchmarks.fit --threads 1 --rounds 9 --steps 40 --json

The same network (the default recipe on ETTh1, T = 336), the same windows in the same order, loss,
clipping and optimiser: once by `fit`, once in a loop of a dozen lines, both in a process that keeps
the memory that it frees. They take turns in one process; the results are medians, and the median of
the ratios of the turns. With one thread the time is processor time, so that other work on the
machine matters little; with more it is wall time. A turn is --steps optimiser steps, without
validation, and includes what `fit` does once, before and after. The results are kept in
benchmarks/results/, from which benchmarks/render.py makes the table.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from forecaster.base import installation, machine
from forecaster.base.machine import keeping_memory
from forecaster.config.run_config import TrainConfig, load
from forecaster.datasets.windows import Windows
from forecaster.model import ForecastModel
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.train.fit import fit
from forecaster.train.loaders import EpochOrder
from forecaster.train.module import ForecastModule

RESULTS = Path(__file__).parent / "results"


def bare(model: ForecastModel, windows: Windows, config: TrainConfig) -> None:
    """Train for one epoch."""
    torch.manual_seed(0)
    model.prepare(windows.rows())
    module = ForecastModule(model.train(), config)
    (optimiser,), _ = module.configure_optimizers()
    order = EpochOrder(len(windows), config.batch, config.stride, 0, config.windows)
    total = torch.zeros(())
    for index in order:
        loss = module.loss(windows.batch(index))
        optimiser.zero_grad()
        loss.backward()
        if config.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimiser.step()
        total += loss.detach()
    assert torch.isfinite(total), "the bare loop diverged"


def measure(threads: int, rounds: int, steps: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    loaded = load(None, ["train.epochs=1"], {"data": "ETTh1", "horizon": 336})
    splits = make_splits(make_plan(*find_data(loaded, lambda said: None), lambda said: None))
    windows, own = splits.training("cpu"), splits.plan.config.train
    config = own.model_copy(update={"updates": None, "windows": steps * own.batch})
    ways: dict[str, Callable[[ForecastModel], object]] = {
        "fit": lambda model: fit(model, windows, None, config, device="cpu", seed=0),
        "bare": lambda model: bare(model, windows, config),
    }
    turns = []
    for _ in range(rounds + 1):
        turn = {}
        for name, train in ways.items():
            model = splits.build_model()
            begun = clock()
            with keeping_memory():
                train(model)
            turn[name] = clock() - begun
        turns.append(turn)
    turns = turns[1:]  # the first one warms up
    order = EpochOrder(len(windows), config.batch, config.stride, 0, config.windows)
    return {
        "threads": threads,
        "steps": len(order),
        "batch": config.batch,
        **{f"{name}_s": round(median(turn[name] for turn in turns), 3) for name in ways},
        "ratio": round(median(turn["fit"] / turn["bare"] for turn in turns), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print the document and keep nothing")
    arguments = parser.parse_args()
    found = [measure(each, arguments.rounds, arguments.steps) for each in arguments.threads]
    document = {
        "kind": "fit",
        "command": shlex.join(["python", "-m", "benchmarks.fit", *sys.argv[1:]]),
        "hardware": f"{machine.processor()}, torch {torch.__version__}",
        "commit": installation.commit(),
        "must": 1.05,
        "aim": 1.03,
        "by_threads": found,
    }
    if arguments.json:
        print(json.dumps(document, indent=1))
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "fit.json").write_text(json.dumps(document, indent=1) + "\n")
    for row in found:
        print(f"{row['threads']} threads, {row['steps']} steps: fit {row['fit_s']:.2f} s, bare "
              f"{row['bare_s']:.2f} s, ratio {row['ratio']:.3f} (must 1.05, aim 1.03)")  # fmt: skip


if __name__ == "__main__":
    main()
