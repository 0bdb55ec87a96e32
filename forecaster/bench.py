"""Time and memory of the attention functions beside torch's fused kernel (SDPA).

One cell is one function at one shape: forward and backward of random q, k, v laid out as
projections leave them, with gradients for all tensors it takes.

- Memory: in a fresh process for each cell, so that no allocator hides anything: how far the
  resident peak rises above the state before the first call (on Linux; on a GPU the peak of torch's
  allocator), output and gradients included.
- Time: all functions of a shape in turns in one process, medians. With one thread it is processor
  time, so that a busy machine does little harm, with more it is wall time, on a GPU CUDA events.

A call that exceeds the limit is stopped; that function is not measured at longer lengths either,
and the result says so.
"""

import ctypes
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

import forecaster.attention
from forecaster.attention import ATTENTIONS, CATALOGUE, SYNONYMS
from forecaster.errors import ForecasterError, StorageError, UsageError
from forecaster.lookup import find

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

YARDSTICK = "SDPA"
CONTROLS = ("mean",)
"""Measured like the others, but no choice that could dominate one."""
MARGIN, SLACK_MIB = 0.1, 1.0
"""Nearer than this, times and memories count as equal."""
METHOD = "forkserver" if sys.platform == "linux" else "spawn"
WARM_UP = 64  # steps of a first small call that is not measured
PATIENCE = 300.0  # seconds for a process to start, or for a GPU to compile

Row = dict[str, Any]
Draw = Callable[..., Tensor]
"""A tensor of the sizes given, standard normal."""
Call = tuple[Callable[..., Tensor], dict[str, Tensor]]
"""A function and the tensors that it takes by name, besides `causal`."""


# What each function is called with -----------------------------------------------------------


@dataclass(frozen=True)
class Core:
    """How to call a mechanism's function: `build(q, k, v, draw, **options)`; its family in plots.

    Options stand for those of the function; without them they are what a user would take.
    """

    family: str
    build: Callable[..., Call]


def _function(name: str) -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = getattr(forecaster.attention, name)
    return function


def _plain(name: str) -> Callable[..., Call]:
    def build(q: Tensor, k: Tensor, v: Tensor, draw: Draw, **options: Any) -> Call:
        return partial(_function(name), **options), {"q": q, "k": k, "v": v}

    return build


def _fused(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return sdpa, {"q": q, "k": k, "v": v}


def _lsh(q: Tensor, k: Tensor, v: Tensor, draw: Draw, n_hashes: int = 2, **options: Any) -> Call:
    return partial(_function("lsh_attention"), n_hashes=n_hashes, **options), {"qk": q, "v": v}


def _strided(q: Tensor, k: Tensor, v: Tensor, draw: Draw, stride: int | None = None) -> Call:
    stride = stride or max(1, round(math.sqrt(q.shape[2])))
    return partial(_function("strided_attention"), stride=stride), {"q": q, "k": k, "v": v}


def _fixed(q: Tensor, k: Tensor, v: Tensor, draw: Draw, stride: int | None = None) -> Call:
    stride = stride or max(1, round(math.sqrt(q.shape[2])))
    function = partial(_function("fixed_attention"), stride=stride, summary=max(1, stride // 8))
    return function, {"q": q, "k": k, "v": v}


def _single(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    # one head as wide as all heads together
    tensors = {
        name: x.transpose(1, 2).flatten(2)[:, None] for name, x in {"q": q, "k": k, "v": v}.items()
    }
    return _function("single_head_attention"), tensors


def _fastformer(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    heads, width = q.shape[1], q.shape[1] * q.shape[3]
    weights = {name: draw(heads, width) / width**0.5 for name in ("query_weight", "key_weight")}
    return _function("additive_attention"), {"q": q, "k": k, "v": v, **weights}


def _gau(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    bias = 0.02 * draw(2 * q.shape[2] - 1)
    tensors = {"q": q, "k": k, "v": v, "relative_bias": bias}
    return _function("relu_squared_attention"), tensors


def _flash(q: Tensor, k: Tensor, v: Tensor, draw: Draw, chunk_size: int = 256) -> Call:
    lin_q, lin_k = (draw(*q.transpose(1, 2).shape).transpose(1, 2) for _ in range(2))
    bias = 0.02 * draw(chunk_size, chunk_size)
    tensors = {"quad_q": q, "quad_k": k, "lin_q": lin_q, "lin_k": lin_k, "v": v, "bias": bias}
    return partial(_function("mixed_chunk_attention"), chunk_size=chunk_size), tensors


def _diff(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    # the pair halves the width of q and k, not that of v
    (q1, q2), (k1, k2) = (x.chunk(2, dim=3) for x in (q, k))
    lam = torch.full((), 0.5, device=q.device)
    tensors = {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "v": v, "lam": lam}
    return _function("differential_attention"), tensors


def _aft_full(q: Tensor, k: Tensor, v: Tensor, draw: Draw, rank: int = 128) -> Call:
    def aft(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, causal: bool) -> Tensor:
        return _function("aft_attention")(q, k, v, (rows, columns), causal=causal)

    bias = {name: 0.1 * draw(q.shape[2], rank) for name in ("rows", "columns")}
    return aft, {"q": q, "k": k, "v": v, **bias}


def _aft_local(q: Tensor, k: Tensor, v: Tensor, draw: Draw, window: int = 32) -> Call:
    bias = 0.1 * draw(q.shape[2], 2 * window - 1)
    tensors = {"q": q, "k": k, "v": v, "band_bias": bias}
    return partial(_function("aft_local_attention"), window=window), tensors


def _aft_conv(q: Tensor, k: Tensor, v: Tensor, draw: Draw, window: int = 33) -> Call:
    kernel = 0.1 * draw(q.shape[1], window)
    return _function("aft_conv_attention"), {"q": q, "k": k[..., :1], "v": v, "kernel": kernel}


ALL, SOME, SUMMARY = "every pair of steps", "a choice of pairs", "summaries of many steps"

SDPA = Core("yardstick", _fused)
CORES: dict[str, Core] = {
    "full": Core(ALL, _plain("full_attention")),
    "prob": Core(SOME, _plain("prob_sparse_attention")),
    "logsparse": Core(SOME, _plain("log_sparse_attention")),
    "lsh": Core(SOME, _lsh),
    "strided": Core(SOME, _strided),
    "fixed": Core(SOME, _fixed),
    "topk": Core(ALL, _plain("topk_attention")),
    "single": Core(ALL, _single),
    "fastformer": Core(SUMMARY, _fastformer),
    "gau": Core(ALL, _gau),
    "flash": Core(SUMMARY, _flash),
    "diff": Core(ALL, _diff),
    "aft-full": Core(ALL, _aft_full),
    "aft-local": Core(SUMMARY, _aft_local),
    "aft-simple": Core(SUMMARY, _plain("aft_simple_attention")),
    "aft-conv": Core(SUMMARY, _aft_conv),
    "mean": Core(SUMMARY, _plain("mean_attention")),
}


# What is measured, and how --------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Sizes of q, k and v. `single` joins the heads: one of width heads * width."""

    length: int
    batch: int = 1
    heads: int = 8
    width: int = 64


@dataclass(frozen=True)
class Conditions:
    """What all cells of a comparison share; `limit` is in seconds for one call."""

    causal: bool = False
    threads: int = 1
    device: str = "cpu"
    dtype: str = "float32"
    limit: float = 20.0


Report = Callable[[str, int], None]
"""Told what is under way and how many steps are done by it; a cell has two, memory and time."""


def choose(wanted: str) -> list[str]:
    """The names in "all" or in a list with commas, in the order of the table.

    Raises UsageError for a name that does not exist or of which no function is measured.
    """
    measured = [name for name in ATTENTIONS if name in CORES]
    if wanted == "all":
        return measured
    names = [find(CATALOGUE, name, "attention", SYNONYMS)[0] for name in wanted.split(",")]
    for name in names:
        if name not in measured:
            known = ", ".join(measured)
            raise UsageError(f"attention '{name}' has no function to measure. Measured: {known}.")
    return [name for name in measured if name in names]


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
        f"--length wants a range such as 96:16384 or a list such as 96,336, got {text}"
    )


def measure(
    names: Sequence[str],
    shape: Shape,
    how: Conditions,
    report: Report = lambda what, done: None,
    timed: bool = True,
    skip: Mapping[str, str] = {},
) -> list[Row]:
    """One row for SDPA and each name: milliseconds and MiB with their ratios to SDPA's.

    `memory` is in multiples of the bytes of q, k, v and output. A row without figures has the
    reason in `skipped`; `skip` gives reasons known before. `timed=False` leaves the time out.
    """
    rows: dict[str, Row] = {}
    repetitions: dict[str, int] = {}
    elements = shape.batch * shape.heads * shape.length * shape.width
    inputs_and_output = 4 * elements * getattr(torch, how.dtype).itemsize
    for name in (YARDSTICK, *names):
        rows[name] = {"attn": name, "length": shape.length}
        if name in skip:
            rows[name]["skipped"] = skip[name]
            continue
        report(f"memory of {name}", 0)
        try:
            with Child(_first_call, name, shape, how) as child:
                child.receive(PATIENCE)
                seconds, peak = child.receive(how.limit)
        except NotMeasuredError as reason:
            rows[name]["skipped"] = str(reason)
            continue
        finally:
            report(f"memory of {name}", 1)
        repetitions[name] = _repetitions(seconds, how.limit)
        if peak is not None:
            figures = {"mib": round(peak / 2**20, 3), "memory": round(peak / inputs_and_output, 3)}
            rows[name].update(figures)
    if timed and repetitions:
        for name, times in _times(repetitions, shape, how, report).items():
            milliseconds = round(1e3 * median(times), 4)
            rows[name].update(milliseconds=milliseconds, repetitions=len(times))
    yardstick = rows[YARDSTICK]
    for row in rows.values():
        for key, ratio in (("milliseconds", "ratio"), ("mib", "memory_ratio")):
            if key in row and yardstick.get(key):
                row[ratio] = round(row[key] / yardstick[key], 4)
    return list(rows.values())


def curves(names: Sequence[str], lengths: Sequence[int], shape: Shape, how: Conditions) -> Row:
    """All names at all lengths, the one of `shape` aside, with a bar on a terminal: a document.

    It holds the rows of `measure` with `dominated_by`, and what is needed to measure them again.
    """
    document = about(how) | {"kind": "curves", **asdict(shape), **asdict(how)}
    del document["length"]
    rows: list[Row] = []
    skip: dict[str, str] = {}
    with _progress(2 * len(lengths) * (len(names) + 1)) as (report, line):
        for length in lengths:
            begun = time.monotonic()
            new = measure(names, replace(shape, length=length), how, report, skip=skip)
            for row in new:
                row["dominated_by"] = dominated_by(row, new)
                if "skipped" in row:
                    skip.setdefault(row["attn"], f"at L={length} it {row['skipped']}")
            rows += new
            line(f"L={length}: {time.monotonic() - begun:.0f} s")
    return document | {"rows": rows}


def dominated_by(row: Row, rows: Iterable[Row]) -> list[str]:
    """The types that are clearly faster and clearly lighter than `row` at the same length."""

    def better(other: Row, key: str, slack: float = 0.0) -> bool:
        return key in row and other.get(key, math.inf) + slack < row[key] / (1 + MARGIN)

    return [
        other["attn"]
        for other in rows
        if other["length"] == row["length"]
        and other["attn"] not in (YARDSTICK, *CONTROLS)
        and better(other, "milliseconds")
        and better(other, "mib", SLACK_MIB)
    ]


def about(how: Conditions) -> Row:
    """Where and on which code something is measured."""
    from forecaster.experiment import commit

    return {
        "hardware": hardware(how.device, how.threads),
        "commit": commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def hardware(device: str = "cpu", threads: int | None = None) -> str:
    """Processor and threads, or the GPU, with the version of torch."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = re.findall(r"^model name\s*: (.*)", cpuinfo.read_text(), re.MULTILINE)
        name = names[0].strip() if names else name
    threads = threads or torch.get_num_threads()
    return f"{name}, {threads} threads, torch {torch.__version__}"


@contextmanager
def _progress(steps: int) -> Iterator[tuple[Report, Callable[[str], None]]]:
    """Two functions: the report that moves a bar on a terminal, and one that prints a line."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = Progress(
        "measuring", BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), "{task.description}",
        console=console, transient=True,
    )  # fmt: skip
    task = bar.add_task("", total=steps)
    if sys.stderr.isatty():
        bar.start()
    try:
        yield (
            lambda what, done: bar.update(task, description=what, advance=done),
            lambda text: console.print(text, highlight=False, soft_wrap=True),
        )
    finally:
        bar.live.stop()  # bar.stop() writes an empty line off a terminal


# In processes of their own --------------------------------------------------------------------


class NotMeasuredError(Exception):
    """Why a cell has no figure: what happened to the process that measured it."""


class Child:
    """A fresh process that runs the generator `work`; `receive` gives what it yields.

    On Linux it is forked from a server that has imported torch and computed nothing.
    """

    def __init__(self, work: Callable[..., Iterator[Any]], *arguments: Any) -> None:
        context: Any = multiprocessing.get_context(METHOD)
        context.set_forkserver_preload([__name__])
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_send, args=(sender, work, arguments), daemon=True)
        self.process.start()
        sender.close()

    def receive(self, seconds: float) -> Any:
        """The next object, None at the end.

        Raises NotMeasuredError when none comes in so many seconds, when `work` fails and when its
        process dies.
        """
        if not self.receiver.poll(seconds):
            raise NotMeasuredError(f"took longer than {seconds:g} s")
        try:
            result, failure = self.receiver.recv()
        except EOFError:
            self.process.join()
            hint = " (out of memory?)" if self.process.exitcode == -signal.SIGKILL else ""
            raise NotMeasuredError(
                f"ended its process, status {self.process.exitcode}{hint}"
            ) from None
        if failure:
            raise NotMeasuredError(f"failed: {failure}")
        return result

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()
        self.receiver.close()


def _send(sender: Connection, work: Callable[..., Iterator[Any]], arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this
    try:
        for result in work(*arguments):
            sender.send((result, None))
        sender.send((None, None))
    except Exception as error:
        sender.send((None, f"{type(error).__name__}: {str(error).splitlines()[0]}"))


def _first_call(name: str, shape: Shape, how: Conditions) -> Iterator[Any]:
    """None when all is ready, then the seconds and the peak bytes of one call."""
    calls = _calls([name], shape, how)
    yield None
    if how.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        seconds = _seconds(calls[name], how)
        yield seconds, torch.cuda.max_memory_allocated() - before
    elif sys.platform == "linux":
        before = _resident("VmRSS", forget_peak=True)
        seconds = _seconds(calls[name], how)
        yield seconds, _resident("VmHWM") - before
    else:
        yield _seconds(calls[name], how), None


def _every_call(repetitions: dict[str, int], shape: Shape, how: Conditions) -> Iterator[Any]:
    """(name, seconds) of each call, the names in turns."""
    calls = _calls(list(repetitions), shape, how)
    for turn in range(max(repetitions.values())):
        for name, call in calls.items():
            if turn < repetitions[name]:
                yield name, _seconds(call, how)


def _times(
    repetitions: dict[str, int], shape: Shape, how: Conditions, report: Report
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in repetitions}
    with Child(_every_call, repetitions, shape, how) as child:
        for _ in range(sum(repetitions.values())):
            try:
                name, seconds = child.receive(PATIENCE + 10 * how.limit)
            except NotMeasuredError as reason:
                raise ForecasterError(
                    f"L={shape.length}: the process that measures time {reason}"
                ) from None
            times[name].append(seconds)
            done = len(times[name])
            report(f"time of {name}, {done} of {repetitions[name]}", done == repetitions[name])
    return times


def _repetitions(seconds: float, limit: float) -> int:
    """Nine, of quick calls up to 49 in half a second; of slow ones as many as fit the limit."""
    return max(1, min(int(limit / seconds), max(9, min(49, int(0.5 / seconds)))))


def _calls(names: Sequence[str], shape: Shape, how: Conditions) -> dict[str, Callable[[], None]]:
    """A forward and backward of each, ready to be called and warm."""
    torch.set_num_threads(how.threads)
    small = replace(shape, length=min(WARM_UP, shape.length))
    calls: dict[str, Callable[[], None]] = {}
    for size in (small, shape):
        generator = torch.Generator().manual_seed(0)

        def draw(*sizes: int, generator: torch.Generator = generator) -> Tensor:
            return torch.randn(sizes, generator=generator).to(how.device, getattr(torch, how.dtype))

        heads_last = (size.batch, size.length, size.heads, size.width)
        qkv = [draw(*heads_last).transpose(1, 2) for _ in range(3)]
        for name in names:
            function, tensors = (SDPA if name == YARDSTICK else CORES[name]).build(*qkv, draw)
            calls[name] = partial(_forward_backward, function, tensors, how.causal)
            if size is small or how.device == "cuda":
                calls[name]()
    return calls


def _forward_backward(
    function: Callable[..., Tensor], tensors: dict[str, Tensor], causal: bool
) -> None:
    leaves = {name: x.detach().requires_grad_() for name, x in tensors.items()}
    function(**leaves, causal=causal).sum().backward()


def _seconds(call: Callable[[], None], how: Conditions) -> float:
    if how.device == "cuda":
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        call()
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended)) / 1e3
    clock = time.process_time if how.threads == 1 else time.perf_counter
    before = clock()
    call()
    return clock() - before


def _resident(field: str, forget_peak: bool = False) -> int:
    """Bytes of resident memory now (VmRSS) or at its peak (VmHWM); Linux only."""
    if forget_peak:
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)  # give back what earlier calls left behind
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


# For people -----------------------------------------------------------------------------------

FAMILIES = (ALL, SOME, SUMMARY)
COLOURS = ("#c2410c", "#0369a1", "#15803d", "#7e22ce", "#84cc16", "#be185d")
INK, MUTED = "#0f172a", "#cbd5e1"


def tables(document: Row) -> str:
    """The times, the memory, which choices are dominated, and what was not measured."""
    rows = {(row["attn"], row["length"]): row for row in document["rows"]}
    names = list(dict.fromkeys(row["attn"] for row in document["rows"]))
    lengths = sorted({row["length"] for row in document["rows"]})
    lines = [title(document), document["hardware"]]
    for heading, key in (("milliseconds", "milliseconds"), ("extra MiB", "mib")):
        lines += ["", f"{heading:<12}" + "".join(f"{length:>8} " for length in lengths).rstrip()]
        for name in names:
            cells = (rows[name, length] for length in lengths)
            line = "".join(f"{_figures(row.get(key)):>8}{_mark(row)}" for row in cells)
            lines.append(f"{name:<12}{line}".rstrip())
    lines += [
        "",
        f"* dominated: another type is faster and needs less memory, each by {MARGIN:.0%} and "
        f"{SLACK_MIB:g} MiB at least",
        "! even full attention is. The controls and SDPA do not count; what a forecast gains from",
        "  an attention is another question.",
    ]
    for name in names:
        skipped = [row for row in document["rows"] if row["attn"] == name and "skipped" in row]
        if skipped:
            at = ", ".join(str(row["length"]) for row in skipped)
            lines.append(f"not measured: {name} at L = {at}: it {skipped[0]['skipped']}")
    return "\n".join(lines)


def title(document: Row) -> str:
    """What was measured, in a line."""
    return (
        f"forward and backward{', causal' if document['causal'] else ''}, "
        f"batch {document['batch']}, {document['heads']} heads of {document['width']}, "
        f"{document['dtype']}"
    )


def figure(document: Row) -> "Figure":
    """Time (above) and memory (below) against length, a column for each family of types.

    The other families stay visible in grey, SDPA is the dashed line.
    """
    from matplotlib.figure import Figure

    result = Figure(figsize=(13, 9), layout="constrained")
    result.suptitle(f"{title(document)}\n{document['hardware']}", x=0.01, ha="left", fontsize=11)
    axes = result.subplots(2, len(FAMILIES), sharex=True, sharey="row")
    for row, (key, label) in zip(
        axes, (("milliseconds", "milliseconds"), ("mib", "extra memory, MiB")), strict=True
    ):
        row[0].set_ylabel(label)
        for axis, family in zip(row, FAMILIES, strict=True):
            _draw_family(axis, document["rows"], key, family)
    for axis, family in zip(axes[0], FAMILIES, strict=True):
        axis.set_title(family, loc="left", fontsize=11, fontweight="bold")
    for axis in axes[1]:
        axis.set_xlabel("length L")
    return result


def _draw_family(axis: "Axes", rows: list[Row], key: str, family: str) -> None:
    lengths = sorted({row["length"] for row in rows})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [str(length) for length in lengths], rotation=45)
    axis.grid(color="#e2e8f0", lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    colours = iter(COLOURS)
    ends = []
    for name in dict.fromkeys(row["attn"] for row in rows):
        points = [(row["length"], row[key]) for row in rows if row["attn"] == name and key in row]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        if name == YARDSTICK:
            axis.plot(x, y, color=INK, lw=1.6, ls=(0, (4, 2)), zorder=3)
            ends.append((name, x[-1], y[-1], INK))
        elif CORES[name].family == family:
            colour = next(colours)
            axis.plot(x, y, color=colour, lw=1.6, marker="o", ms=3, zorder=2)
            ends.append((name, x[-1], y[-1], colour))
        else:
            axis.plot(x, y, color=MUTED, lw=0.8, zorder=1)
    room = (lengths[-1] / lengths[0]) ** 0.3 + 0.5
    axis.set_xlim(lengths[0] / 1.1, lengths[-1] * room)
    low, high = (math.log(y) for y in axis.get_ylim())
    heights = _apart([math.log(y) for _, _, y, _ in ends], 0.045 * (high - low))
    for (name, x, y, colour), height in zip(ends, heights, strict=True):
        axis.annotate(
            name,
            (x, y),
            xytext=(lengths[-1] * room**0.25, math.exp(height)),
            color=colour,
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5},
        )


def _apart(heights: list[float], least: float) -> list[float]:
    """The heights, pushed apart until about `least` lies between them, in their order."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = list(heights)
    for _ in range(100):
        for lower, upper in pairwise(order):
            push = max(0.0, least - (placed[upper] - placed[lower])) / 2
            placed[lower] -= push
            placed[upper] += push
    return placed


def save(document: Row, folder: Path) -> tuple[Path, Path]:
    """Write the document as JSON and its picture as PNG; the names say machine and shape.

    Raises StorageError when the folder cannot be written.
    """
    where = document["hardware"].partition(", torch")[0]
    shape = "B{batch}-H{heads}-E{width}-{dtype}".format(**document)
    name = f"attention {where} {shape}{' causal' if document['causal'] else ''}"
    name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    files = folder / f"{name}.json", folder / f"{name}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files[0].write_text(json.dumps(document, indent=1) + "\n")
        figure(document).savefig(files[1], dpi=110)
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error}") from error
    return files


def _figures(value: float | None) -> str:
    """Three digits that count, or a dash."""
    if value is None:
        return "–"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _mark(row: Row) -> str:
    return "!" if "full" in row["dominated_by"] else "*" if row["dominated_by"] else " "
