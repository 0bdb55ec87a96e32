"""Choose where a network starts: the untrained forecast that is best on the training rows."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from forecaster.base.errors import UsageError
from forecaster.model.base import ForecastModel

STARTS: tuple[dict[str, Any], ...] = (
    {"centre": "cycle", "changes": False, "shrink": True},
    {"centre": "cycle", "changes": True, "shrink": False},
    {"centre": "last", "changes": True, "shrink": False},
)
"""The candidates: the mean of the past cycles; or the level of the last cycle, or the last value,
continued by the mean change. A drifting series is then not pulled back to the training mean."""

Rows = Iterable[tuple[Tensor, Tensor]]
"""The training rows, as `ForecastModel.prepare` takes them."""
Example = tuple[tuple[Tensor | None, ...], Tensor, Tensor | None]
"""The inputs of a model, the target, and which values of the target are observed, None for all."""


def is_open(options: Mapping[str, Any]) -> bool:
    """Whether the data decide where the network starts: an option of STARTS is None."""
    return any(name in options and options[name] is None for name in STARTS[0])


def with_start(
    options: Mapping[str, Any],
    build: Callable[[dict[str, Any]], ForecastModel],
    rows: Callable[[], Rows],
    examples: Callable[[], Iterable[Example]],
) -> dict[str, Any]:
    """Fill in those of `centre`, `changes` and `shrink` that are None in the options of a model.

    The values come from the entry of STARTS, with named options kept, whose model, built but not
    trained, has the least squared error on the `examples`; the first among equals.
    """
    named = {name: options[name] for name in STARTS[0] if options[name] is not None}
    candidates = [{**options, **start, **named} for start in STARTS]

    def error(candidate: dict[str, Any]) -> float:
        return untrained_error(lambda: build(candidate), rows(), examples())

    return min(candidates, key=error)


def untrained_error(
    build: Callable[[], ForecastModel], rows: Rows, examples: Iterable[Example]
) -> float:
    """The mean squared error of a model before training; infinite if it cannot be built."""
    try:
        with torch.random.fork_rng(devices=[]):
            model = build().eval()
    except UsageError:
        return float("inf")
    model.prepare(rows)  # a prior is known before training
    error = count = 0.0
    with torch.inference_mode():
        for inputs, target, observed in examples:
            squared = (model(*inputs) - target).double().square()
            if observed is not None:
                squared = squared[observed]
            error, count = error + float(squared.sum()), count + squared.numel()
    return error / max(count, 1)
