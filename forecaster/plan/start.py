"""Choose where a network starts: the untrained forecast that is best on the training rows."""

from collections.abc import Sequence
from typing import Any

import torch

from forecaster.base.errors import UsageError
from forecaster.config.run_config import RunConfig
from forecaster.datasets.windows import Windows, sample
from forecaster.model import Task

STARTS: tuple[dict[str, Any], ...] = (
    {"centre": "cycle", "changes": False, "shrink": True},
    {"centre": "cycle", "changes": True, "shrink": False},
    {"centre": "last", "changes": True, "shrink": False},
)
"""The candidates: the mean of the past cycles; or the level of the last cycle, or the last value,
continued by the mean change. A drifting series is then not pulled back to the training mean."""
WINDOWS = 512
"""The most training windows, evenly spaced, that decide."""


def left_open(config: RunConfig) -> list[str]:
    """The options of a model that the data decide: those of `centre`, `changes`, `shrink` that are
    None."""
    options = config.model.options
    return [name for name in STARTS[0] if name in options and options[name] is None]


def started(config: RunConfig, names: Sequence[str], task: Task, training: Windows) -> RunConfig:
    """Fill in the `names` that are open with those of the entry of STARTS whose model, built but
    not trained, has the least squared error on the training windows; the first among equals."""
    candidates = [config.changed(model={n: start[n] for n in names}) for start in STARTS]
    return min(candidates, key=lambda candidate: untrained_error(candidate, task, training))


def untrained_error(config: RunConfig, task: Task, training: Windows) -> float:
    """The mean squared error of a model before training; infinite if it cannot be built."""
    try:
        with torch.random.fork_rng(devices=[]):
            model = config.build_model(task).eval()
    except UsageError:
        return float("inf")
    model.prepare(training.rows())  # a prior is known before training
    error = count = 0.0
    with torch.inference_mode():
        for batch in sample(training, WINDOWS):
            squared = (model(*batch.inputs) - batch.target).double().square()
            if batch.target_observed is not None:
                squared = squared[batch.target_observed]
            error, count = error + float(squared.sum()), count + squared.numel()
    return error / max(count, 1)
