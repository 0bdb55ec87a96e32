"""Exponential smoothing whose rates are found anew in each window, as for a series of its own."""

from collections.abc import Sequence
from itertools import product
from math import log
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from forecaster.model import Task
from forecaster.parts.base import Fold, Part, filled

LEVELS, SEASONALS = (0.05, 0.2, 0.5, 0.9), (0.0, 0.2)  # rates, from slow to nearly the last value
TRENDS = ((0.0, 0.0), (0.0, 1.0), (0.15, 0.9), (0.15, 0.98))
"""Rate of the trend and its damping: no trend, a fixed drift, and two damped trends."""
CYCLES, SHORTEST, LONGEST = 8, 4, 336
"""Smoothing reads this many cycles of at least so many steps, and at most so many steps: the maps
grow with their square, and 6, 8 and 12 cycles are within 1 % (benchmarks/log.md)."""
TOGETHER = 8
"""The methods that are computed at once; only memory and speed depend on it."""
HALVED = 2
"""An error counts half as much as one that many cycles later: with 3 and 5 the forecast was
1 and 2 % worse (benchmarks/log.md)."""
LARGEST, LEAST = 30.0, 0.01
"""Logarithms are used where a mean is at most so many standard deviations: of a larger one they are
straight lines, and 32 bits no longer hold them; and where no value of the window is below this
share of the mean, as the logarithm of 0 has no end."""
LEVEL, SLOPE, SHAPE = 1e-4, 0.05, 1e-3
"""Penalties of the first level, slope and seasonal components, in squared errors: small, so that
only what a short window does not determine stays near zero."""


class Smoothing(Part):
    """Exponential smoothing with rates, trend and season that each window chooses for itself.

    The candidates are the additive methods of Holt and Winters in error-correction form (Hyndman et
    al., Forecasting with Exponential Smoothing, 2008, sec. 2.5), without trend, with a fixed drift,
    which is the Theta method with another slope (Hyndman and Billah, 2003), or with a damped trend;
    with a season and without. Their first states have the smallest squared one-step errors over the
    window, so errors and last state of a candidate are linear in the window, and its forecast in
    that state: three maps that are computed once. The forecast is the mean of all candidates with
    Akaike weights, exp(-AIC / 2), from the errors at observed steps, where an error counts half as
    much as one two cycles later. Nothing is learned from training rows.

    With `logs`, the candidates without a lasting trend are also fitted to the logarithms, with the
    Akaike weights of what they say of the values: seasons and noise that grow with the level. Their
    forecast is a median. A trend of the logarithms that lasts grows without end: with it, smoothing
    was 5 % worse on 60 slow series (benchmarks/log.md).
    """

    kind = "smoothing"
    family = "smoothing"
    errors: Tensor
    states: Tensor
    ahead: Tensor
    sizes: Tensor
    lasting: Tensor
    recent: Tensor

    def __init__(
        self, task: Task, name: str, past: int, chosen: str = "", *, season: int, logs: bool = False
    ) -> None:
        super().__init__(task, name, past, chosen)
        if not 1 <= season <= past <= LONGEST:
            raise ValueError(
                f"{name}: {past} steps do not hold a season of {season}, or exceed {LONGEST}"
            )
        self.season, self.takes_beside = season, logs
        age = torch.arange(past - 1, -1, -1, dtype=torch.float64)
        recent = 0.5 ** (age / (HALVED * max(season, SHORTEST)))
        seasons = [1, season] if 1 < season <= past // 2 else [1]
        rates, sizes = zip(*map(_rates, seasons), strict=True)
        maps = [
            _maps(length, of_season, past, task.horizon, recent)
            for length, of_season in zip(seasons, rates, strict=True)
        ]
        errors, states, ahead = zip(*maps, strict=True)
        width = states[-1].shape[1]
        buffers = {
            "errors": torch.cat(errors) * recent.sqrt()[:, None],
            "states": torch.cat(
                [pad(state, (0, 0, 0, width - state.shape[1])) for state in states]
            ),
            "ahead": torch.cat([pad(step, (0, width - step.shape[2])) for step in ahead]),
            "sizes": torch.cat(sizes),
            "recent": recent,
        }
        for buffer, tensor in buffers.items():
            self.register_buffer(buffer, tensor.float(), persistent=False)
        self.register_buffer("lasting", torch.cat(rates)[:, 3] == 1, persistent=False)

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "season": self.season, "logs": self.takes_beside}

    @property
    def needs(self) -> int:
        """Two cycles, which tell a season from noise."""
        return min(self.past, max(SHORTEST, 2 * self.season))

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        task = fold.task
        season = fold.cycle if 2 * fold.cycle <= min(task.past, LONGEST) else 1
        past = min(task.past, reach(season))
        logs = fold.train.base is not None
        words = f"over {past} steps" + (", or their logarithms" if logs else "")
        return [cls(task, "smoothing", past, words, season=season, logs=logs)]

    def forward(
        self,
        past: Tensor,
        past_known: Tensor,
        future_known: Tensor,
        observed: Tensor | None = None,
        beside: Tensor | None = None,
    ) -> Tensor:
        """For logarithms `beside` is `Batch.base`, (B, 1, K)."""
        values, seen = self.own(past, observed)
        forecast, evidence = self._of(values, seen)
        if self.takes_beside:
            assert beside is not None
            base = beside.transpose(1, 2)
            lowest = 1 + values.amin(dim=-1, keepdim=True) / base
            usable = (base > 0) & (base < LARGEST) & (lowest > LEAST)
            base = torch.where(usable, base, 1.0)
            logs = base * (1 + values / base).clamp(min=LEAST).log()
            ahead, of_logs = self._of(logs, seen, lasting=False)
            # as the density of values; at most twice the largest value
            of_logs = of_logs - (self._counted(seen) * logs / base).sum(dim=-1, keepdim=True)
            most = logs.amax(dim=-1, keepdim=True) + base * log(2)
            ahead = base * (torch.minimum(ahead, most) / base).exp() - base
            share = torch.where(usable, (of_logs - evidence).sigmoid(), 0.0)
            forecast = forecast + share * (ahead - forecast)
        return forecast.transpose(1, 2)

    def _counted(self, seen: Tensor | None) -> Tensor:
        return self.recent if seen is None else self.recent * seen

    def _of(
        self, values: Tensor, seen: Tensor | None, *, lasting: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The forecast (B, K, T) of values (B, K, P), and the log of the sum of the weights of all
        candidates (B, K, 1), of those with `lasting` trends or without."""
        series = extended(values, seen, self.season)
        middle = series.mean(dim=-1, keepdim=True)
        series = series - middle
        count = self._counted(seen).sum(dim=-1)[..., None]
        # else a method that fits a window exactly would have an infinite weight; no sum, of which
        # an export to ONNX drops a term that is so small
        least = (1e-6 * series.square().mean(dim=-1)).clamp(min=1e-12)
        squares = []
        for errors in self.errors.split(TOGETHER):
            off = torch.matmul(series, errors.flatten(0, 1).T).unflatten(-1, (-1, self.past))
            if seen is not None:
                off = off * seen[..., None, :]
            squares.append(torch.linalg.vector_norm(off, dim=-1).square())
        square = torch.cat(squares, dim=-1) / count.clamp(min=1e-12) + least[..., None]
        scores = -0.5 * count * square.log() - self.sizes
        if not lasting:
            scores = scores.masked_fill(self.lasting, -torch.inf)
        weights = scores.softmax(dim=-1)
        forecast = middle
        maps = self.states.split(TOGETHER), self.ahead.split(TOGETHER)
        for share, states, ahead in zip(weights.split(TOGETHER, -1), *maps, strict=True):
            products = torch.matmul(series, states.flatten(0, 1).T)
            products = products.unflatten(-1, (len(states), -1)) * share[..., None]
            forecast = forecast + torch.matmul(
                products.flatten(-2), ahead.transpose(1, 2).flatten(0, 1)
            )
        top = scores.amax(dim=-1, keepdim=True)  # ONNX would sum exponentials without end
        return forecast, top + (scores - top).exp().sum(dim=-1, keepdim=True).log()


def reach(season: int) -> int:
    """The steps of history that smoothing reads, in whole cycles if there are at least two."""
    cycle = max(season, SHORTEST)
    cycles = min(CYCLES, LONGEST // cycle)
    return cycles * cycle if cycles > 1 else LONGEST


def extended(values: Tensor, observed: Tensor | None, season: int) -> Tensor:
    """Values (..., P) without gaps: `filled`, and before the first value along the mean slope.

    The slope is that of the line through the observed values, 0 for fewer than two cycles.
    """
    if observed is None:
        return values
    steps = torch.arange(values.shape[-1], device=values.device, dtype=values.dtype)
    seen = observed.to(values.dtype)
    count = seen.sum(dim=-1, keepdim=True)
    off = (steps - (seen * steps).sum(dim=-1, keepdim=True) / count.clamp(min=1)) * seen
    rise = (off * values).sum(dim=-1, keepdim=True)
    slope = rise / off.square().sum(dim=-1, keepdim=True).clamp(min=1)
    slope = torch.where(count >= 2 * max(season, SHORTEST // 2), slope, 0.0)
    last = float(values.shape[-1] - 1)
    first = torch.where(observed, steps, last).amin(dim=-1, keepdim=True)
    return filled(values, observed, season) + slope * (steps - first).clamp(max=0)


def _rates(season: int) -> tuple[Tensor, Tensor]:
    """The rates (G, 4) of level, trend, season and damping of all methods of a season, and their
    numbers of parameters (G,)."""
    rates, sizes = [], []
    for level, seasonal, (trend, damping) in product(LEVELS, SEASONALS, TRENDS):
        if season == 1 and seasonal:
            continue
        rates.append((level, level * trend, seasonal * (1 - level), damping))
        # level and its rate; slope; rate and damping of the trend; components and their rate
        slope = (damping > 0) + 2 * (trend > 0)
        sizes.append(2 + slope + (season > 1) * season + (seasonal > 0))
    return torch.tensor(rates, dtype=torch.float64), torch.tensor(sizes)


def _maps(
    season: int, rates: Tensor, past: int, horizon: int, recent: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The maps (G, P, P) from a window to the one-step errors of methods, (G, S, P) to the state
    after it, of level, slope and components, and (G, T, S) from there to the forecast.

    The first state minimises the squared errors, weighted by `recent` (P,), and its penalties.
    """
    level, trend, seasonal, damping = (column[:, None] for column in rates.T)
    count, states = len(rates), 2 + (season if season > 1 else 0)
    width = past + states  # a value is a linear function of the window and the first state
    unit = torch.eye(width, dtype=torch.float64)[:, None].expand(-1, count, -1)
    now, slope, shape = unit[past], unit[past + 1], list(unit[past + 2 :])
    maps = []
    for step in range(past):
        level_ahead = now + damping * slope
        off = unit[step] - level_ahead
        if shape:
            off = off - shape[step % season]
            shape[step % season] = shape[step % season] + seasonal * off
        now, slope = level_ahead + level * off, damping * slope + trend * off
        maps.append(off)
    errors, last = torch.stack(maps, dim=1), torch.stack([now, slope, *shape], dim=1)
    steps = torch.arange(horizon)
    ahead = torch.zeros(count, horizon, states, dtype=torch.float64)
    ahead[:, :, 0] = 1
    ahead[:, :, 1] = damping.expand(-1, horizon).cumprod(dim=1).cumsum(dim=1)
    if shape:
        ahead[:, steps, 2 + (past + steps) % season] = 1
    penalties = torch.tensor([LEVEL, SLOPE, *[SHAPE] * (states - 2)], dtype=torch.float64)
    by_value, by_state = errors.split([past, states], dim=2)
    weighted = (by_state * recent[:, None]).transpose(1, 2)
    first = -torch.linalg.solve(weighted @ by_state + penalties.diag(), weighted @ by_value)
    return by_value + by_state @ first, last[..., :past] + last[..., past:] @ first, ahead
