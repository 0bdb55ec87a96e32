"""What a GPU computes and how quickly: one run of at most eight minutes, on a CUDA device.

    python -m benchmarks.on_gpu                                 all parts
    python -m benchmarks.on_gpu --seconds 200 --only correct,waits --out FOLDER

The parts, in the order of their worth; after its share of the seconds a part begins nothing more:

- environment: what `forecaster doctor` finds, and how precisely torch computes in float32.
- tests: those with the mark `gpu`, in another process.
- correct: a training on the GPU beside the same on the processor, without dropout: the validation
  errors, and how far apart the bundle forecasts on the two, in standard deviations.
- waits: lines at which the host waits for the device in each training step, as torch reports them.
- bf16: an attention in bf16 against 32 bits, and that against 64: relative errors, as norms.
- answers: how far an answer is from itself, again and without the others of its batch of 64.
- same_bits: how far apart two equal trainings end; 0 is the same bits.
- masks: fixed patterns by one masked call and by tiles, both against the definition in 32 bits.
- graphs: a step in a training, its memory beside the expected one, and both by CUDA graphs.
- steps: a training step, the windows a second, and the peak of torch's allocator in MiB.
- cores: an attention in bf16, forward and backward, beside torch's fused kernel (SDPA).
- served: batches of forecasts, on the GPU and on the processor.

Times are in milliseconds: medians of wall time, the host's part included. Up to ten calls follow
each other without waiting for the device, as in training. A figure beyond its limit and an error
are failures, and the rest goes on. The exit status is the number of parts that failed; on-gpu.json
holds all figures, [figure, limit] if there is one. It needs what forecaster trains with, but
neither MLflow nor matplotlib, and pytest; forecaster itself need not be installed.
"""

import copy
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.parts import Figures, Limited, Part, command_line
from benchmarks.step import CALENDAR, COLUMNS, NETWORKS, Network, ours
from forecaster import Forecaster
from forecaster.attention import CONTROLS, AttentionChoice, Place
from forecaster.attention.common import patterns
from forecaster.attention.fixed import FixedPattern, fixed_attention
from forecaster.attention.logsparse import log_sparse_attention, log_sparse_pattern
from forecaster.attention.strided import StridedPattern, strided_attention
from forecaster.base import machine
from forecaster.datasets.windows import Windows
from forecaster.forecast import golden, kept
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.runner import Runner
from forecaster.model import ForecastModel
from forecaster.parts import Blend
from forecaster.parts import Network as Trained
from forecaster.study.bench import CORES
from forecaster.study.bench.cores import call_fused, core_of
from forecaster.train.fit import Fit, fit, takes_bf16
from forecaster.train.memory import ensure_it_fits

GPU, ROOT = "cuda", Path(__file__).resolve().parent.parent
TESTS = {
    "tests/attention/test_gpu.py": (),
    "tests/forecast/test_runner.py": (),
    "tests/study/bench/test_cells.py": (),
    "tests/datasets/test_windows.py": ("hypothesis",),
    "tests/service/test_gpu.py": ("fastapi", "beartype", "pytest_timeout"),
}
"""The files with tests for a GPU, and what they need besides pytest."""
CHOOSING = "prob", "lsh", "topk"
"""Those that a difference in the last bits may lead to other keys."""
BF16 = {"prob": (0.1, 0.1), "lsh": (0.1, 0.1), "topk": (0.15, 0.15), "diff": (0.03, 0.05)}
"""The limits of an output and a gradient in bf16, for others SMOOTH."""
SMOOTH = 0.02, 0.04
INFORMER = {"model.name": "informer", "model.width": 128, "model.heads": 2, "train.precision": "32"}
HALF = {**INFORMER, "train.precision": "bf16"}
KINDS: dict[str, tuple[Figures, Figures]] = {
    "default": ({}, {}),
    "prior": ({}, {"model.prior": True}),
    "informer": ({"blend": "none"}, INFORMER),
    "half": ({"blend": "none"}, HALF),
    "wide": ({"blend": "none"}, {**HALF, "model.width": 512, "model.heads": 8}),
}  # fmt: skip
"""Parameters of a Forecaster, and its options."""
PATTERNS: dict[str, Callable[[int, bool], patterns.Pattern]] = {
    "strided": lambda length, causal: StridedPattern(round(length**0.5), causal),
    "fixed": lambda length, causal: FixedPattern(round(length**0.5), 6, causal),
    "logsparse": lambda length, causal: log_sparse_pattern(length, causal=causal),
}
TILED: dict[str, Callable[..., Tensor]] = {
    "strided": lambda q, k, v, **seen: strided_attention(
        q, k, v, stride=round(q.shape[2] ** 0.5), **seen
    ),
    "fixed": lambda q, k, v, **seen: fixed_attention(
        q, k, v, stride=round(q.shape[2] ** 0.5), summary=6, **seen
    ),
    "logsparse": log_sparse_attention,
}
TINY = Network("informer", 24, 12, 6, ("model.width=16", "model.heads=2", "model.feed_forward=16"))


@dataclass(frozen=True)
class Sizes:
    """How much is measured; `options` are those of KINDS, `tests` the seconds of the tests."""

    attentions: tuple[str, ...] = tuple(name for name in CORES if name not in CONTROLS)
    networks: Mapping[str, Network] = field(
        default_factory=lambda: {name: NETWORKS[name] for name in ("default", "informer")}
    )
    trained: tuple[str, ...] = ("default", "prior", "informer", "half")
    served: tuple[str, ...] = ("default", "wide")
    options: Figures = field(default_factory=dict)
    rows: int = 2000
    steps: int = 8
    batch: int = 32
    lengths: tuple[int, ...] = (96, 336, 2048, 8192)
    masked: tuple[int, ...] = (2500, 8192)
    batches: tuple[int, ...] = (1, 16, 64, 256)
    rounds: int = 5
    tests: float = 130


def environment(sizes: Sizes) -> Figures:
    """What `forecaster doctor` finds, and the settings of float32."""
    report, problems = machine.cuda()
    return {
        **report,
        "python": sys.version.split()[0],
        "products": torch.backends.cuda.matmul.fp32_precision,
        "convolutions": torch.backends.cudnn.conv.fp32_precision,
        "override": os.environ.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
        "problems": Limited(len(problems), 0),
        "which": "; ".join(problems),
    }


def tests(sizes: Sizes) -> Figures:
    """Without the plug-ins that the settings of pytest name, the tests run without settings."""
    chosen = [file for file, needs in TESTS.items() if all(map(find_spec, needs))]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *chosen]
    if not (find_spec("beartype") and find_spec("pytest_timeout")):
        command += ["-c", os.devnull, f"--rootdir={ROOT}", "--noconftest"]
        command += ["--import-mode=importlib"]
    done = subprocess.run(command, cwd=ROOT, timeout=sizes.tests, check=False)
    return {"status": Limited(done.returncode, 0), "left out": [*{*TESTS} - {*chosen}]}


def correct(sizes: Sizes, kind: str) -> Figures:
    there, here = (fitted(sizes, kind, device) for device in (GPU, "cpu"))
    with TemporaryDirectory() as folder:
        bundle = there.save(Path(folder) / "bundle")
        one, other = (forecasts(Predictor.load(bundle, device)) for device in (GPU, "cpu"))
    mse, wanted = (each.bundle.record.validation_mse for each in (there, here))
    apart = float(golden.apart(one, other).max())
    off = abs(mse / wanted - 1)
    limit = 0.2 if KINDS[kind][1] is HALF else 0.05  # in bf16 prob takes other keys
    return {"mse": mse, "off": Limited(off, limit), "apart": Limited(apart, golden.ALLOWED[GPU])}


def fitted(sizes: Sizes, kind: str, device: str) -> Forecaster:
    """A few steps of training on hourly cycles with noise, and all that follows it."""
    flags, own = KINDS[kind]
    random, steps = np.random.default_rng(0), np.arange(sizes.rows)[:, None]
    values = 20 + np.sin(steps * np.pi / 12) * [1, 2, 3] + random.normal(size=(sizes.rows, 3)) / 3
    frame = pd.DataFrame(values, columns=["one", "two", "three"])
    frame.insert(0, "ds", pd.date_range("2024-01-01", periods=sizes.rows, freq="h"))
    flags = {"target": ["one", "two"], "horizon": 24, "epochs": 1, **flags}
    few = {"train.batch": 16, "train.windows": 320, "train.updates": 20, "model.dropout": 0}
    options = {**few, "train.validation_windows": 64, **own, **sizes.options}
    return Forecaster(**flags, options=options, device=device).fit(frame)


def question(predictor: Predictor, count: int) -> Any:
    """Made-up histories without gaps."""
    which = [number for number in range(2 * count) if not golden.has_gaps(number)][:count]
    bundle = predictor.bundle
    return golden.question(bundle.schema, bundle.past, bundle.horizon, which)


def forecasts(predictor: Predictor) -> np.ndarray:
    """Forecasts and quantiles of eight histories, in standard deviations."""
    asked = question(predictor, 8)
    forecast, quantiles = predictor.forecast_quantiles(asked, predictor.levels)
    scales = kept.scales(predictor, asked)[:, None, :, None]
    return np.concatenate([forecast[..., None], quantiles], axis=-1) / scales


def waits(sizes: Sizes, name: str, attn: str) -> Figures:
    """The waits that more steps add."""
    few, many = (waiting(sizes, name, attn, steps) for steps in (2, 2 + sizes.steps))
    added = {line: count / sizes.steps for line, count in (many - few).items()}
    each = {line: count for line, count in added.items() if count >= 1}
    return {"waits": sum(each.values()), **each}


def waiting(sizes: Sizes, name: str, attn: str, steps: int) -> Counter[str]:
    """How often each line waits in a training of so many steps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            trained(choose(sizes, name, attn), steps, graphs=False)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    reports = [each for each in caught if "called a synchronizing" in str(each.message)]
    return Counter(f"{'/'.join(Path(one.filename).parts[-3:])}:{one.lineno}" for one in reports)


def choose(sizes: Sizes, name: str, attn: str) -> Network:
    network = sizes.networks[name]
    return replace(network, sets=(*network.sets, f"attn={attn}"))


def trained(network: Network, steps: int, **config: Any) -> tuple[ForecastModel, Fit, int]:
    """A model after so many steps of `fit` on noise, and the memory expected of it in bytes."""
    load, task = network.load(), network.task
    rows = steps * load.train.batch + task.past + task.horizon - 1
    torch.manual_seed(0)
    table = torch.randn(rows, COLUMNS), torch.rand(rows, CALENDAR) - 0.5
    windows = Windows(*table, task.past, task.horizon, 0, rows, task.targets).to(GPU)
    model = load.build_model(task)
    once = {"epochs": 1, "updates": None, "stride": 1, **config}
    own = load.train.model_copy(update=once)
    half = takes_bf16(own, model, GPU)
    expected = ensure_it_fits(model, windows, own, GPU, lambda _: None, bf16=half)
    torch.cuda.reset_peak_memory_stats()
    return model, fit(model, windows, None, own, device=GPU, seed=0), expected


def bf16(sizes: Sizes, attn: str) -> Figures:
    torch.manual_seed(0)
    module = AttentionChoice(attn).build(Place(128, 4, 200, 200)).eval()
    x, found = torch.randn(4, 200, 128), []
    for dtype, low in ((torch.float64, False), (torch.float32, False), (torch.float32, True)):
        here, query = copy.deepcopy(module).to(GPU, dtype), x.to(GPU, dtype)
        with torch.autocast(GPU, torch.bfloat16, enabled=low), machine.exact():
            found.append(both_ways(here, {"query": query}))
    exact, half = ([*map(relative, found[n + 1], found[n])] for n in (0, 1))
    same, limits = 1e-2 if attn in CHOOSING else 1e-4, BF16.get(attn, SMOOTH)
    return {
        "32 output": Limited(exact[0], same),
        "32 gradient": Limited(exact[1], same),
        "bf16 output": Limited(half[0], limits[0]),
        "bf16 gradient": Limited(half[1], limits[1]),
    }


def both_ways(function: Callable[..., Tensor], tensors: dict[str, Tensor]) -> list[Tensor]:
    """The output, and the gradients of half the sum of its squares, which is not computed."""
    leaves = {name: x.detach().requires_grad_() for name, x in tensors.items()}
    output = function(**leaves)
    own = output.detach()
    return [own, *torch.autograd.grad(output, [*leaves.values()], own, materialize_grads=True)]


def relative(a: Tensor, b: Tensor) -> float:
    """The norm of the difference, relative to that of b."""
    return float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-30))


def answers(sizes: Sizes, attn: str) -> Figures:
    """Of a small network with large random weights."""
    task = TINY.task
    torch.manual_seed(0)
    model = replace(TINY, sets=(*TINY.sets, f"attn={attn}")).load().build_model(task).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    blend, draw = Blend.alone(Trained(model)).to(GPU), np.random.default_rng(0)

    def forecast(past: Tensor, known: Tensor, observed: Tensor | None) -> Tensor:
        return blend(past, known[:, : task.past], known[:, task.past :], observed)

    def answer(*inputs: np.ndarray | None) -> np.ndarray:
        tensors = (None if array is None else torch.from_numpy(array) for array in inputs)
        return Runner(forecast, GPU)(*tensors).numpy()

    past = draw.normal(size=(64, task.past, COLUMNS)).astype(np.float32)
    known = draw.normal(size=(64, task.past + task.horizon, CALENDAR)).astype(np.float32)
    together = answer(past, known, None)
    again = np.abs(answer(past, known, None) - together).max()
    alone = [answer(past[n : n + 1], known[n : n + 1], None) for n in range(0, 64, 4)]
    moved = float(np.abs(np.concatenate(alone) - together[::4]).max() / together.std())
    figures = {"again": Limited(float(again), 0)}
    return {**figures, "alone": moved if attn in CHOOSING else Limited(moved, 1e-5)}


def same_bits(sizes: Sizes, name: str, attn: str) -> Figures:
    models = [trained(choose(sizes, name, attn), sizes.steps)[0] for _ in range(2)]
    return {"apart": apart(*models)}


def apart(one: nn.Module, other: nn.Module) -> float:
    with torch.no_grad():
        return relative(*(nn.utils.parameters_to_vector(m.parameters()) for m in (one, other)))


def graphs(sizes: Sizes, name: str, attn: str) -> Figures:
    """Without and with train.graphs: what a further step takes, and the peak of memory beside the
    expected one; and how far apart the weights end."""
    network, models = choose(sizes, name, attn), []
    figures: Figures = {}
    for kind, graphed in (("", False), ("graphs ", True)):
        few, many = (trained(network, n * sizes.steps, graphs=graphed) for n in (1, 12))
        figures[f"{kind}ms"] = 1e3 * (many[1].seconds - few[1].seconds) / (11 * sizes.steps)
        figures[f"{kind}MiB"] = torch.cuda.max_memory_allocated() / 2**20
        figures[f"{kind}expected MiB"] = many[2] / 2**20
        models.append(many[0])
    return {**figures, "apart": apart(*models)}


def masks(sizes: Sizes, length: int, causal: bool, name: str) -> Figures:
    """A pattern by one masked call, and by tiles."""
    pattern, steps = PATTERNS[name](length, causal), torch.arange(length, device=GPU)
    mask = pattern(steps[:, None], steps)
    tensors = {name: drawn(2, 4, length, 64) for name in "qkv"}
    exact = {name: x.float() for name, x in tensors.items()}

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.125)

    def tiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with mock.patch.object(patterns, "suits_mask", return_value=False):
            return TILED[name](q, k, v, causal=causal)

    wanted, figures = both_ways(masked, exact), {}
    for title, call in (("masked", masked), ("tiled", tiled)):
        apart = max(map(relative, both_ways(call, tensors), wanted))
        figures[f"{title} apart"] = Limited(apart, 0.02)
        figures[f"{title} ms"] = milliseconds(partial(both_ways, call, tensors), sizes.rounds)
    again = partial(both_ways, masked, tensors)
    return {**figures, **beside_sdpa(sizes, again, tensors.values(), causal)}


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, device=GPU, dtype=torch.bfloat16)


def beside_sdpa(
    sizes: Sizes, call: Callable[[], object], qkv: Iterable[Tensor], causal: bool
) -> Figures:
    """The time of a call, and that of SDPA."""
    fused, tensors = call_fused(*qkv, drawn)
    took = milliseconds(call, sizes.rounds)
    sdpa = milliseconds(partial(both_ways, partial(fused, causal=causal), tensors), sizes.rounds)
    return {"ms": took, "SDPA ms": sdpa, "ratio": took / sdpa}


def milliseconds(call: Callable[[], object], rounds: int) -> float:
    """The median over rounds, after two calls: ten calls a round, fewer if they take over 0.1 s,
    and one round of calls that take a second."""

    def timed(calls: int) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / calls

    call()
    once = timed(1)
    calls, rounds = max(1, min(10, int(0.1 / once))), max(1, min(rounds, int(1 / once)))
    return 1e3 * median(timed(calls) for _ in range(rounds))


def steps(sizes: Sizes, name: str, attn: str) -> Figures:
    network = choose(sizes, name, attn)

    def measure() -> float:
        return milliseconds(ours(network, GPU), sizes.rounds)

    took, rise = machine.memory_rise(measure, GPU)
    windows = 1e3 * network.load().train.batch / took
    return {"ms": took, "windows a second": windows, "MiB": (rise or 0) / 2**20}


def cores(sizes: Sizes, length: int, causal: bool, attn: str) -> Figures:
    """Eight heads of 64."""
    qkv = [drawn(sizes.batch, length, 8, 64).transpose(1, 2) for _ in range(3)]
    function, tensors = core_of(attn).build(*qkv, drawn)
    call = partial(both_ways, partial(function, causal=causal), tensors)
    return beside_sdpa(sizes, call, qkv, causal)


def served(sizes: Sizes, kind: str) -> Figures:
    there, found = fitted(sizes, kind, GPU).fitted, {}
    for predictor, count in product((there, Predictor(there.bundle, "cpu")), sizes.batches):
        call = partial(predictor.forecast_quantiles, question(predictor, count), predictor.levels)
        found[f"{predictor.device} {count} ms"] = milliseconds(call, sizes.rounds)
    return found


def parts(sizes: Sizes) -> list[Part]:
    default, either = ("default",), (False, True)
    shares: list[tuple[float, Callable[..., Figures], tuple[Iterable[Any], ...]]] = [
        (20, environment, ()),
        (sizes.tests, tests, ()),
        (80, correct, (sizes.trained,)),
        (40, waits, (default, sizes.attentions)),
        (20, bf16, (sizes.attentions,)),
        (10, answers, (sizes.attentions,)),
        (35, same_bits, (sizes.networks, sizes.attentions)),
        (30, masks, (sizes.masked, either, PATTERNS)),
        (60, graphs, (sizes.networks, sizes.attentions)),
        (40, steps, (sizes.networks, sizes.attentions)),
        (50, cores, (sizes.lengths, either, sizes.attentions)),
        (40, served, (sizes.served,)),
    ]
    return [Part(each.__name__, share, partial(each, sizes), of) for share, each, of in shares]


if __name__ == "__main__":
    command_line(__doc__, lambda seconds: parts(Sizes(tests=min(130, seconds))), GPU)
