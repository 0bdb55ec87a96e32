"""Normalisation: what is removed from a window for the model and restored in the forecast."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from forecaster.base.shapes import Bool, Float, Int

Normalise = Literal["window", "none"]
Centre = Literal["cycle", "last", "window"]


def mean_of(values: Tensor, observed: Tensor | None) -> Tensor:
    """Mean of the observed values over the last axis, which is kept; 0 if there are none.

    Missing values must be 0.
    """
    if observed is None:
        return values.mean(dim=-1, keepdim=True)
    return values.sum(dim=-1, keepdim=True) / observed.sum(dim=-1, keepdim=True).clamp(min=1)


def deviation_of(values: Tensor, observed: Tensor | None) -> Tensor:
    """Population standard deviation over the last axis, with the arguments of `mean_of`."""
    if observed is None:
        return values.std(dim=-1, keepdim=True, correction=0)
    apart = (values - mean_of(values, observed)).masked_fill(~observed, 0.0)
    count = observed.sum(dim=-1, keepdim=True).clamp(min=1)
    length: Tensor = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
    return length / count.sqrt()


def last(values: Tensor, observed: Tensor | None) -> Tensor:
    """(..., 1): the last observed value of values (..., P), 0 if there is none."""
    if observed is None:
        return values[..., -1:]
    places = torch.arange(values.shape[-1], device=values.device)
    return values.gather(-1, (observed * places).amax(dim=-1, keepdim=True))


class WindowNorm(nn.Module):
    """Centres each column of each window and scales it by its standard deviation.

    Centre and deviation come from the observed values; a missing value becomes 0, the centre. If
    nothing of the last cycle was observed, the centre is the mean of the window; if nothing at all
    was, it is 0. The scale is sd + 0.01. With `shrink`, the level may fall back towards the
    training mean (which is 0) by a share sigmoid(s) that each target column learns, 2 % at first.
    After RevIN (Kim et al., ICLR 2022) without its affine map; centring on the last value is from
    NLinear (Zeng et al., AAAI 2023); the last cycle as centre and the shrinking level are ours.
    """

    def __init__(self, kind: Normalise, centre: Centre, season: int, targets: int, shrink: bool):
        super().__init__()
        self.kind, self.centre, self.season = kind, centre, season
        on = shrink and kind == "window"
        self.shrink = nn.Parameter(torch.full((targets,), -4.0)) if on else None

    def forward(
        self, window: Float[Tensor, "b c p"], observed: Bool[Tensor, "b c p"] | None = None
    ) -> tuple[Float[Tensor, "b c p"], Float[Tensor, "b c 1"], Float[Tensor, "b c 1"]]:
        if observed is not None:
            window = window.masked_fill(~observed, 0.0)
        if self.kind == "none":
            return window, torch.zeros_like(window[..., :1]), torch.ones_like(window[..., :1])
        centre = self._centre(window, observed)
        scale = deviation_of(window, observed) + 0.01  # a constant window stays finite
        normal = (window - centre) / scale
        if observed is not None:
            normal = normal.masked_fill(~observed, 0.0)
        return normal, centre, scale

    def _centre(self, window: Tensor, observed: Tensor | None) -> Tensor:
        if self.centre == "last":
            return last(window, observed)
        reach = self.season if self.centre == "cycle" else window.shape[-1]
        if observed is None:
            return mean_of(window[..., -reach:], None)
        recent = observed[..., -reach:]
        mean = mean_of(window[..., -reach:], recent)
        return torch.where(recent.any(dim=-1, keepdim=True), mean, mean_of(window, observed))

    def changes(
        self, window: Float[Tensor, "b c p"], observed: Bool[Tensor, "b c p"] | None = None
    ) -> tuple[Float[Tensor, "b c p"], Bool[Tensor, "b c p"]]:
        """Whole cycles minus the centre of the cycle before each, and which values are real.

        No value is real in the first cycle, nor in one that follows a cycle without any value. A
        single cycle is returned as it is.
        """
        if observed is None:
            observed = torch.ones_like(window, dtype=torch.bool)
        if window.shape[-1] == self.season:
            return window, observed
        cycles, seen = (x.unflatten(-1, (-1, self.season)) for x in (window, observed))
        before = self._centre(cycles, seen)[..., :-1, :]
        there = seen[..., 1:, :] & seen[..., :-1, :].any(dim=-1, keepdim=True)
        change = (cycles[..., 1:, :] - before).masked_fill(~there, 0.0)
        values, real = (nn.functional.pad(x.flatten(-2), (self.season, 0)) for x in (change, there))
        return values, real

    def restore(
        self,
        forecast: Float[Tensor, "b k t"],
        centre: Float[Tensor, "b k 1"],
        scale: Float[Tensor, "b k 1"],
    ) -> Float[Tensor, "b k t"]:
        if self.shrink is not None:
            centre = centre * torch.sigmoid(-self.shrink)[:, None]
        return forecast * scale + centre


class CyclePrior(nn.Module):
    """The mean cycle of the training rows per column, subtracted first and added to the forecast.

    The phase of a step is read from its calendar features. CycleNet (Lin et al., NeurIPS 2024,
    sec. 3.1) learns such a cycle; ours is the plain mean, computed once by `fit` before training.
    """

    weights: Tensor
    table: Tensor

    def __init__(self, season: int, columns: int, weights: tuple[float, ...]) -> None:
        super().__init__()
        if not weights:
            raise ValueError(
                f"model.prior needs a season that the calendar knows (a day, a week or a year), "
                f"got season={season} steps"
            )
        self.register_buffer("weights", torch.tensor(weights), persistent=False)
        self.register_buffer("table", torch.zeros(season, columns))

    def fit(self, rows: Iterable[tuple[Float[Tensor, "n c"], Float[Tensor, "n f"]]]) -> None:
        """Compute the means from the rows of `ForecastModel.prepare`; 0 for a place without any."""
        sums = torch.zeros_like(self.table, dtype=torch.float64)
        counts = torch.zeros_like(sums)
        for values, calendar in rows:
            phase, there = phase_of(calendar, self.weights, len(self.table)), ~values.isnan()
            sums.index_add_(0, phase, values.nan_to_num().double())
            counts.index_add_(0, phase, there.double())
        self.table.copy_(sums / counts.clamp(min=1))

    def forward(self, calendar: Float[Tensor, "b l f"]) -> Float[Tensor, "b l c"]:
        return self.table[phase_of(calendar, self.weights, len(self.table))]


def phase_of(
    calendar: Float[Tensor, "*rows f"],
    weights: Float[Tensor, "f"],  # noqa: F821
    season: int,
) -> Int[Tensor, "*rows"]:
    """The place of each step in its season, floor(sum_f weights_f (feature_f + 1/2)) modulo it."""
    # autocast would compute a product of matrices in bf16, which has 8 bits for a step's number
    steps = ((calendar + 0.5) * weights.to(calendar.dtype)).sum(-1)
    return torch.floor(steps + 1e-2).long() % season  # rounding may leave a whole number below it
