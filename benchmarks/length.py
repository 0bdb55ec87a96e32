"""Time and memory of one training step against the length of the past, and how both grow.

    python -m benchmarks.length                      every linear type, P = 2048 to 16384
    python -m benchmarks.length --types prob full --lengths 2048 4096 --threads 1 --json

The network is the Informer of informer.yaml at width 64: its tokens are time steps, so that the
attention works on P tokens. (`tokens` joins steps into a few tokens and rarely reaches such
lengths.) Batch 4, T = 720; the decoder starts with 720 known steps. The attention type is used in
encoder and decoder; the cross-attention is full, of 1440 queries to P / 2 keys. A step is forward,
loss and backward; the batch is random, because the values do not matter.

Each cell runs in a separate process. Its memory is the rise of the resident peak from the end of
the imports to the end of the first step (on Linux; on a GPU the peak of torch's allocator). Its
time is the median of the later steps: processor time of one thread, else wall time. A type whose
step exceeds the limit is not measured at longer lengths. On a GPU the step runs in bfloat16.

The results are kept in benchmarks/results/, from which benchmarks/render.py makes the table and
benchmarks/pictures.py the picture.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import ATTENTIONS
from forecaster.base.machine import device, memory_rise
from forecaster.base.progress import Bar
from forecaster.base.workers import FailedError, Worker
from forecaster.config.run_config import load
from forecaster.model import ForecastModel, Task
from forecaster.study.bench import Setup, about

RESULTS = Path(__file__).parent / "results"
LENGTHS = (2048, 4096, 8192, 16384)
WIDTH, HEADS, INNER, BATCH, HORIZON = 64, 4, 256, 4, 720
COLUMNS, CALENDAR, SEASON = 7, 4, 24  # of ETTh1
REFERENCES = ["full", "none"]
LINEAR = [name for name, kind in ATTENTIONS.items()
          if "L·S" not in kind.about.cost and name not in REFERENCES]  # fmt: skip
SMALL = 64  # P of a first small step that is not measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    types = [*LINEAR, *REFERENCES]
    parser.add_argument("--types", nargs="+", choices=ATTENTIONS, default=types, metavar="TYPE")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="for the steps of a cell")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one step")
    parser.add_argument("--json", action="store_true", help="print the document")
    parser.add_argument("--no-keep", action="store_true", help="write no results")
    arguments = parser.parse_args()
    document = measure(arguments)
    where = "cuda" if document["device"] == "cuda" else f"{document['threads']}-threads"
    if not arguments.no_keep:
        (RESULTS / f"length-{where}.json").write_text(json.dumps(document, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(document, indent=1))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure every type at every length; the document that is kept."""
    where, lengths = device(arguments.device), sorted(arguments.lengths)
    rows: list[dict[str, Any]] = []
    with Bar("measuring", len(arguments.types) * len(lengths)) as bar:
        for name in arguments.types:
            skipped = None
            for past in lengths:
                row: dict[str, Any] = {"attn": name, "past": past}
                bar.advance(f"{name}, P = {past}", 0)
                if skipped is None:
                    try:
                        row |= cell(name, past, where, arguments)
                    except FailedError as failure:
                        skipped = f"at P = {past} it {str(failure).splitlines()[0]}"
                if skipped:
                    row["skipped"] = skipped
                rows.append(row)
                bar.advance(f"{name}, P = {past}", 1)
                print(row, file=sys.stderr)
    return {
        "kind": "length",
        "command": shlex.join(["python", "-m", "benchmarks.length", *sys.argv[1:]]),
        "device": where,
        "threads": arguments.threads,
        "width": WIDTH,
        "heads": HEADS,
        "batch": BATCH,
        "horizon": HORIZON,
        "clock": "processor" if arguments.threads == 1 and where == "cpu" else "wall",
        **about(Setup(threads=arguments.threads, device=where)),
        "rows": rows,
    }


def cell(name: str, past: int, where: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """`seconds` of a step, number of `steps` measured, and the rise of memory in `mib`. Raises
    FailedError."""
    with Worker(steps).ask(name, past, arguments.threads, where, arguments.seconds) as worker:
        worker.receive(300)
        peak = worker.receive(arguments.limit)
        times = worker.receive(arguments.limit + 2 * arguments.seconds)
    found = {"seconds": round(median(times), 4), "steps": len(times)}
    return found if peak is None else found | {"mib": round(peak / 2**20, 1)}


def steps(name: str, past: int, threads: int, where: str, seconds: float) -> Any:
    """Yield None when all is ready, the peak in bytes of the first step, then the seconds of each
    later step."""
    torch.set_num_threads(threads)
    step(build(name, SMALL, where), SMALL, where)
    yield None

    def first() -> ForecastModel:
        model = build(name, past, where)
        step(model, past, where)
        return model

    model, peak = memory_rise(first, where)
    yield peak
    clock = time.process_time if threads == 1 and where == "cpu" else time.perf_counter
    times: list[float] = []
    while not times or sum(times) < seconds:
        begun = clock()
        step(model, past, where)
        times.append(clock() - begun)
    yield times


def build(name: str, past: int, where: str) -> ForecastModel:
    """The network for a past of `past` steps, in training mode."""
    start = min(HORIZON, past)
    sets = [
        f"model.width={WIDTH}", f"model.heads={HEADS}", f"model.feed_forward={INNER}",
        f"window.past={past}", f"window.start={start}", f"window.horizon={HORIZON}",
        f"attn={{name: {name}}}",
    ]  # fmt: skip
    config = load("informer", sets, environment={}).config
    targets = tuple(range(COLUMNS))
    torch.manual_seed(0)
    task = Task(COLUMNS, targets, past, start, HORIZON, CALENDAR, SEASON)
    return config.build_model(task).train().to(where)


def step(model: ForecastModel, past: int, where: str) -> None:
    """Forward, loss and backward on random windows."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int, columns: int) -> Tensor:
        return torch.randn(BATCH, count, columns, generator=generator).to(where)

    model.zero_grad()
    with torch.autocast(where, torch.bfloat16, enabled=where == "cuda"):
        forecast = model(draw(past, COLUMNS), draw(past, CALENDAR), draw(HORIZON, CALENDAR))
        F.mse_loss(forecast.float(), draw(HORIZON, COLUMNS)).backward()
    if where == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
