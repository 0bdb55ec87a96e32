"""An estimate of the memory that a training will take, and the options that make it fit.

A step of one window and one of two windows run on a copy of the network: the two peaks give a line
in the number of windows. On a GPU they are those of torch's allocator. On a CPU the bytes alive
after each operation are counted, and the heap takes HEAP times as much, because memory freed
between blocks in use is not returned. To this are
added the gradients of the weights, the two moments of the optimiser, the kept copies of the best
weights, and what the process already holds.
"""

import copy
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from forecaster.attention.common.draws import DrawingAttention
from forecaster.base import machine
from forecaster.base.errors import UnavailableError
from forecaster.base.progress import Say, detail
from forecaster.base.spelling import spelled
from forecaster.config.run_config import TrainConfig
from forecaster.datasets.windows import Windows
from forecaster.model import ForecastModel
from forecaster.model.blocks import DecoderLayer, EncoderLayer
from forecaster.train.graphs import suits_graphs
from forecaster.train.module import ForecastModule

HEAP = {"cpu": 1.85, "cuda": 1.1}
"""The ratio of memory taken to memory alive, as measured with glibc's malloc
(docs/performance.md); on a GPU, torch's allocator rounds up."""
COPIES = 5
"""The copies of the weights in addition to themselves: gradients, two moments, two kept states."""
PARTS = tuple(2**n for n in range(1, 16))
"""The numbers of parts into which a step may be divided."""
STARTED = {"cpu": 30 * 2**20, "cuda": 2**27}
"""The bytes that the first step loads: kernels and threads; on a GPU libraries' memory."""


@contextmanager
def checkpointed(model: nn.Module) -> Iterator[None]:
    """Make each layer, in this block, keep only its input and compute again for its gradient.

    The second computation uses the same random numbers (Chen et al., Training Deep Nets with
    Sublinear Memory Cost, 2016).
    """
    layers = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer)]
    for layer in layers:
        vars(layer)["forward"] = partial(_again, layer, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


def _again(
    layer: nn.Module, forward: Callable[..., Tensor], *arguments: Any, **named: Any
) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(*arguments, **named)
    drawing = {m: m.draws for m in layer.modules() if isinstance(m, DrawingAttention)}

    def compute(*arguments: Any, **named: Any) -> Tensor:
        for module, draws in drawing.items():  # the second time, it draws what it drew before
            module.draws = draws
        return forward(*arguments, **named)

    out: Tensor = checkpoint(compute, *arguments, use_reentrant=False, **named)
    return out


def ensure_it_fits(
    model: ForecastModel,
    train: Windows,
    config: TrainConfig,
    device: str,
    say: Say,
    *,
    bf16: bool = False,
) -> int:
    """Report and return the memory that a training will take, in bytes.

    It takes the time of three windows, and changes nothing that the training draws or counts.
    Raises UnavailableError, naming an option that makes it fit, if less memory is available.
    """
    # on a GPU the first step is not counted: in it, libraries take some for themselves
    sizes = (1, 2) if device == "cpu" else (1, 1, 2)
    *_, one, two = (HEAP[device] * _peak(model, train, config, n, bf16) for n in sizes)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    held = machine.resident() if device == "cpu" else torch.cuda.memory_allocated() + weights

    def needed(parts: int) -> int:
        """The bytes at the peak of a training with so many parts to a step."""
        more = (-(-config.batch // parts) - 1) * max(two - one, 0.0)
        # with graphs, that of a step as it is and of two sizes of batch (train/graphs.py)
        runs = 3 if graphs and parts == 1 else 1
        return held + STARTED[device] + COPIES * weights + int((one + more) * runs)

    graphs = suits_graphs(config, model, device)
    expected, left = needed(config.accumulate), machine.memory_left(device)
    if left is None:
        detail(say, f"memory: about {gib(expected)}")
        return expected
    room = held + left
    detail(say, f"memory: about {gib(expected)} of {gib(room)}")
    if expected > room:
        fitting = (k for k in PARTS if config.accumulate < k <= config.batch and needed(k) <= room)
        parts = next(fitting, None)
        advice = "set train.checkpointing=true, a shorter window.past or a smaller model.width"
        if parts is not None:
            advice = f"{spelled('train.accumulate', parts)} fits, with the same gradient"
        if graphs:
            advice = f"{spelled('train.graphs', False)} takes less"
        raise UnavailableError(
            f"this training takes about {gib(expected)} at its peak, but only {gib(room)} are "
            f"available: {advice}"
        )
    return expected


def gib(size: float) -> str:
    return f"{size / 2**30:.2g} GiB"


class Alive(TorchDispatchMode):
    """Bytes of the storages that operations made and that are alive, `now` and at their `peak`.

    Raises UnavailableError for more than `most`; weights are counted before they are filled.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = most
        self.now = 0
        self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for tensor in _dense((args, kwargs)):
            self._know(tensor.untyped_storage(), new=False)
        out = function(*args, **(kwargs or {}))
        for tensor in _dense(out):
            self._know(tensor.untyped_storage(), new=True)
        self.peak = max(self.peak, self.now)
        if self.most is not None and self.now > self.most:
            raise UnavailableError(
                f"the weights alone take more than the {gib(self.most)} that are available: set a "
                "smaller model.width or model.feed_forward"
            )
        return out

    def _know(self, storage: torch.UntypedStorage, *, new: bool) -> None:
        if id(storage) in self._known:
            return
        self._known.add(id(storage))
        size = storage.nbytes() if new else 0
        self.now += size
        weakref.finalize(storage, self._forget, id(storage), size)

    def _forget(self, which: int, size: int) -> None:
        self._known.discard(which)
        self.now -= size


def _dense(values: Any) -> Iterator[Tensor]:
    """Yield the tensors among some values, for a sparse tensor those that it consists of."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor) and leaf.layout is torch.sparse_csr:
            yield from (leaf.crow_indices(), leaf.col_indices(), leaf.values())
        elif isinstance(leaf, Tensor):
            yield leaf


def _peak(
    model: ForecastModel, train: Windows, config: TrainConfig, windows: int, bf16: bool
) -> int:
    """The bytes alive at the peak of a step of `windows` windows, without weights and gradients."""
    device = train.values.device.type
    model = copy.deepcopy(model).to(device).train()
    for weight in model.parameters():
        if weight.requires_grad:
            weight.register_post_accumulate_grad_hook(_drop)
    module = ForecastModule(model, config)
    inside = checkpointed(model) if config.checkpointing else nullcontext()

    def step() -> None:
        batch = train.batch(torch.arange(windows) % len(train))
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = module.loss(batch)
        loss.backward()

    with (
        torch.random.fork_rng(devices=[] if device == "cpu" else [torch.cuda.current_device()]),
        inside,
    ):
        if device != "cpu":
            return int(machine.memory_rise(step, device)[1] or 0)
        tracker = Alive()
        with tracker:
            step()
    return tracker.peak


def _drop(weight: Tensor) -> None:
    weight.grad = None
