"""What size costs: large data sets, memory against its estimate, and windows per second.

    python -m benchmarks.memory                        memory and windows per second of each recipe
    python -m benchmarks.memory --large electricity    one epoch and its evaluation; or traffic
    python -m benchmarks.memory --large traffic --code FOLDER     with the code of another checkout

Recipes: a fresh process makes six optimiser steps and a check. The estimate is made before the
first step, and the peak is what the kernel has counted for the process after the last. Large sets
are generated with the size of the shipped cards: hourly data with cycles of a day and a week and
noise, from a fixed seed. Their run is the command of a user with the shipped configuration, from
the file to the bundle; it is killed beyond --limit GiB. It takes tens of minutes on one thread. The
results are kept in benchmarks/results/, from which benchmarks/render.py makes the tables.
"""

import argparse
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

import numpy as np
import pyarrow as pa
import pyarrow.csv

from forecaster.base import installation, machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LARGE = {"electricity": (26_304, 321), "traffic": (17_544, 862)}
"""Rows and columns of the generated sets."""
RECIPES: dict[str, list[str]] = {
    "ETTh1": ["ETTh1", "window.horizon=336"],
    "ETTh1, batch 512": ["ETTh1", "window.horizon=336", "train.batch=512"],
    "ETTh1, full": ["ETTh1", "window.horizon=336", "attn.name=full"],
    "informer": ["informer"],
    "informer, full": ["informer", "attn.name=full"],
    "informer, batch 32 in 4 parts": ["informer", "train.batch=32", "train.accumulate=4"],
    "informer, checkpointing": ["informer", "train.checkpointing=true"],
    "look-back 2016": ["default", "window.past=2016", "window.horizon=96"],
    "electricity": ["electricity"],
}
MEASURE = """
import json, sys
from forecaster.base import machine
from forecaster.config import run_config
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.train.memory import ensure_it_fits
from forecaster.train.fit import fit
quiet = lambda sentence: None
loaded = run_config.load(sys.argv[1], sys.argv[2:])
splits = make_splits(make_plan(*find_data(loaded, quiet), quiet))
own, device = splits.plan.config.train, machine.device(splits.plan.config.device)
train, stopping, model = splits.training(device), splits.stopping(device), splits.build_model()
expected = ensure_it_fits(model, train, own, device, quiet)
few = {"epochs": 1, "updates": None, "checks": 1, "stride": 1, "windows": 6 * own.batch}
few |= {"validation_stride": 1, "validation_windows": 64}
fitted = fit(model, train, stopping, own.model_copy(update=few), device=device, seed=0)
print(json.dumps({
    "expected_mib": expected / 2**20, "peak_mib": machine.peak_mib(device), "batch": own.batch,
    "windows_per_second": fitted.windows_per_second,
    "hardware": machine.hardware(device), "columns": len(splits.schema.needs),
    "past": splits.plan.config.window.past, "horizon": splits.plan.config.window.horizon,
    "attn": splits.plan.config.attn.name,
}))
"""
RUN = "from forecaster.cli import main; main()"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--large", choices=LARGE)
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout that runs")
    parser.add_argument("--label", default="now", help="the name of that checkout in the results")
    parser.add_argument("--limit", type=float, default=12.0, help="GiB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OMP_NUM_THREADS"] = str(asked.threads)
        if asked.large:
            file = generate(asked.large, Path(folder))
            name = f"large-{asked.large}-{asked.label}"
            keep(name, large(asked.large, file, asked) | {"threads": asked.threads})
        else:
            rows = [recipe(name, Path(folder)) for name in RECIPES if name in asked.only]
            document = {
                "kind": "memory",
                "threads": asked.threads,
                "hardware": machine.hardware("cpu", asked.threads),
                "commit": installation.commit(),
                "rows": rows,
            }
            keep(f"memory-{asked.threads}-threads", document)


def recipe(name: str, folder: Path) -> dict[str, Any]:
    """Memory and windows per second of one recipe, measured in a separate process."""
    arguments = list(RECIPES[name])
    if name in LARGE:
        file = folder / f"{name}.csv"
        arguments.append(f"data.path={file if file.exists() else generate(name, folder)}")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], stdout=subprocess.PIPE, check=True, text=True
    )
    row = {"recipe": name, **json.loads(done.stdout)}
    print(
        f"{name}: expected {row['expected_mib']:.0f} MiB, peak {row['peak_mib']:.0f} "
        f"({row['expected_mib'] / row['peak_mib']:.2f}), {row['windows_per_second']:.1f} windows/s"
    )
    return row


def large(name: str, file: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """One epoch of a large set and the evaluation, as a user runs it."""
    sets = [f"data.path={file}", *asked.set]
    arguments = ["train", "--config", name, "--epochs", "1", "--no-register", "--json"]
    found = command([*arguments, *(part for each in sets for part in ("--set", each))], asked)
    result = found.pop("result")
    rows, columns = LARGE[name]
    return {
        "kind": "large",
        "label": asked.label,
        "data": name,
        "rows": rows,
        "columns": columns,
        "sets": asked.set,
        "hardware": machine.hardware("cpu", asked.threads),
        "commit": result["about"]["commit"],
        "train_seconds": result["train"]["seconds"],
        "windows_per_second": result["train"]["windows_per_second"],
        "test_windows": result["test"]["windows"],
        **found,
    }


def generate(name: str, folder: Path) -> Path:
    """A CSV file with the columns of a card: hours, cycles of a day and a week, and noise."""
    rows, columns = LARGE[name]
    random = np.random.default_rng(0)
    hours = np.arange(rows)[:, None]
    day, week = (
        np.cos(2 * np.pi * (hours / season - random.random(columns))) for season in (24, 168)
    )
    noise = random.standard_normal((rows, columns))
    for row in range(1, rows):
        noise[row] += 0.7 * noise[row - 1]
    values = 1 + 0.5 * day + 0.2 * week + 0.1 * noise
    size = random.uniform(100, 3_000, columns) if name == "electricity" else 0.05
    values = np.maximum(values * size, 0).round(0 if name == "electricity" else 4)
    times = np.datetime64("2016-07-01T02:00:00", "s") + np.arange(rows) * np.timedelta64(1, "h")
    names = [*map(str, range(columns - 1)), "OT"]
    table = pa.table({"date": times} | dict(zip(names, values.T, strict=True)))
    file = folder / f"{name}.csv"
    pyarrow.csv.write_csv(table, file)
    return file


def command(arguments: list[str], asked: argparse.Namespace) -> dict[str, Any]:
    """Run one command; returns its result, seconds, processor seconds, peak in MiB, and its output
    lines with their times.

    Exits if the command fails or uses more memory than --limit.
    """
    code = asked.code.resolve()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{code}:{code / 'service'}",
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        }
        begun = time.monotonic()
        said: list[tuple[float, float, str]] = []
        with (
            (place / "result.json").open("w") as output,
            (place / "said").open("w") as errors,
            (place / "said").open() as lately,
        ):
            child = subprocess.Popen(
                [sys.executable, "-c", RUN, *arguments],
                cwd=folder, env=environment, stdout=output, stderr=errors,
            )  # fmt: skip
            pid, left, cpu = 0, "", 0.0
            while not pid:
                time.sleep(0.1)
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                cpu = cpu if pid else cpu_seconds(child.pid)
                *lines, left = (left + lately.read()).split("\n")
                for line in lines:
                    said.append((round(time.monotonic() - begun, 1), cpu, line))
                    print(f"{said[-1][0]:8.1f} s {cpu:8.1f} CPU-s  {line}", file=sys.stderr)
                if not pid and resident(child.pid) > asked.limit * 2**30:
                    child.kill()
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"exit code {child.returncode}: forecaster {shlex.join(arguments)}")
        result = json.loads((place / "result.json").read_text())
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mib": usage.ru_maxrss // 1024,
        "said": said,
        "result": result,
    }


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def keep(name: str, document: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    document = {
        "command": shlex.join(["python", "-m", "benchmarks.memory", *sys.argv[1:]])
    } | document
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
