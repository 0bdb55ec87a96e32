"""What is taken from a window before a model sees it, and given back to the forecast."""

from typing import Literal

import torch
from torch import Tensor, nn

from forecaster.shapes import Float

Normalise = Literal["window", "none"]
Centre = Literal["cycle", "last", "window"]


class WindowNorm(nn.Module):
    """Each column of each window about its own centre, in units of its own standard deviation.

    The scale is sd + 0.01. The level may fall back towards the training mean (which is 0) by a
    share sigmoid(s) that each target column learns, 2 % at first. After RevIN (Kim et al., ICLR
    2022) without its affine map; centring on the last value is NLinear's (Zeng et al., AAAI 2023);
    the last cycle as centre and the shrinking level are ours.
    """

    def __init__(self, kind: Normalise, centre: Centre, season: int, targets: int, shrink: bool):
        super().__init__()
        self.kind, self.centre, self.season = kind, centre, season
        on = shrink and kind == "window"
        self.shrink = nn.Parameter(torch.full((targets,), -4.0)) if on else None

    def forward(
        self, window: Float[Tensor, "b c p"]
    ) -> tuple[Float[Tensor, "b c p"], Float[Tensor, "b c 1"], Float[Tensor, "b c 1"]]:
        """The normalised window, its centre and its scale."""
        if self.kind == "none":
            return window, torch.zeros_like(window[..., :1]), torch.ones_like(window[..., :1])
        reach = {"cycle": self.season, "last": 1, "window": window.shape[-1]}[self.centre]
        centre = window[..., -reach:].mean(dim=-1, keepdim=True)
        scale = window.std(dim=-1, keepdim=True, correction=0) + 0.01
        return (window - centre) / scale, centre, scale

    def restore(
        self,
        forecast: Float[Tensor, "b k t"],
        centre: Float[Tensor, "b k 1"],
        scale: Float[Tensor, "b k 1"],
    ) -> Float[Tensor, "b k t"]:
        """The forecast of the targets on the scale that the window had."""
        if self.shrink is not None:
            centre = centre * torch.sigmoid(-self.shrink)[:, None]
        return forecast * scale + centre


class CyclePrior(nn.Module):
    """The mean cycle of the training rows, column by column: taken away, and added to the forecast.

    A short look-back cannot know the usual shape of a cycle; the training rows do. The phase of a
    step is read from its calendar features, floor(sum_f weights_f (feature_f + 1/2)) modulo the
    season. The idea of a cycle kept outside the window is CycleNet's (Lin et al., NeurIPS 2024,
    sec. 3.1), which learns it; ours is the plain mean, `fit` once before training.
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

    def fit(self, values: Float[Tensor, "n c"], calendar: Float[Tensor, "n f"]) -> None:
        """Take the means of the training rows; a phase without rows keeps 0."""
        phase = self._phase(calendar)
        sums = torch.zeros_like(self.table, dtype=torch.float64).index_add(
            0, phase, values.double()
        )
        counts = torch.bincount(phase, minlength=len(self.table)).clamp(min=1)
        self.table.copy_(sums / counts[:, None])

    def forward(self, calendar: Float[Tensor, "b l f"]) -> Float[Tensor, "b l c"]:
        """The prior at each step."""
        return self.table[self._phase(calendar)]

    def _phase(self, calendar: Tensor) -> Tensor:
        steps = (calendar + 0.5) @ self.weights.to(calendar.dtype)
        return torch.floor(steps + 1e-2).long() % len(self.table)
