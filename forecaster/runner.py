"""A model on its device: arrays in, arrays out.

On a GPU, arrays are copied through pinned memory, and the host waits once, for the answer. A batch
launches hundreds of small kernels; they are captured as a CUDA graph and replayed as one launch.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from forecaster import machine
from forecaster.attention import Attention
from forecaster.errors import DeviceLostError
from forecaster.parts import Blend

LARGEST = 256
"""The largest captured batch; the kernels of larger ones take longer than their launches."""

_TURN = Lock()  # for all runners: static inputs and the settings of cuDNN are shared


class Runner:
    """Calls `model.quantiles` on `device`, "cpu" or "cuda", which already holds its weights.

    On a CPU it uses exactly `threads` threads: another number changes the last digits. There is one
    graph for each power of two of windows up to LARGEST, with and without missing values, captured
    on first use; a batch is padded with its last window. `graphs` is False on a CPU, with an
    attention that stalls, and after a capture has failed (RuntimeWarning).
    """

    def __init__(self, model: Blend, device: str, threads: int = 1) -> None:
        self.model, self.threads = model, threads
        self._gpu = Cuda() if device == "cuda" else None
        self.graphs = self._gpu is not None and never_waits(model)
        self._graphs: dict[tuple[int, int], _Graph] = {}

    def __call__(
        self, past: np.ndarray, known: np.ndarray, observed: np.ndarray | None
    ) -> np.ndarray:
        """The quantiles (B, T, targets, Q) of scaled values.

        past (B, P, C) float32, 0 where missing; known (B, P + T, F) float32; observed (B, P, C)
        bool, None if nothing is missing. Raises torch.OutOfMemoryError if the batch is too large
        for the device, DeviceLostError if the device no longer works.
        """
        arrays = [past, known] if observed is None else [past, known, observed]
        with torch.inference_mode():
            if self._gpu is None:
                with machine.threads(self.threads):
                    return self._forward(*map(torch.from_numpy, arrays)).numpy()
            with _TURN:
                return self._on_gpu(self._gpu, arrays)

    def _forward(self, past: Tensor, known: Tensor, observed: Tensor | None = None) -> Tensor:
        steps = self.model.task.past
        return self.model.quantiles(past, known[:, :steps], known[:, steps:], observed)

    def _on_gpu(self, gpu: "Cuda", arrays: Sequence[np.ndarray]) -> np.ndarray:
        count = len(arrays[0])
        try:
            with gpu.at_work():
                graph = self._graph(gpu, arrays) if self.graphs and count <= LARGEST else None
                if graph is None:
                    output = self._forward(*(gpu.send(array) for array in arrays))
                else:
                    graph.fill(gpu, arrays)
                    graph.replay()
                    output = graph.output[:count]
                return gpu.receive(output)
        except RuntimeError as error:
            if _is_full(error):
                raise torch.OutOfMemoryError(_first_line(error)) from None
            if gpu.works():
                raise
            raise DeviceLostError(f"the GPU is lost: {_first_line(error)}") from error

    def _graph(self, gpu: "Cuda", arrays: Sequence[np.ndarray]) -> "_Graph | None":
        """The graph for a batch of this size; None if it cannot be captured."""
        size = 1 << (len(arrays[0]) - 1).bit_length()
        key = size, len(arrays)
        if key not in self._graphs:
            inputs = [gpu.send(array, size) for array in arrays]
            self._forward(*inputs)  # the set-up in a first call must not be captured
            try:
                replay, output = gpu.capture(lambda: self._forward(*inputs))
            except RuntimeError as error:
                if _is_full(error) or not gpu.works():
                    raise
                self.graphs = False
                warnings.warn(
                    f"this model runs without CUDA graphs: {_first_line(error)}",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return None
            self._graphs[key] = _Graph(inputs, replay, output)
        return self._graphs[key]


@dataclass(frozen=True)
class _Graph:
    inputs: list[Tensor]
    replay: Callable[[], None]
    output: Tensor

    def fill(self, gpu: "Cuda", arrays: Sequence[np.ndarray]) -> None:
        for tensor, array in zip(self.inputs, arrays, strict=True):
            tensor.copy_(gpu.pinned(array, len(tensor)), non_blocking=True)


class Cuda:
    """The current CUDA device, with a stream and a pool of memory for graphs."""

    device = "cuda"

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())  # it copied the weights
        self.pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Use our stream, with convolutions as exact as the evaluation's products.

        In TF32, cuDNN's default, their error is 1e-3 and varies with the batch.
        """
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
        with torch.cuda.stream(self.stream), exact:
            yield

    def host(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Pinned memory of the host, which the device reads and writes directly."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def pinned(self, array: np.ndarray, rows: int | None = None) -> Tensor:
        """A copy in pinned memory, padded to `rows` with the last row."""
        given = torch.from_numpy(array)
        count = len(given)
        copy = self.host((rows or count, *given.shape[1:]), given.dtype)
        copy[:count] = given
        copy[count:] = given[-1]
        return copy

    def send(self, array: np.ndarray, rows: int | None = None) -> Tensor:
        """The `pinned` array, copied to the device."""
        return self.pinned(array, rows).to(self.device, non_blocking=True)

    def receive(self, output: Tensor) -> np.ndarray:
        """Copy an output to the host; the only place where the host waits."""
        copy = self.host(output.shape, output.dtype)
        copy.copy_(output, non_blocking=True)
        self.stream.synchronize()
        return copy.numpy()

    def capture(self, call: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Capture `call`; return a function that replays it, and the tensor of its result.

        Other threads may continue to use the device meanwhile.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"
        ):
            output = call()
        return graph.replay, output

    def works(self) -> bool:
        """Whether the device still computes; in a broken context, every later call fails, too."""
        try:
            return bool(torch.ones(1, device=self.device).sum().item() == 1)
        except torch.OutOfMemoryError:
            return True
        except RuntimeError:
            return False


def never_waits(model: torch.nn.Module) -> bool:
    """Whether no attention of the model stalls."""
    kinds = {type(module) for module in model.modules() if isinstance(module, Attention)}
    return not any(kind.about.stalls for kind in kinds)


def _is_full(error: RuntimeError) -> bool:
    """Whether memory ran out: torch's, pinned memory, or that of a graph or of cuBLAS."""
    words = ("out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
