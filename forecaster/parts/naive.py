"""Parts that repeat past values: the training mean, the last value, means of whole cycles."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from forecaster.model import Task
from forecaster.model.normalise import last
from forecaster.parts.base import Fold, Part, filled
from forecaster.parts.products import mse

REPEATS = "repeats"
"""The family of parts that learn nothing but a choice."""
CYCLES = (1, 2, 3, 5, 7, 10, 14, 21, 28, 42)  # a grid of ratios near 1.5, with whole weeks of days


class TrainingMean(Part):
    """The mean of the training rows, which is zero in scaled values.

    It is a floor without a share in a blend: the level of a ridge does the same better.
    """

    kind = "training-mean"
    weighed = False
    family = REPEATS

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        return [cls(fold.task, "training mean", 1)]

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        return past.new_zeros(past.shape[0], self.task.horizon, len(self.task.targets))


class LastValue(Part):
    """The last observed value of each column; 0, the training mean, if there is none."""

    kind = "last-value"
    family = REPEATS

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        return [cls(fold.task, "last value", fold.look_back)]

    @property
    def needs(self) -> int:
        return 1

    def linear(self) -> Tensor:
        last = torch.zeros(1, self.past, self.task.horizon)
        last[:, -1] = 1
        return last

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        values, seen = self.own(past, observed)
        return last(values, seen).transpose(1, 2).expand(-1, self.task.horizon, -1)


class CycleMean(Part):
    """The mean of the last cycles, repeated; with one cycle, the seasonal naive forecast.

    Missing values are left out; a place of the cycle without any value is `filled`.
    """

    kind = "cycle-mean"
    family = REPEATS

    def __init__(self, task: Task, name: str, past: int, chosen: str = "", *, season: int) -> None:
        super().__init__(task, name, past, chosen)
        if season < 1 or past % season:
            raise ValueError(f"{name}: {past} steps are not whole cycles of {season}")
        self.season = season

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "season": self.season}

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        """The seasonal naive of each season, and the cycle mean of the main one.

        The number of cycles is the one with the smallest squared error on `fold.choose`.
        """
        task, season = fold.task, fold.seasons[0]
        naive = [
            cls(task, f"seasonal naive, {length}", length, season=length)
            for length in fold.seasons
            if 1 < length <= fold.look_back
        ]
        candidates = [
            cls(task, "cycle mean", k * season, f"k = {k} cycles of {season} steps", season=season)
            for k in CYCLES
            if k * season <= fold.look_back
        ]
        if not candidates:
            return naive
        errors = mse(candidates, fold.choose)
        return [*naive, candidates[int(errors.argmin())]]

    def linear(self) -> Tensor:
        cycles = self.past // self.season
        cycle = torch.eye(self.season).repeat(cycles, 1) / cycles
        return cycle[None, :, torch.arange(self.task.horizon) % self.season]

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        values, seen = self.own(past, observed)
        mean: Tensor = filled(values, seen, self.season).unflatten(2, (-1, self.season)).mean(dim=2)
        if seen is not None:
            counts = seen.unflatten(2, (-1, self.season)).sum(dim=2)
            known = values.unflatten(2, (-1, self.season)).sum(dim=2) / counts.clamp(min=1)
            mean = torch.where(counts > 0, known, mean)
        repeats = -(-self.task.horizon // self.season)
        return mean.repeat(1, 1, repeats)[..., : self.task.horizon].transpose(1, 2)
