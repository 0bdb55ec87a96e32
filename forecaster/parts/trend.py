"""Parts that continue a trend, of models of 0.2.0: smoothing has taken their place."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from forecaster.model import Task
from forecaster.parts.base import Fold, Part, filled
from forecaster.parts.naive import REPEATS


class _Map(Part):
    """A fixed linear map of the past, which sums to one over the past at every step.

    `states` (S, P) maps the past to a state, and `ahead` (T, S) maps the state to the forecast:
    both together need far fewer products than the whole map (T, P).
    """

    family = REPEATS
    states: Tensor
    ahead: Tensor

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        return []

    def __init__(
        self, task: Task, name: str, past: int, chosen: str, season: int, state: int
    ) -> None:
        super().__init__(task, name, past, chosen)
        if not 1 <= season <= past:
            raise ValueError(f"{name}: {past} steps do not hold a season of {season}")
        self.season = season
        self.register_buffer("states", torch.zeros(state, past), persistent=False)
        self.register_buffer("ahead", torch.zeros(task.horizon, state), persistent=False)

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "season": self.season}

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        values, seen = self.own(past, observed)
        by_step = filled(values, seen, self.season).transpose(1, 2)
        return torch.matmul(self.ahead, torch.matmul(self.states, by_step))

    def linear(self) -> Tensor:
        return (self.ahead @ self.states).T[None]


class Drift(_Map):
    """The last cycle repeated, rising by what a cycle rose on average over the look-back.

    Without a season, the line through the first and the last value is continued (Hyndman and
    Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., sec. 5.2).
    """

    kind = "drift"

    def __init__(self, task: Task, name: str, past: int, chosen: str = "", *, season: int) -> None:
        super().__init__(task, name, past, chosen, season, season + 1)
        if past % season or past < 2 * season:
            raise ValueError(f"{name}: {past} steps are not two or more cycles of {season}")
        rise = 1 / season / (past // season - 1)
        self.states[0, -season:] = rise
        self.states[0, :season] = -rise
        self.states[1:, -season:] = torch.eye(season)
        steps = torch.arange(task.horizon)
        self.ahead[:, 0] = steps // season + 1
        self.ahead[steps, 1 + steps % season] = 1


class DampedTrend(_Map):
    """The additive method of Holt and Winters with damped trend and fixed smoothing rates.

    Damping after Gardner and McKenzie (1985). The state after a window is linear in its values, so
    the method is one map, computed once. The level starts at the mean of the first cycle, the trend
    at zero, and the seasonal component with the shape of the first cycle.
    """

    kind = "damped-trend"

    def __init__(
        self,
        task: Task,
        name: str,
        past: int,
        chosen: str = "",
        *,
        season: int,
        level: float,
        trend: float,
        seasonal: float,
        damping: float,
    ) -> None:
        super().__init__(task, name, past, chosen, season, season + 2)
        rates = {"level": level, "trend": trend, "seasonal": seasonal, "damping": damping}
        if not all(0 <= rate <= 1 for rate in rates.values()):
            raise ValueError(f"{name}: rates lie between 0 and 1, got {rates}")
        self.rates = rates
        given = torch.tensor(list(rates.values()))
        states, ahead = _smoothed(past, task.horizon, season, given)
        self.states.copy_(states)
        self.ahead.copy_(ahead)

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, **self.rates}


def _smoothed(past: int, horizon: int, season: int, rates: Tensor) -> tuple[Tensor, Tensor]:
    """The map (S, P) from a window to its level, slope and shape, and (T, S) on to the forecast.

    Both are float64. `rates` (4,) holds those of level, trend, seasonal and damping.
    """
    level, trend, seasonal, damping = rates.double()

    def less(of: Tensor, step: int) -> Tensor:
        """The value of a step minus `of`, (P,)."""
        found = -of
        found[step] += 1
        return found

    now = torch.zeros(past, dtype=torch.float64)
    now[:season] = 1 / season
    shape = [less(now, step) if season > 1 else torch.zeros_like(now) for step in range(season)]
    slope = torch.zeros_like(now)
    for step in range(season, past):
        place = step % season
        before, ahead = now, now + damping * slope
        now = level * less(shape[place], step) + (1 - level) * ahead
        slope = trend * (now - before) + (1 - trend) * damping * slope
        if season > 1:
            shape[place] = seasonal * less(now, step) + (1 - seasonal) * shape[place]
    steps = torch.arange(horizon)
    forecast = torch.zeros(horizon, season + 2, dtype=torch.float64)
    forecast[:, 0] = 1
    forecast[:, 1] = (damping ** (steps + 1)).cumsum(dim=0)
    forecast[steps, 2 + (past + steps) % season] = 1
    return torch.stack([now, slope, *shape]), forecast
