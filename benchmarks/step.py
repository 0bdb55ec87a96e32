"""One optimiser step of our networks against its matrix products alone and other Informers.

    python -m benchmarks.step                       every network, one and two threads
    python -m benchmarks.step --config informer --threads 1 --rounds 5 --json

Networks: the paper's Informer on ETTh1 (M), 96/48/336 (`informer`) and 168/168/168, the shipped
informer.yaml (`informer-168`), and that of the default recipe, T = 336 (`default`). A step is
forward, loss, backward, clipping where the recipe has it, and the optimiser; the batch is random,
because the values do not matter.

- The products are those that the step itself runs, forward and backward, recorded by a dispatch
  mode: mm, addmm, bmm, baddbmm, convolutions, the sampled scores of prob, and, as batched products,
  those inside the fused attention. Each is timed on random operands of its sizes and strides.
- The reference is benchmarks/reference.py. NeuralForecast's Informer (extra `bench`) forecasts one
  column per window, so that seven of its windows make one of ours.
- All take turns in one process, which keeps the memory it frees, as `fit` does; the results are
  medians. With one thread the time is processor time, so that other work on the machine matters
  little; with more it is wall time.
- Memory is the rise of the resident peak from before the model is built to the end of its second
  step, in a fresh process for each (on Linux).

The results are kept in benchmarks/results/, from which benchmarks/render.py makes the table.
"""

import argparse
import importlib.util
import json
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import reference
from forecaster.base.machine import keeping_memory, memory_rise
from forecaster.base.progress import Bar
from forecaster.base.workers import Worker
from forecaster.config.run_config import RunConfig, load
from forecaster.datasets.windows import Batch
from forecaster.model import Task
from forecaster.study.bench import Setup, about
from forecaster.train.fit import takes_bf16
from forecaster.train.module import ForecastModule

RESULTS = Path(__file__).parent / "results"
COLUMNS, CALENDAR, SEASON = 7, 4, 24  # of ETTh1
NO_NEURAL = "neuralforecast is not installed (extra [bench]); its Informer was not measured"
Step = Callable[[], object]


@dataclass(frozen=True)
class Network:
    """A configuration and its lengths; `sets` are other options, as `--set` takes them."""

    config: str
    past: int
    start: int
    horizon: int
    sets: tuple[str, ...] = ()

    def load(self) -> RunConfig:
        return load(self.config, self.sets, environment={}).config

    @property
    def task(self) -> Task:
        targets = tuple(range(COLUMNS))
        return Task(COLUMNS, targets, self.past, self.start, self.horizon, CALENDAR, SEASON)


NETWORKS = {
    "informer": Network("informer", 96, 48, 336),
    "informer-168": Network("informer", 168, 168, 168),
    "default": Network("default", 504, 252, 336),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print the documents")
    parser.add_argument("--no-keep", action="store_true", help="write no results")
    arguments = parser.parse_args()
    documents = [
        measure(name, threads, arguments.rounds)
        for name in arguments.config
        for threads in arguments.threads
    ]
    for document in documents:
        if not arguments.no_keep:
            file = f"step-{document['config']}-{document['threads']}-threads.json"
            (RESULTS / file).write_text(json.dumps(document, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(documents, indent=1))
        return
    for document in documents:
        print(f"{document['config']}, {document['hardware']}")
        for key in ("step_s", "products_s", "products_gflop", "ratios", "peak_mib", "skipped"):
            print(f"  {key}: {document[key]}")


def measure(name: str, threads: int, rounds: int) -> dict[str, Any]:
    """Measure one network with `threads` threads; the document that is kept."""
    network = NETWORKS[name]
    facts = about(Setup(threads=threads))
    peaks = {}
    for who in ("ours", "reference") if network.config == "informer" else ("ours",):
        with Worker(peak).ask(name, who, threads) as worker:
            peaks[who] = worker.receive(600)
    torch.set_num_threads(threads)
    own = ours(network)
    own()
    with Products() as found:
        own()
    calls = {"step": own, "products": found.again()}
    skipped = None
    if network.config == "informer":
        calls["reference"] = theirs(network)
        if importlib.util.find_spec("neuralforecast"):
            calls["neuralforecast"] = neural(network)
        else:
            skipped = NO_NEURAL
    with keeping_memory():
        clock = time.process_time if threads == 1 else time.perf_counter
        times = in_turns(calls, rounds, clock, name)
    ratios = {f"by_{who}": times["step"] / times[who] for who in times if who != "step"}
    if "by_neuralforecast" in ratios:
        ratios["by_neuralforecast"] /= COLUMNS
    if peaks.get("reference"):
        ratios["memory_by_reference"] = peaks["ours"] / peaks["reference"]
    return {
        "kind": "step",
        "command": shlex.join(["python", "-m", "benchmarks.step", *sys.argv[1:]]),
        "config": name,
        "past": network.past,
        "start": network.start,
        "horizon": network.horizon,
        "batch": network.load().train.batch,
        "threads": threads,
        "clock": "processor" if threads == 1 else "wall",
        "rounds": rounds,
        **{f"{who}_s": round(seconds, 5) for who, seconds in times.items()},
        "products": len(found.calls),
        "products_gflop": round(found.flop / 1e9, 3),
        "operators": found.operators,
        "peak_mib": {who: peak and round(peak / 2**20, 1) for who, peak in peaks.items()},
        "ratios": {key: round(ratio, 4) for key, ratio in ratios.items()},
        "skipped": skipped,
        **facts,
    }


def in_turns(
    calls: dict[str, Step], rounds: int, clock: Callable[[], float], title: str
) -> dict[str, float]:
    """The median seconds of each, without the first round."""
    times: dict[str, list[float]] = {who: [] for who in calls}
    with Bar(f"measuring {title}", (rounds + 1) * len(calls)) as bar:
        for _ in range(rounds + 1):
            for who, call in calls.items():
                begun = clock()
                call()
                times[who].append(clock() - begun)
                bar.advance(who, 1)
    return {who: median(each[1:]) for who, each in times.items()}


def peak(name: str, who: str, threads: int) -> int | None:
    """The bytes by which a process grows when it builds a network and makes two steps."""
    torch.set_num_threads(threads)
    F.linear(torch.ones(64, 64), torch.ones(64, 64))  # the library's memory

    def twice() -> None:
        step = (ours if who == "ours" else theirs)(NETWORKS[name])
        step()
        step()

    with keeping_memory() if who == "ours" else nullcontext():
        return memory_rise(twice, "cpu")[1]


def ours(network: Network, device: str = "cpu") -> Step:
    """A step as `fit` makes it, without Lightning's loop; it does not wait for a GPU."""
    config, drawn = network.load(), batch(network).map(lambda tensor: tensor.to(device))
    torch.manual_seed(0)
    module = ForecastModule(config.build_model(network.task).train(), config.train).to(device)
    (optimiser,), _ = module.configure_optimizers()
    bf16 = takes_bf16(config.train, module.model, device)

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = module.loss(drawn)
        loss.backward()
        if config.train.clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), config.train.clip)
        optimiser.step()

    return step


def theirs(network: Network) -> Step:
    """The same step of the reference, with the sizes of the configuration."""
    config, drawn = network.load(), batch(network)
    sizes = informer_sizes(config)
    torch.manual_seed(0)
    model = reference.Informer(COLUMNS, CALENDAR, network.start, network.horizon, **sizes)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.train.lr)

    def step() -> None:
        optimiser.zero_grad()
        loss = F.mse_loss(model(drawn.past, drawn.past_known, drawn.future_known), drawn.target)
        loss.backward()
        optimiser.step()

    return step


def informer_sizes(config: RunConfig) -> dict[str, Any]:
    """The sizes of an Informer, under the names that benchmarks/reference.py uses."""
    options = config.model.options
    names = ("width", "heads", "encoder_layers", "decoder_layers", "dropout")
    sizes = {name: options[name] for name in names}
    return {**sizes, "inner": options["feed_forward"], "factor": config.attn.options["factor"]}


def neural(network: Network) -> Step:
    """A step of NeuralForecast's Informer on the same data, in windows of one column."""
    from neuralforecast.losses.pytorch import MSE
    from neuralforecast.models import Informer

    config = network.load()
    sizes = informer_sizes(config)
    calendar = [f"known_{n}" for n in range(CALENDAR)]
    torch.manual_seed(0)
    model = Informer(
        h=network.horizon, input_size=network.past, futr_exog_list=calendar,
        decoder_input_size_multiplier=network.start / network.past,
        hidden_size=sizes["width"], n_head=sizes["heads"], factor=sizes["factor"],
        conv_hidden_size=sizes["inner"], dropout=sizes["dropout"],
        encoder_layers=sizes["encoder_layers"], decoder_layers=sizes["decoder_layers"],
        loss=MSE(),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=config.train.lr)
    drawn = batch(network)
    windows = {
        "insample_y": drawn.past[..., :1],
        "futr_exog": torch.cat([drawn.past_known, drawn.future_known], dim=1),
    }

    def step() -> None:
        optimiser.zero_grad()
        F.mse_loss(model(windows), drawn.target[..., :1]).backward()
        optimiser.step()

    return step


def batch(network: Network) -> Batch:
    """Random windows."""
    size, generator = network.load().train.batch, torch.Generator().manual_seed(0)

    def draw(steps: int, columns: int) -> Tensor:
        return torch.randn(size, steps, columns, generator=generator)

    past, future = network.past, network.horizon
    return Batch(
        draw(past, COLUMNS),
        draw(past, CALENDAR).sigmoid() - 0.5,
        draw(future, CALENDAR).sigmoid() - 0.5,
        draw(future, COLUMNS),
    )


class Products(TorchDispatchMode):
    """Records the matrix products that run under it, by the sizes and strides of their operands."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.flop = 0
        self.operators = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operators += 1
        packet = func.overloadpacket
        if packet in KINDS:
            self.flop += KINDS[packet](args, result)
            # without a given output, which is as large as a new one
            self.calls.append((packet, tuple(Operand.of(each) for each in args)))
        elif packet in FUSED:
            backward = packet is aten._scaled_dot_product_flash_attention_for_cpu_backward
            query, key = args[backward], args[backward + 1]
            for function, operands in inside_attention(query, key, backward):
                self.flop += 2 * query[..., 0].numel() * key.shape[2] * query.shape[3]
                self.calls.append((function, operands))
        return result

    def again(self) -> Step:
        """A function that runs all of them again, on random numbers."""
        most = max(each.reach for _, args in self.calls for each in args if type(each) is Operand)
        stores = [torch.randn(most) for _ in range(3)]

        def run() -> None:
            for function, args in self.calls:
                store = iter(stores)
                function(
                    *(each.view(next(store)) if type(each) is Operand else each for each in args)
                )

        return run


@dataclass(frozen=True)
class Operand:
    """Sizes and strides of a tensor."""

    size: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, value: Any) -> Any:
        """The operand for a dense tensor; a sparse one keeps its pattern, other values stay as they
        are."""
        if not isinstance(value, Tensor):
            return value
        if value.layout is not torch.strided:
            return value.detach().clone()
        return cls(tuple(value.shape), value.stride())

    @property
    def reach(self) -> int:
        return 1 + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))

    def view(self, store: Tensor) -> Tensor:
        return store.as_strided(self.size, self.stride)


def inside_attention(query: Tensor, key: Tensor, backward: bool) -> list[tuple[Any, Any]]:
    """The products of the fused kernel: two forward, and five backward, with recomputed scores.

    query (B, H, L, E), key (B, H, S, E); each pair of matrices is contiguous in memory.
    """
    batch, (L, E), S = query.shape[0] * query.shape[1], query.shape[2:], key.shape[2]

    def matrix(rows: int, columns: int, turned: bool = False) -> Operand:
        stride = (1, rows) if turned else (columns, 1)
        return Operand((batch, rows, columns), (rows * columns, *stride))

    scores = (aten.bmm, (matrix(L, E), matrix(E, S, turned=True)))
    mixed = (aten.bmm, (matrix(L, S), matrix(S, E)))
    turned = (aten.bmm, (matrix(S, L, turned=True), matrix(L, E)))
    return [scores, scores, mixed, turned, turned] if backward else [scores, mixed]


def _product(left: int) -> Callable[[tuple[Any, ...], Tensor], int]:
    """The operation count of a product whose left operand is argument number `left`."""
    return lambda args, result: 2 * result.numel() * args[left].shape[-1]


def _sampled(args: tuple[Any, ...], result: Tensor) -> int:
    return 2 * int(args[0].values().numel()) * int(args[1].shape[-1])


def _convolution(args: tuple[Any, ...], result: Tensor) -> int:
    return 2 * result.numel() * int(args[1][0].numel())


def _convolution_backward(args: tuple[Any, ...], result: Any) -> int:
    wanted = sum(bool(each) for each in args[-1][:2])
    return wanted * 2 * int(args[0].numel()) * int(args[2][0].numel())


aten = torch.ops.aten
KINDS: dict[Any, Callable[..., int]] = {
    aten.mm: _product(0),
    aten.bmm: _product(0),
    aten.addmm: _product(1),
    aten.baddbmm: _product(1),
    aten.sparse_sampled_addmm: _sampled,
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
}
FUSED = (
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward,
)


if __name__ == "__main__":
    main()
