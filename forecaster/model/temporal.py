"""Queries that depend on the column and the time, but not on the window."""

import torch
from torch import Tensor, nn

from forecaster.base.shapes import Float
from forecaster.model.normalise import phase_of


class TemporalQueries(nn.Module):
    """A learned vector for each place in the season and each column.

    If a token is a series, these are the queries to the tokens of a window: where they look is
    learned from all windows, what they see comes from this one (TQNet, Lin et al., ICML 2025,
    sec. 3.2). The place is that of the first step to forecast; the authors learn a vector as long
    as the look-back and slide it over the season. `weights` give the place from the calendar, as in
    Task.phase.
    """

    weights: Tensor

    def __init__(self, season: int, columns: int, width: int, weights: tuple[float, ...]) -> None:
        super().__init__()
        if not weights:
            raise ValueError(
                "model.queries=temporal needs a season that the calendar knows (a day, a week or a "
                f"year), got season={season} steps"
            )
        self.register_buffer("weights", torch.tensor(weights), persistent=False)
        self.table = nn.Parameter(torch.randn(season, columns, width) * 0.02)

    def forward(self, calendar: Float[Tensor, "b f"]) -> Float[Tensor, "b c d"]:
        """The queries of windows, from the calendar of their first step to forecast."""
        return self.table[phase_of(calendar, self.weights, len(self.table))]
