"""Choose where a network starts: the untrained forecast that is best on the training rows."""

from typing import Any

import torch

from forecaster.base.errors import UsageError
from forecaster.config.run_config import RunConfig
from forecaster.datasets.windows import Windows
from forecaster.model import Task

STARTS: tuple[dict[str, Any], ...] = (
    {"centre": "cycle", "changes": False, "shrink": True},
    {"centre": "cycle", "changes": True, "shrink": False},
    {"centre": "last", "changes": True, "shrink": False},
)
"""The candidates: the mean of the past cycles; or the level of the last cycle, or the last value,
continued by the mean change. A drifting series is then not pulled back to the training mean."""

MOST = 512
"""The most training windows that are read, evenly spaced."""


def is_open(config: RunConfig) -> bool:
    """Whether the data decide where the network starts: an option of STARTS is None."""
    options = config.model.options
    return any(name in options and options[name] is None for name in STARTS[0])


def with_start(config: RunConfig, task: Task, training: Windows) -> RunConfig:
    """Fill in those of `centre`, `changes` and `shrink` that are None in a configuration.

    The values come from the entry of STARTS, with named options kept, whose forecast before
    training has the least squared error on `training`; the first among equals. Nothing else is
    read.
    """
    options = config.model.options
    named = {name: options[name] for name in STARTS[0] if options[name] is not None}
    configs = [
        config.model_copy(update={"model": config.model.model_copy(update={**start, **named})})
        for start in STARTS
    ]
    return min(configs, key=lambda each: untrained_error(each, task, training))


def untrained_error(config: RunConfig, task: Task, windows: Windows) -> float:
    """The mean squared error of the model before training; infinite if it cannot be built."""
    try:
        with torch.random.fork_rng(devices=[]):
            model = config.build_model(task).eval()
    except UsageError:
        return float("inf")
    model.prepare(windows.rows())  # a prior is known before training
    count = min(len(windows), MOST)
    chosen = torch.linspace(0, len(windows) - 1, count, dtype=torch.float64).round().long()
    error = seen = 0.0
    with torch.inference_mode():
        for index in chosen.split(windows.evaluation_batch):
            batch = windows.batch(index)
            apart = (model(*batch.inputs) - batch.target).double().square()
            if batch.target_observed is not None:
                apart = apart[batch.target_observed]
            error, seen = error + float(apart.sum()), seen + apart.numel()
    return error / max(seen, 1)
