"""How quickly the commands start: wall time and processor time of fresh processes.

    python -m benchmarks.start                  every case, five rounds, and the cost of imports
    python -m benchmarks.start --rounds 3 --only predict,names --json

- first line: from the start of `forecaster train` to its first line on the terminal;
- first step: from the start of `forecaster train` to the end of its first optimiser step, on ETTh1;
- predict: one forecast from an untrained bundle of the default recipe, ETTh1, T = 336 (or from
  --model), with the data of the card;
- unknown ...: a wrong name of an attention, a data set, a value, an option of an attention;
- names, help: `forecaster attentions --names`, `forecaster --help`.

The cases take turns; the results are medians. A first round fills the caches and creates the
tracker's database, and does not count. Processor time is that of the process and its children, as
the system counts it. Imports are measured with `python -X importtime`, which makes them about 50 %
slower, and summed by package. The results are kept in benchmarks/results/, from which
benchmarks/render.py makes the table.
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
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"
COMMAND = ["-m", "forecaster"]
TRAIN = ["train", "--data", "ETTh1", "--attn", "prob", "--horizon", "336"]
FIRST_STEP = """
import os, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
register_optimizer_step_post_hook(lambda *_: os._exit(0))
from forecaster.cli import main
main()
"""
BUNDLE = """
import sys
from pathlib import Path
from forecaster.config import run_config
from forecaster.run import train
from forecaster.forecast.bundle import Bundle, Share
from forecaster.evaluate.judge import validate
from forecaster.forecast.predictor import keep
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.record import Record
from forecaster.forecast.unusual import Ranges
loaded = run_config.load(None, [], {"data": "ETTh1", "horizon": 336})
splits = make_splits(make_plan(*find_data(loaded, print), print))
model = splits.build_model()
model.prepare(splits.training("cpu").rows())
tried, served, weighed = train.make_blend(splits, model, "cpu", print)
_, intervals, words, _ = validate(splits, served, "cpu")
ranges = Ranges.fit(splits.training("cpu")).to_dict()
about = {"name": splits.plan.name, "intervals": words, "ranges": ranges, "run_id": "0" * 32}
weights = {} if served.network is None else dict(served.network.state_dict())
parts = Share.of(served)
found = Record(parts=weighed)
bundle = Bundle(splits.plan.config, splits.schema, weights, found, about, intervals, parts)
keep(bundle, Path(sys.argv[1]))
"""
IMPORTS = (
    "forecaster.cli",
    "forecaster.train.fit",
    "forecaster.forecast.predictor",
    "forecaster.tracking.run",
)


@dataclass(frozen=True)
class Case:
    """Arguments of python, and the limit (`must`) and target (`aim`) in seconds of `of`."""

    arguments: list[str]
    must: float
    aim: float
    of: str = "wall_s"
    status: int = 0
    first_line: bool = False


def cases(model: Path) -> dict[str, Case]:
    def wrong(*arguments: str) -> Case:
        return Case([*COMMAND, "train", *arguments], 1.0, 0.5, status=2)

    return {
        "first line": Case([*COMMAND, *TRAIN], 1.0, 0.5, first_line=True),
        "first step": Case(["-c", FIRST_STEP, *TRAIN], 10.0, 8.0, "cpu_s"),
        "predict": Case([*COMMAND, "predict", "--model", str(model)], 3.0, 2.0, "cpu_s"),
        "unknown attention": wrong("--attn", "probb"),
        "unknown data set": wrong("--data", "ETTh9"),
        "unknown value": wrong("--set", "train.epoch=3"),
        "unknown option": wrong("--set", "attn.factr=7"),
        "names": Case([*COMMAND, "attentions", "--names"], 0.6, 0.3),
        "help": Case([*COMMAND, "--help"], 0.6, 0.3),
    }


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Wall and processor time of one process. Raises RuntimeError if its status is another."""
    with tempfile.TemporaryFile() as heard:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *case.arguments], cwd=folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if case.first_line else heard,
        )  # fmt: skip
        if case.first_line:
            assert process.stderr is not None
            said = process.stderr.readline()
            process.kill()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if case.first_line and said:
            process.stderr.close()  # type: ignore[union-attr]
        elif process.returncode != case.status:
            heard.seek(0)
            command = shlex.join(case.arguments[-6:])
            raise RuntimeError(f"{command}: status {process.returncode}\n{heard.read().decode()}")
    return {"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime}


def imports(module: str) -> dict[str, Any]:
    """Seconds that importing a module takes: in all, and by package from a hundredth upwards."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    own: Counter[str] = Counter()
    for micros, name in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", told, re.M):
        own[name.split(".")[0]] += int(micros)
    packages = {name: round(n / 1e6, 3) for name, n in own.most_common() if n > 1e4}
    return {"all_s": round(own.total() / 1e6, 3), "packages": packages}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="cases, separated by commas")
    parser.add_argument(
        "--model", type=Path, help="the folder of a bundle, to use instead of an untrained one"
    )
    parser.add_argument("--json", action="store_true", help="print the document and keep nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = arguments.model and arguments.model.resolve()
        chosen = cases(model or folder / "bundle")
        if arguments.only:
            chosen = {each: chosen[each] for each in arguments.only.split(",")}
        if model is None and "predict" in chosen:
            making = [sys.executable, "-c", BUNDLE, str(folder / "bundle")]
            subprocess.run(making, check=True, capture_output=True, cwd=folder)
        rounds = [
            {each: measure(case, folder) for each, case in chosen.items()}
            for _ in range(arguments.rounds + 1)
        ][1:]
    from forecaster.base import installation, machine

    found = {
        each: {
            **{key: round(median(r[each][key] for r in rounds), 3) for key in ("wall_s", "cpu_s")},
            "of": case.of, "must": case.must, "aim": case.aim,
        }
        for each, case in chosen.items()
    }  # fmt: skip
    document = {
        "kind": "start",
        "command": shlex.join(["python", "-m", "benchmarks.start", *sys.argv[1:]]),
        "hardware": machine.hardware(),
        "commit": installation.commit(),
        "rounds": arguments.rounds,
        "cases": found,
        "imports": {} if arguments.only else {module: imports(module) for module in IMPORTS},
    }
    if arguments.json:
        print(json.dumps(document, indent=1))
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "start.json").write_text(json.dumps(document, indent=1) + "\n")
    for each, row in found.items():
        print(f"{each:<18} wall {row['wall_s']:6.2f} s  cpu {row['cpu_s']:6.2f} s  "
              f"must {row['must']:g}, aim {row['aim']:g} ({row['of'][:-2]})")  # fmt: skip


if __name__ == "__main__":
    main()
