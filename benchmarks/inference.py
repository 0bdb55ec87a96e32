"""One forecast of the default recipe against ONNX Runtime with the same weights and threads.

    python -m benchmarks.inference                     batches of 1, 8 and 32, one and two threads
    python -m benchmarks.inference --threads 1 --batch 1 --rounds 50 --json
    python -m benchmarks.inference --compiled          torch.compile, too (needs a C++ compiler)

Models, on ETTh1 (M), T = 336: the network with `prob` and with `full` attention, untrained, because
the values do not matter; and the `blend` that is served, its closed forms fitted to ETTh1
($FORECASTER_DATA), which is left out if that is unavailable. All take scaled windows without gaps,
as in the service; all take turns in one process. The results are medians: with one thread of
processor time, so that other work on the machine matters little, with more of wall time.

The results are kept in benchmarks/results/.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.step import RESULTS
from forecaster.base.errors import UnavailableError
from forecaster.config.run_config import load
from forecaster.forecast.export.graph import quiet
from forecaster.model import Task
from forecaster.parts import Blend, Network, fit_forms, weigh_forms
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.study.bench import Setup, about

COLUMNS, CALENDAR, SEASON, PAST, HORIZON = 7, 4, 24, 504, 336  # of ETTh1 and the default recipe
MODELS = ("prob", "full", "blend")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the documents")
    parser.add_argument("--no-keep", action="store_true", help="write no results")
    arguments = parser.parse_args()
    documents = []
    models = {}
    for name in arguments.model:
        try:
            models[name] = build(name)
        except UnavailableError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    files = {name: onnx_of(model) for name, model in models.items()}
    for threads in arguments.threads:
        rows = [
            {"model": name, "batch": batch}
            | measure(model, files[name], batch, threads, arguments.rounds, arguments.compiled)
            for name, model in models.items()
            for batch in arguments.batch
        ]
        command = shlex.join(["python", "-m", "benchmarks.inference", *sys.argv[1:]])
        head = {"kind": "inference", "command": command, "rounds": arguments.rounds}
        head |= {"threads": threads, "clock": "processor" if threads == 1 else "wall"}
        documents.append({**head, **about(Setup(threads=threads)), "rows": rows})
        if not arguments.no_keep:
            file = RESULTS / f"inference-{threads}-threads.json"
            file.write_text(json.dumps(documents[-1], indent=1) + "\n")
    if arguments.json:
        print(json.dumps(documents, indent=1))
        return
    for document in documents:
        print(document["hardware"])
        for row in document["rows"]:
            print("  " + ", ".join(f"{key} {value}" for key, value in row.items()))


def build(name: str) -> Blend:
    """A model, ready to forecast. Raises UnavailableError if its data are unavailable."""
    torch.manual_seed(0)
    config = load("default", environment={}, flags={} if name == "blend" else {"attn": name}).config
    if name != "blend":
        task = Task(COLUMNS, tuple(range(COLUMNS)), PAST, 252, HORIZON, CALENDAR, SEASON)
        return Blend.alone(Network(config.build_model(task).eval())).eval()
    splits = make_splits(
        make_plan(*find_data(load("default", flags={"data": "ETTh1"}), lambda _: None))
    )
    network = Network(splits.build_model().eval())
    return Blend.weighed(*weigh_forms(fold := splits.fold("cpu"), fit_forms(fold), network)).eval()


def windows(task: Task, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    past = torch.randn(batch, task.past, task.columns, generator=draw)
    lengths = (task.past, task.horizon)
    before, ahead = (torch.rand(batch, n, task.calendar, generator=draw) - 0.5 for n in lengths)
    return past, before, ahead


def onnx_of(model: nn.Module) -> bytes:
    """The forward pass, as an ONNX file."""
    inputs = windows(model.task, 3)
    dims = tuple({0: torch.export.Dim("batch")} for _ in inputs)
    with torch.no_grad(), quiet():
        exported = torch.export.export(model, inputs, dynamic_shapes=(*dims,))
        program = torch.onnx.export(exported, dynamo=True, verbose=False)
    assert program is not None
    written: bytes = program.model_proto.SerializeToString()
    return written


def measure(
    model: Blend, file: bytes, batch: int, threads: int, rounds: int, compiled: bool
) -> dict[str, Any]:
    """The milliseconds of each runtime, and the ratio of ours to ONNX Runtime's."""
    import onnxruntime

    torch.set_num_threads(threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    inputs = windows(model.task, batch)
    # inputs that a model does not use are not inputs of its ONNX file
    given = zip(("past", "past_known", "future_known"), inputs, strict=True)
    wanted = {each.name for each in session.get_inputs()}
    feed = {name: tensor.numpy() for name, tensor in given if name in wanted}
    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: model(*inputs),
        "onnx": lambda: session.run(None, feed),
    }
    if compiled:
        fused = torch.compile(model)
        calls["compiled"] = lambda: fused(*inputs)
    clock = time.process_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {who: [] for who in calls}
    with torch.inference_mode():
        apart = float((calls["ours"]() - torch.from_numpy(calls["onnx"]()[0])).abs().max())
        for _ in range(rounds + 10):
            for who, call in calls.items():
                begun = clock()
                call()
                times[who].append(clock() - begun)
    found = {who: 1e3 * median(each[10:]) for who, each in times.items()}
    return {
        **{f"{who}_ms": round(each, 4) for who, each in found.items()},
        "by_onnx": round(found["ours"] / found["onnx"], 3),
        "apart": apart,
    }


if __name__ == "__main__":
    main()
