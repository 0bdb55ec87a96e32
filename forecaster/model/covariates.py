"""The effect on the value of a step of what is known about it ahead of time."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.base.shapes import Float


class KnownEffect(nn.Module):
    """A small network from the known features of a step to its effect, one number per target.

    It starts at zero. It reads the calendar and the covariates of the step together, because the
    same temperature acts differently at noon and at night, and the mean of the covariates over the
    cycle up to the step, for slow effects. Ours, after regression whose errors another model
    forecasts (Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., ch. 10).
    """

    def __init__(
        self, calendar: int, covariates: int, season: int, targets: int, width: int = 32
    ) -> None:
        super().__init__()
        self.calendar, self.season = calendar, season
        last = nn.Linear(width, targets)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(
            nn.Linear(calendar + 2 * covariates, width), nn.SiLU(),
            nn.Linear(width, width), nn.SiLU(), last,
        )  # fmt: skip

    def forward(
        self, past_known: Float[Tensor, "b p f"], future_known: Float[Tensor, "b t f"]
    ) -> tuple[Float[Tensor, "b p k"], Float[Tensor, "b t k"]]:
        known = torch.cat([past_known, future_known], dim=1)
        sums = known[..., self.calendar :].cumsum(dim=1)
        before = F.pad(sums, (0, 0, self.season, 0))[:, : sums.shape[1]]
        steps = torch.arange(1, sums.shape[1] + 1, device=sums.device).clamp(max=self.season)
        lately = (sums - before) / steps[:, None]
        effect = self.layers(torch.cat([known, lately], dim=2)).to(known.dtype)  # undo autocast
        return effect[:, : past_known.shape[1]], effect[:, past_known.shape[1] :]
