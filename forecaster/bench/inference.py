"""Time and memory of one forecast of a trained model, in a process of its own."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

import torch

from forecaster.bench.cells import PATIENCE, Child, NotMeasuredError, resident
from forecaster.bundle import Bundle
from forecaster.errors import ForecasterError

CALLS = 21
TOGETHER = 32


@dataclass(frozen=True)
class Inference:
    """`milliseconds` for one window, the median of 21 calls on one thread of the processor; `mib`
    by which memory rises at most while 32 windows are forecast at once (Linux; else None)."""

    milliseconds: float
    mib: float | None


def inference(bundle: Bundle) -> Inference:
    """Measure a model on windows of noise. Raises ForecasterError when its process fails."""
    weights = {name: weight.numpy() for name, weight in bundle.weights.items()}
    with Child(_measure, Bundle(bundle.config, bundle.schema, weights, {}, {})) as child:
        try:
            milliseconds, mib = child.receive(PATIENCE)
        except NotMeasuredError as reason:
            raise ForecasterError(f"the process that measures a forecast {reason}") from None
    return Inference(milliseconds, mib)


def _measure(bundle: Bundle) -> Iterator[tuple[float, float | None]]:
    torch.set_num_threads(1)
    weights = {name: torch.from_numpy(weight) for name, weight in bundle.weights.items()}
    model = replace(bundle, weights=weights).build()
    task, draw = model.task, torch.Generator().manual_seed(0)

    def forecast(count: int) -> float:
        past = torch.randn(count, task.past, task.columns, generator=draw)
        features = task.calendar + task.covariates
        known = (torch.zeros(count, n, features) for n in (task.past, task.horizon))
        before = time.perf_counter()
        model(past, *known)
        return time.perf_counter() - before

    with torch.inference_mode():
        times = [forecast(1) for _ in range(CALLS + 1)][1:]
        mib = None
        if sys.platform == "linux":
            before = resident("VmRSS", forget_peak=True)
            forecast(TOGETHER)
            mib = (resident("VmHWM") - before) / 2**20
    yield 1e3 * median(times), mib
