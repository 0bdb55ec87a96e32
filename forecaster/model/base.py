"""The contract of a forecasting model: windows in, forecast out, all in scaled values."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from forecaster.attention.base import Attention, Role


@dataclass(frozen=True)
class Task:
    """The shape of the problem that a model is built for.

    `columns` C input columns, `targets` the positions of the predicted ones among them, `past` P,
    `start` the known steps that open the decoder (Informer's label_len), `horizon` T,
    `calendar` F calendar features, `season` the steps of one main cycle.
    """

    columns: int
    targets: tuple[int, ...]
    past: int
    start: int
    horizon: int
    calendar: int
    season: int


class ForecastModel(nn.Module, ABC):
    """Base of the skeletons; `attention_roles` are the places whose attention can be chosen."""

    attention_roles: ClassVar[tuple[Role, ...]] = ("encoder", "decoder", "cross")

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    @abstractmethod
    def forward(self, past: Tensor, past_calendar: Tensor, future_calendar: Tensor) -> Tensor:
        """Forecast `horizon` steps at once.

        past (B, P, C) scaled values; past_calendar (B, P, F); future_calendar (B, T, F).
        Returns (B, T, len(targets)) scaled values.
        """

    def effective(self) -> dict[str, str]:
        """What each attention amounts to at its real lengths, by its place in the model."""
        return {
            name.removesuffix(".attention"): module.amounts_to()
            for name, module in self.named_modules()
            if isinstance(module, Attention)
        }
