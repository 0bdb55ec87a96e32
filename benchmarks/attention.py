"""Time and memory of the attention functions beside torch's fused kernel (SDPA) at the same shape.

    python benchmarks/attention.py --threads 1

Forward and backward of float32 q, k, v laid out as projections leave them, in turns with SDPA in
one process, medians: of processor time with one thread, so that a busy machine does little harm,
of wall time with more. Memory is how far the resident peak rises above the state before the call
(Linux), output and gradients included, over the bytes of q, k, v and out.
"""

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from training import RESULTS, hardware

from forecaster.attention import full_attention, mean_attention, prob_sparse_attention
from forecaster.experiment import commit

Core = Callable[..., Tensor]

CORES: dict[str, Core] = {
    "full": full_attention,
    "prob": prob_sparse_attention,
    "mean": mean_attention,
}
# batch, heads, length, width, repetitions
SHAPES = {
    "L=8192": (1, 8, 8192, 64, 3),
    "L=2048": (1, 8, 2048, 64, 9),
    "B=32 L=336": (32, 8, 336, 64, 9),
    "B=32 L=96": (32, 8, 96, 64, 25),
    "B=448 L=84 E=8": (448, 2, 84, 8, 25),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--attn", nargs="+", choices=CORES, default=list(CORES))
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    load = os.getloadavg()[0]
    rows = [
        row
        for shape in arguments.shape
        for causal in (False, True)
        for row in measure({name: CORES[name] for name in arguments.attn}, shape, causal)
    ]
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"attention-{arguments.threads}-threads.json"
    result = {
        "kind": "attention",
        "command": " ".join(["python", *sys.argv]),
        "commit": commit(),
        "hardware": hardware(),
        "load_before": round(load, 2),
        "rows": rows,
    }
    file.write_text(json.dumps(result, indent=1) + "\n")


def measure(cores: dict[str, Core], shape: str, causal: bool) -> list[dict[str, Any]]:
    """One row for each function: milliseconds, those of SDPA, their ratio, and memory."""
    batch, heads, length, width, repetitions = SHAPES[shape]
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(batch, length, heads, width, generator=generator).transpose(1, 2)
        for _ in range(3)
    )
    calls = {"SDPA": partial(F.scaled_dot_product_attention, is_causal=causal)}
    calls |= {name: partial(core, causal=causal) for name, core in cores.items()}
    small = [x[:, :, :64] for x in (q, k, v)]
    memory = {}
    for name, call in calls.items():
        forward_backward(call, small)
        before = resident("VmRSS", forget_peak=True)
        forward_backward(call, (q, k, v))
        memory[name] = (resident("VmHWM") - before) / (4 * q.nbytes)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            begun = clock()
            forward_backward(call, (q, k, v))
            seconds[name].append(clock() - begun)
    milliseconds = {name: 1e3 * median(times) for name, times in seconds.items()}
    rows = []
    for name in cores:
        row = {
            "attn": name,
            "shape": shape,
            "causal": causal,
            "milliseconds": round(milliseconds[name], 2),
            "sdpa_milliseconds": round(milliseconds["SDPA"], 2),
            "ratio": round(milliseconds[name] / milliseconds["SDPA"], 4),
            "memory": round(memory[name], 2),
            "sdpa_memory": round(memory["SDPA"], 2),
        }
        rows.append(row)
        print(row, file=sys.stderr)
    return rows


def forward_backward(call: Core, inputs: Any) -> None:
    tensors = [x.detach().requires_grad_() for x in inputs]
    call(*tensors).sum().backward()


def resident(field: str, forget_peak: bool = False) -> int:
    """Bytes of resident memory now (VmRSS) or at its peak (VmHWM)."""
    if forget_peak:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what earlier calls left behind
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    main()
