"""From histories in units to what the parts of a model read, and from their forecasts to units.

The same module serves and is exported; training reads tables that its `Shift` has changed.
"""

import numpy as np
import torch
from torch import Tensor, nn

from forecaster.base.shapes import Float
from forecaster.datasets.limits import ends
from forecaster.plan.effects import Shift
from forecaster.plan.schema import Schema


class Transform(nn.Module):
    """Scaling, and the effects of covariates, which are taken out of the history of the targets and
    added to their forecast.

    A panel's series are scaled by the `mean` and `std` that are given.
    """

    mean: Tensor
    std: Tensor
    onto: Tensor
    places: Tensor

    def __init__(self, schema: Schema, past: int, horizon: int) -> None:
        super().__init__()
        self.past = past
        self.register_buffer("places", torch.tensor(schema.target_positions))
        onto = torch.eye(len(schema.columns), dtype=torch.float64)[self.places]
        self.register_buffer("onto", onto)  # targets as columns
        if not schema.items:
            self.register_buffer("mean", torch.from_numpy(schema.scaler.mean)[None, None])
            self.register_buffer("std", torch.from_numpy(schema.scaler.std)[None, None])
        self.shift: Shift | None = None
        if effects := schema.known.shifting:
            self.shift = Shift(effects, schema.calendar_width, past + horizon)

    def forward(
        self,
        history: Float[Tensor, "b p c"],
        known: Float[Tensor, "b steps f"],
        mean: Float[Tensor, "b 1 c"] | None = None,
        std: Float[Tensor, "b 1 c"] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The scaled history (B, P, C), 0 where missing; where it is observed; and what covariates
        add (B, P + T, targets), None without effects."""
        observed = ~history.isnan()
        mean, std = (self.mean, self.std) if mean is None or std is None else (mean, std)
        past, shift = (history - mean) / std, None
        if self.shift is not None:
            shift = self.shift(known)
            past = past - shift[:, : self.past] @ self.onto
        return past.float().masked_fill(~observed, 0.0), observed, shift

    def units(self, values: Tensor, mean: Tensor | None, std: Tensor | None) -> Tensor:
        """Scaled values (B, T, targets, Q) of the targets, in units."""
        mean, std = (self.mean, self.std) if mean is None or std is None else (mean, std)
        return values * self.targets(std)[..., None] + self.targets(mean)[..., None]

    def base(self, mean: Tensor | None, std: Tensor | None) -> Tensor:
        """The values (B or 1, 1, targets) that scaled zeros stand for, in standard deviations."""
        mean, std = (self.mean, self.std) if mean is None or std is None else (mean, std)
        return (self.targets(mean) / self.targets(std)).float()

    def targets(self, columns: Tensor) -> Tensor:
        """The targets among columns (..., C); by a list, the host would wait for a GPU."""
        return columns.index_select(-1, self.places)


def scaled_limits(schema: Schema) -> Tensor | None:
    """The limits of the targets, (targets, 2) or (S, targets, 2), scaled."""
    if not schema.limits:
        return None
    scaler = schema.target_scaler
    scaled = (ends(schema.limits) - scaler.mean[..., None]) / scaler.std[..., None]
    return torch.from_numpy(scaled.astype(np.float32))
