"""Optimiser steps as CUDA graphs: one launch replays the hundred and more of a step.

A graph repeats the same kernels on the same memory. So batches are copied into its own tensors,
learning rates are tensors, what attentions draw on the host is drawn before (common/draws.py), and
nothing in a step may wait for the device.
"""

from collections import Counter
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from forecaster.attention.common.draws import DrawingAttention
from forecaster.base.progress import Say
from forecaster.config.run_config import TrainConfig
from forecaster.datasets.windows import Batch
from forecaster.model import ForecastModel

WARM = 3
"""So many steps of a shape run before it is captured, in which libraries choose and allocate; as
many as torch.cuda.make_graphed_callables takes."""
Step = Callable[[Batch], Tensor]


def suits_graphs(config: TrainConfig, model: ForecastModel, device: str) -> bool:
    """Whether the steps of a training are graphs, unless they wait: on CUDA, in one part and
    without checkpointing."""
    one = config.accumulate == 1 and not config.checkpointing
    return device == "cuda" and config.graphs and one


class GraphedStep:
    """Calls `step`, a whole optimiser step that returns its loss, by one graph for each shape.

    The first WARM steps of a shape run as they are; in the last of them, waiting for the device is
    an error. After an error all steps run as they are, and `say` gets one sentence.
    """

    def __init__(self, step: Step, model: torch.nn.Module, say: Say) -> None:
        self.step, self.say, self.off = step, say, False
        self.drawing = [m for m in model.modules() if isinstance(m, DrawingAttention)]
        self.warm = Counter[Hashable]()
        self.replays: dict[Hashable, Step] = {}
        for module in self.drawing:
            module.ahead = {}

    def __call__(self, batch: Batch) -> Tensor:
        for module in self.drawing:
            module.draw_ahead()
        shape = tuple(None if x is None else x.shape for x in batch)
        try:
            if not self.off and shape not in self.replays:
                self.warm[shape] += 1
                if self.warm[shape] <= WARM:
                    return self._warm(batch, strict=self.warm[shape] == WARM)
                self.replays[shape] = self._capture(batch)
        except RuntimeError as error:
            self.say(f"train.graphs: steps run as they are, since one failed: {str(error)[:200]}")
            self.end()
        return self.step(batch) if self.off else self.replays[shape](batch)

    def end(self) -> None:
        """Replay no more, and free the memory of the graphs."""
        self.off = True
        self.replays.clear()
        for module in self.drawing:
            module.ahead = None

    def _warm(self, batch: Batch, strict: bool) -> Tensor:
        stream = torch.cuda.Stream()  # as a capture wants it
        stream.wait_stream(torch.cuda.current_stream())
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error" if strict else before)
        try:
            with torch.cuda.stream(stream):
                loss = self.step(batch)
        finally:
            torch.cuda.set_sync_debug_mode(before)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _capture(self, batch: Batch) -> Step:
        static, graph = batch.map(Tensor.clone), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self.step(static)

        def replay(batch: Batch) -> Tensor:
            into, new = ([x for x in given if x is not None] for given in (static, batch))
            torch._foreach_copy_(into, new)
            graph.replay()
            return loss.clone()

        return replay
