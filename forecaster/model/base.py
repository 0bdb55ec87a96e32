"""The contract of a forecasting model: windows in, forecast out, all in scaled values."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from forecaster.attention.base import Attention, Role
from forecaster.model.quantiles import QuantileSpread


@dataclass(frozen=True)
class Task:
    """The shape of the problem that a model is built for.

    `columns` C, `targets` the positions of the predicted ones among them, `past` P, `start` the
    known steps that open the decoder (Informer's label_len), `horizon` T, `season` the steps of one
    main cycle, `phase` the weights (F,) that tell a step's place in it from the calendar, if any
    do (datasets.calendar.phase_weights). F = `calendar` + `covariates` features are known.
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


class Quantiled(Protocol):
    """Whatever forecasts with quantiles; see `ForecastModel`."""

    task: Task

    @property
    def spread(self) -> nn.Module | None: ...

    @property
    def middle(self) -> int: ...

    def quantiles(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor: ...


class ForecastModel(nn.Module, ABC):
    """Base of the skeletons; `spread` is the quantile head of those that are trained for one, and
    `targets` (K,) has the positions of the task, on the device of the model."""

    targets: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.spread: QuantileSpread | None = None
        self.register_buffer("targets", torch.tensor(task.targets), persistent=False)

    @abstractmethod
    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        """Forecast `horizon` steps at once.

        past (B, P, C) scaled values, 0 where missing; past_known (B, P, F) and future_known
        (B, T, F) calendar features and covariates; observed (B, P, C) False where a value is
        missing, None where none is.
        Returns (B, T, len(targets)) scaled values.
        """

    def quantiles(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        """What `forward` forecasts, with its quantiles where the model has a head for them.

        Returns (B, T, len(targets), Q) scaled values at the head's levels, rising; without a head
        Q = 1, the forecast itself. At `middle` stands the forecast either way.
        """
        path: Tensor = self(past, past_known, future_known, observed)
        if self.spread is None:
            return path[..., None]
        seen = None if observed is None else observed[..., self.targets]
        spread: Tensor = self.spread(path, past[..., self.targets], seen)
        return spread

    @property
    def middle(self) -> int:
        """Where the forecast itself stands among its quantiles."""
        return 0 if self.spread is None else self.spread.middle

    @classmethod
    def places(cls, options: Mapping[str, Any]) -> tuple[Role, ...]:
        """The places whose attention can be chosen, in a model with these options."""
        return ("encoder", "decoder", "cross")

    def prepare(self, rows: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Take what can be known without training from the training rows, some at a time.

        values (n, C) scaled, NaN where missing, and their calendar features (n, F) each time.
        Called once, before the first step.
        """

    def effective(self) -> dict[str, str]:
        """What each attention amounts to at its real lengths, by its place in the model."""
        return {
            name.removesuffix(".attention"): module.effective().text
            for name, module in self.named_modules()
            if isinstance(module, Attention)
        }
