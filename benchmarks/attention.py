"""Time and memory of the attention functions against torch's fused kernel (SDPA), for the docs.

    python benchmarks/attention.py --threads 2            the shapes below, causal and not
    python benchmarks/attention.py --threads 2 --curves   lengths 96 to 16384, causal and not

The same measurement as `forecaster bench attention`; forecaster/study/bench/cells.py describes it.
The results are kept in benchmarks/results/, from which benchmarks/render.py makes the tables and
benchmarks/pictures.py the curves.
"""

import argparse
import json
import os
import shlex
import sys
from dataclasses import replace
from typing import Any

import torch
from training import RESULTS

from forecaster.base import machine
from forecaster.study import bench
from forecaster.study.bench import Setup

SHAPES = {
    "L=8192": Setup(8192),
    "L=2048": Setup(2048),
    "B=32 L=336": Setup(336, batch=32),
    "B=32 L=96": Setup(96, batch=32),
    "B=448 L=84 H=2 E=8": Setup(84, batch=448, heads=2, width=8),  # the default recipe on ETTh1
    "L=2048 H=1 E=512": Setup(2048, heads=1, width=512),
    "L=16384": Setup(16384),
}
ONE_HEAD = ["single", "aft-full"]  # their one head is as wide as the model: compare at H = 1
MEMORY_ALONE = ["L=16384"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--attn", default="all", help="names, separated by commas")
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one call")
    parser.add_argument("--label", help="a run of its own, e.g. curves-1-threads.LABEL.json")
    arguments = parser.parse_args()
    names = bench.choose(arguments.attn)
    device = machine.device(arguments.device)
    dtype = "bfloat16" if device == "cuda" else "float32"
    on = {"threads": arguments.threads, "device": device, "dtype": dtype}
    kinds = [Setup(causal=each, **on, limit=arguments.limit) for each in (False, True)]
    where = "cuda" if device == "cuda" else f"{arguments.threads}-threads"
    label = f".{arguments.label}" if arguments.label else ""
    if arguments.curves:
        lengths = bench.read_lengths("96:16384")
        for how in kinds:
            document = bench.curves(names, lengths, how)
            keep(f"curves-{where}{'-causal' if how.causal else ''}{label}", document)
    else:
        document = {"kind": "attention", **bench.about(kinds[0])}
        rows = [row for shape in arguments.shape for how in kinds for row in at(shape, names, how)]
        keep(f"attention-{where}{label}", document | {"rows": rows})


def at(shape: str, names: list[str], how: Setup) -> list[dict[str, Any]]:
    """The rows of one shape, each with the figures of SDPA."""
    names = [name for name in names if SHAPES[shape].heads > 1 or name in ONE_HEAD]
    if not names:
        return []
    sizes = {name: getattr(SHAPES[shape], name) for name in ("length", "batch", "heads", "width")}
    sdpa, *rows = bench.measure(names, replace(how, **sizes), timed=shape not in MEMORY_ALONE)
    shared = {"shape": shape, "causal": how.causal}
    shared |= {f"sdpa_{key}": sdpa[key] for key in ("milliseconds", "memory", "mib") if key in sdpa}
    for row in rows:
        row |= shared
        print(row, file=sys.stderr)
    return rows


def keep(name: str, document: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    command = ["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]]
    document = {"command": shlex.join(command), **document}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
