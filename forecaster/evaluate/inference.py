"""Time and memory of one forecast of a trained model."""

import time
from statistics import median

import torch

from forecaster.base.machine import memory_rise, threads
from forecaster.forecast.bundle import Bundle

CALLS, TOGETHER = 21, 32  # odd, so that one call is the median; a round number


def inference(bundle: Bundle) -> dict[str, float | None]:
    """The costs of a model by the names of metrics, measured on windows of noise.

    `inference_ms` is the median of CALLS calls for one window on one thread of the processor;
    `peak_mib` is the largest rise of memory while TOGETHER windows are forecast at once (Linux;
    else None). Raises BundleError as `Bundle.build` does.
    """
    model = bundle.build()
    task, draw = model.task, torch.Generator().manual_seed(0)

    def forecast(count: int) -> float:
        past = torch.randn(count, task.past, task.columns, generator=draw)
        features = task.calendar + task.covariates
        known = (torch.zeros(count, n, features) for n in (task.past, task.horizon))
        steps = task.past + task.horizon if bundle.schema.known.shifting else 1  # as Batch.beside
        beside = torch.ones(count, steps, len(task.targets))
        more = {"beside": beside} if model.takes_beside else {}
        before = time.perf_counter()
        model(past, *known, **more)
        return time.perf_counter() - before

    with threads(1), torch.inference_mode():
        times = [forecast(1) for _ in range(CALLS + 1)][1:]
        _, rise = memory_rise(lambda: forecast(TOGETHER), "cpu")
    mib = None if rise is None else rise / 2**20
    return {"inference_ms": 1e3 * median(times), "peak_mib": mib}
