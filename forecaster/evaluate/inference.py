"""Time and memory of one forecast of a trained model, in a separate process."""

import time
from dataclasses import dataclass, replace
from statistics import median

import torch

from forecaster.base.errors import ForecasterError
from forecaster.base.machine import memory_rise
from forecaster.base.workers import FailedError, Worker
from forecaster.forecast.bundle import Bundle
from forecaster.record import Record

CALLS = 21
TOGETHER = 32
PATIENCE = 300.0
"""Seconds for a process to start."""


@dataclass(frozen=True)
class Inference:
    """`milliseconds` for one window: the median of 21 calls on one thread of the processor; `mib`:
    the largest rise of memory while 32 windows are forecast at once (Linux; else None)."""

    milliseconds: float
    mib: float | None


def inference(bundle: Bundle) -> Inference:
    """Measure a model on windows of noise. Raises ForecasterError if the process fails."""
    weights = {name: weight.numpy() for name, weight in bundle.weights.items()}
    with Worker(_measure).ask(
        Bundle(bundle.config, bundle.schema, weights, Record(), {})
    ) as worker:
        try:
            found: Inference = worker.receive(PATIENCE)
        except FailedError as failure:
            raise ForecasterError(f"the process that measures a forecast {failure}") from None
    return found


def _measure(bundle: Bundle) -> Inference:
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
        _, rise = memory_rise(lambda: forecast(TOGETHER), "cpu")
    return Inference(1e3 * median(times), None if rise is None else rise / 2**20)
