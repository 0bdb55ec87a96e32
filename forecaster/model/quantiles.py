"""A quantile head for any skeleton, and the loss that trains it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.base.shapes import Bool, Float
from forecaster.model.normalise import deviation_of


class QuantileSpread(nn.Module):
    """Quantiles around the path that a skeleton forecasts, which becomes the median.

    Level a lies at path + sd^power * offset[step, column, a]. The offsets are sums of softplus from
    the median outwards, so quantiles never cross (after the incremental quantile functions of Park
    et al., AISTATS 2022); sd is the standard deviation of the column's observed values in the
    window plus 0.01, and its power is learned per column. The offsets start as those of a normal
    distribution with half the training standard deviation. `levels` ascend and contain 0.5. Ours.
    """

    def __init__(self, levels: tuple[float, ...], horizon: int, targets: int) -> None:
        super().__init__()
        self.levels = levels
        self.middle = levels.index(0.5)
        steps = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64)).diff() / 2
        start = torch.log(torch.expm1(steps)).float()  # inverse of softplus
        self.steps = nn.Parameter(start.repeat(horizon, targets, 1))
        self.power = nn.Parameter(torch.full((targets,), 0.5))

    def forward(
        self,
        path: Float[Tensor, "b t k"],
        past: Float[Tensor, "b p k"],
        observed: Bool[Tensor, "b p k"] | None = None,
    ) -> Float[Tensor, "b t k q"]:
        """Scaled quantiles, ascending; `past` and `observed` hold only the targets."""
        sums = F.pad(F.softplus(self.steps).cumsum(dim=-1), (1, 0))
        offsets = sums - sums[..., self.middle, None]
        if observed is None:
            deviation = past.std(dim=1, correction=0)
        else:
            past = past.masked_fill(~observed, 0.0).transpose(1, 2)
            deviation = deviation_of(past, observed.transpose(1, 2))[..., 0]
        scale = (deviation + 0.01) ** self.power
        return path[..., None] + offsets * scale[:, None, :, None]


def pinball_loss(
    quantiles: Float[Tensor, "b t k q"], target: Float[Tensor, "b t k"], levels: tuple[float, ...]
) -> Float[Tensor, ""]:
    """Mean over all values and levels of max(a e, (a - 1) e), e = target - quantile.

    Koenker and Bassett 1978.
    """
    error = target[..., None] - quantiles
    level = error.new_tensor(levels)
    return torch.maximum(level * error, (level - 1) * error).mean()
