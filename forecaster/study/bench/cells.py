"""Time and memory of the attention functions beside torch's fused kernel (SDPA).

One cell is one function at one shape: forward and backward passes on random q, k, v in the memory
layout of projections, with gradients for all tensors that the function takes.

- Memory, in a fresh process for each cell: the rise of the resident peak above the state before the
  first call (on Linux; on a GPU the peak of torch's allocator), including output and gradients.
- Time: medians, with all functions of a shape in turns in one process. It is processor time with
  one thread, so that a busy machine disturbs it little, wall time with several, and the time
  between CUDA events on a GPU.

A function whose call exceeds the limit is not measured at longer lengths.
"""

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from forecaster.attention import CATALOGUE, CONTROLS, SYNONYMS
from forecaster.attention.base import Call
from forecaster.base.errors import ForecasterError, UsageError
from forecaster.base.installation import commit
from forecaster.base.machine import hardware, memory_rise, processor
from forecaster.base.names import find
from forecaster.base.progress import Advance, Bar
from forecaster.base.workers import FailedError, Worker
from forecaster.study.bench.cores import CORES, YARDSTICK, call_fused, core_of

TIE_SHARE, TIE_MIB = 0.1, 1.0
"""Times and memories that differ by less than this count as equal; round numbers."""
WARM_UP = 64  # steps of a first small call, in which libraries load; it is not measured
PATIENCE = 300.0  # seconds for a process to start, or for a GPU to compile

Measurement = dict[str, Any]
"""The figures of one function at one length, or why there are none."""
Document = dict[str, Any]
"""Measurements as they are saved, with everything needed to repeat them."""


@dataclass(frozen=True)
class Setup:
    """The sizes of q, k and v, and the conditions of a measurement; `limit` is in seconds for one
    call. `single` joins the heads: one of width heads * width."""

    length: int = 0
    batch: int = 1
    heads: int = 8
    width: int = 64
    causal: bool = False
    threads: int = 1
    device: str = "cpu"
    dtype: str = "float32"
    limit: float = 20.0


def choose(text: str) -> list[str]:
    """The names in "all" (ours) or in a comma-separated list, in the order of the table.

    Raises UsageError for a name that does not exist or has no function to measure.
    """
    if text == "all":
        return list(CORES)
    known = dict.fromkeys([*CORES, *CATALOGUE.plug_ins()])
    names = {find(known, name, "attention to measure", SYNONYMS)[0] for name in text.split(",")}
    chosen = [name for name in known if name in names]
    for name in chosen:
        core_of(name)
    return chosen


def read_lengths(text: str) -> list[int]:
    """ "96:1024" -> 96, 128, 256, 512, 1024 (powers of two between); "96,336" -> these two.

    Raises UsageError for anything else.
    """
    if match := re.fullmatch(r"([1-9]\d{0,8}):([1-9]\d{0,8})", text):
        first, last = int(match[1]), int(match[2])
        if first <= last:
            powers = (1 << n for n in range(last.bit_length()))
            return sorted({first, last, *(n for n in powers if first < n < last)})
    elif re.fullmatch(r"[1-9]\d{0,8}(,[1-9]\d{0,8})*", text):
        return sorted({int(length) for length in text.split(",")})
    raise UsageError(
        f"--length: expected a range such as 96:16384 or a list such as 96,336, got {text}"
    )


def measure(
    names: Sequence[str],
    how: Setup,
    advance: Advance = lambda what, done: None,
    timed: bool = True,
    skip: Mapping[str, str] = {},
) -> list[Measurement]:
    """One row for SDPA and each name: milliseconds and MiB with their ratios to SDPA's.

    `memory` is in multiples of the bytes of q, k, v and output. A row without figures has the
    reason in `skipped`; `skip` gives reasons known before. `advance` is called for two steps of
    each name, memory and time.
    """
    rows: dict[str, Measurement] = {}
    repetitions: dict[str, int] = {}
    elements = how.batch * how.heads * how.length * how.width
    inputs_and_output = 4 * elements * getattr(torch, how.dtype).itemsize
    for name in (YARDSTICK, *names):
        rows[name] = {"attn": name, "length": how.length}
        if name in skip:
            rows[name]["skipped"] = skip[name]
            continue
        advance(f"memory of {name}", 0)
        try:
            with Worker(_first_call).ask(name, how) as worker:
                worker.receive(PATIENCE)
                seconds, peak = worker.receive(how.limit)
        except FailedError as failure:
            rows[name]["skipped"] = str(failure).splitlines()[0]
            continue
        finally:
            advance(f"memory of {name}", 1)
        repetitions[name] = _repetitions(seconds, how.limit)
        if peak is not None:
            figures = {"mib": round(peak / 2**20, 3), "memory": round(peak / inputs_and_output, 3)}
            rows[name].update(figures)
    if timed and repetitions:
        for name, times in _times(repetitions, how, advance).items():
            milliseconds = round(1e3 * median(times), 4)
            rows[name].update(milliseconds=milliseconds, repetitions=len(times))
    yardstick = rows[YARDSTICK]
    for row in rows.values():
        for key, ratio in (("milliseconds", "ratio"), ("mib", "memory_ratio")):
            if key in row and yardstick.get(key):
                row[ratio] = round(row[key] / yardstick[key], 4)
    return list(rows.values())


def curves(names: Sequence[str], lengths: Sequence[int], how: Setup) -> Document:
    """Measure all names at all lengths (instead of that of `how`), with a bar on a terminal: a
    document with the rows of `measure`, their `dominated_by`, and what is needed to repeat them."""
    document = about(how) | {"kind": "curves", **asdict(how)}
    del document["length"]
    rows: list[Measurement] = []
    skip: dict[str, str] = {}
    with Bar("measuring", 2 * len(lengths) * (len(names) + 1)) as bar:
        for length in lengths:
            start = time.monotonic()
            new = measure(names, replace(how, length=length), bar.advance, skip=skip)
            for row in new:
                row["dominated_by"] = dominated_by(row, new)
                if "skipped" in row:
                    skip.setdefault(row["attn"], f"at L={length} it {row['skipped']}")
            rows += new
            bar.line(f"L={length}: {time.monotonic() - start:.0f} s")
    return document | {"rows": rows}


def dominated_by(row: Measurement, rows: Iterable[Measurement]) -> list[str]:
    """The types that are clearly faster and clearly lighter than `row` at the same length."""

    def better(other: Measurement, key: str, slack: float = 0.0) -> bool:
        return key in row and other.get(key, math.inf) + slack < row[key] / (1 + TIE_SHARE)

    return [
        other["attn"]
        for other in rows
        if other["length"] == row["length"]
        and other["attn"] not in (YARDSTICK, *CONTROLS)
        and better(other, "milliseconds")
        and better(other, "mib", TIE_MIB)
    ]


def about(how: Setup) -> Document:
    return {
        "hardware": hardware(how.device, how.threads),
        "processor": processor(how.device),
        "commit": commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _first_call(name: str, how: Setup) -> Iterator[Any]:
    """Yield None when all is ready, then the seconds and the peak bytes of one call."""
    calls = _calls([name], how)
    yield None
    yield memory_rise(lambda: _seconds(calls[name], how), how.device)


def _every_call(repetitions: dict[str, int], how: Setup) -> Iterator[Any]:
    """Yield (name, seconds) of each call, with the names in turns."""
    calls = _calls(list(repetitions), how)
    for turn in range(max(repetitions.values())):
        for name, call in calls.items():
            if turn < repetitions[name]:
                yield name, _seconds(call, how)


def _times(repetitions: dict[str, int], how: Setup, advance: Advance) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in repetitions}
    with Worker(_every_call).ask(repetitions, how) as worker:
        for _ in range(sum(repetitions.values())):
            try:
                name, seconds = worker.receive(PATIENCE + 10 * how.limit)
            except FailedError as failure:
                raise ForecasterError(
                    f"L={how.length}: the process that measures time {failure}"
                ) from None
            times[name].append(seconds)
            done = len(times[name])
            advance(f"time of {name}, {done} of {repetitions[name]}", done == repetitions[name])
    return times


def _repetitions(seconds: float, limit: float) -> int:
    """Nine repetitions; up to 49 of quick calls, in half a second; as many slow ones as fit."""
    return max(1, min(int(limit / seconds), max(9, min(49, int(0.5 / seconds)))))


def _calls(names: Sequence[str], how: Setup) -> dict[str, Callable[[], None]]:
    """A forward and backward pass of each function, ready to be called and warmed up."""
    torch.set_num_threads(how.threads)
    small = replace(how, length=min(WARM_UP, how.length))
    calls: dict[str, Callable[[], None]] = {}
    for size in (small, how):
        generator = torch.Generator().manual_seed(0)

        def draw(*sizes: int, generator: torch.Generator = generator) -> Tensor:
            return torch.randn(sizes, generator=generator).to(how.device, getattr(torch, how.dtype))

        heads_last = (size.batch, size.length, size.heads, size.width)
        qkv = [draw(*heads_last).transpose(1, 2) for _ in range(3)]
        for name in names:
            build: Callable[..., Call] = call_fused if name == YARDSTICK else core_of(name).build
            function, tensors = build(*qkv, draw)
            calls[name] = partial(_forward_backward, function, tensors, how.causal)
            if size is small or how.device == "cuda":
                calls[name]()
    return calls


def _forward_backward(
    function: Callable[..., Tensor], tensors: dict[str, Tensor], causal: bool
) -> None:
    leaves = {name: x.detach().requires_grad_() for name, x in tensors.items()}
    function(**leaves, causal=causal).sum().backward()


def _seconds(call: Callable[[], None], how: Setup) -> float:
    if how.device == "cuda":
        start, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        ended.record()
        ended.synchronize()
        return float(start.elapsed_time(ended)) / 1e3
    clock = time.process_time if how.threads == 1 else time.perf_counter
    before = clock()
    call()
    return clock() - before
