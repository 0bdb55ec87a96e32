"""The contract of a forecasting model: from windows to a forecast, all in scaled values."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from forecaster.attention.base import Attention, Role


@dataclass(frozen=True)
class Task:
    """The shape of the problem that a model is built for.

    `columns` is C, `targets` the positions of the target columns among them, `past` P, `start` the
    number of known steps at the beginning of the decoder input (Informer's label_len), `horizon` T,
    `season` the number of steps of one main cycle, `phase` the weights (F,) that give a step's
    place in it from the calendar, () if none do (datasets.calendar.phase_weights). F = `calendar`
    + `covariates` features are known.
    """

    columns: int
    targets: tuple[int, ...]
    past: int
    start: int
    horizon: int
    calendar: int
    season: int
    phase: tuple[float, ...] = ()
    covariates: int = 0


class ForecastModel(nn.Module, ABC):
    """Base of the skeletons. `targets` (K,) holds the target positions of the task, on the device
    of the model."""

    targets: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.register_buffer("targets", torch.tensor(task.targets), persistent=False)

    @abstractmethod
    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        """Forecast `horizon` steps at once.

        past (B, P, C): scaled values, 0 where missing. past_known (B, P, F) and future_known
        (B, T, F): calendar features and covariates. observed (B, P, C): False where a value is
        missing; None when no value is.
        Returns (B, T, len(targets)) scaled values.
        """

    @classmethod
    def places(cls, options: Mapping[str, Any]) -> tuple[Role, ...]:
        """The places whose attention can be chosen, in a model with these options."""
        return ("encoder", "decoder", "cross")

    def prepare(self, rows: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Compute from the training rows what needs no gradient.

        `rows` yields them in pieces: scaled values (n, C), NaN where missing, and their calendar
        features (n, F). Called once, before the first optimiser step.
        """

    def effective(self) -> dict[str, str]:
        """What each attention amounts to at its actual lengths, by its place in the model."""
        return {
            name.removesuffix(".attention"): module.effective().text
            for name, module in self.named_modules()
            if isinstance(module, Attention)
        }


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
