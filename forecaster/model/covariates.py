"""What is known of a step ahead of time, as a part of its value."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.shapes import Float


class KnownEffect(nn.Module):
    """A small network from what is known of a step to its value, one number per target.

    Starts at zero. It reads the step's calendar and covariates together (warmth at noon is not
    warmth at night), and the mean of the covariates over the last cycle up to the step, for what
    acts slowly. Ours, after regression whose errors another model forecasts (Hyndman and
    Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., ch. 10).
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
        effect = self.layers(torch.cat([known, lately], dim=2)).to(known.dtype)  # not autocast's
        return effect[:, : past_known.shape[1]], effect[:, past_known.shape[1] :]
