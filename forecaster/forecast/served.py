"""A model as it serves: from histories in units to forecasts and quantiles in units."""

from torch import Tensor, nn

from forecaster.base.shapes import Float, Int
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.quantiles import Quantiles
from forecaster.parts import Blend
from forecaster.plan.schema import Schema
from forecaster.plan.transform import Transform


class ServedModel(nn.Module):
    """A blend between the transforms of its data, with the quantiles of its intervals, if any."""

    def __init__(self, blend: Blend, schema: Schema, intervals: Intervals | None) -> None:
        super().__init__()
        self.blend = blend
        self.transform = Transform(schema, blend.task.past, blend.task.horizon)
        has_levels = intervals is not None and intervals.levels
        self.quantiles = Quantiles(intervals) if intervals is not None and has_levels else None

    def forward(
        self,
        history: Float[Tensor, "b p c"],
        known: Float[Tensor, "b steps f"],
        levels: Float[Tensor, "q"] | None = None,  # noqa: F821
        mean: Float[Tensor, "b 1 c"] | None = None,
        std: Float[Tensor, "b 1 c"] | None = None,
        item: Int[Tensor, "b"] | None = None,  # noqa: F821
        *,
        complete: bool = False,
        banded: bool = False,
    ) -> tuple[Tensor, ...]:
        """The forecast (B, T, K) and, if levels are given, its quantiles (B, T, K, levels).

        `complete`: no value of the history is missing, so that nothing has to be masked. `banded`:
        without levels, the quantiles are those at the levels of the intervals.
        """
        past, observed, moved = self.transform(history, known, mean, std)
        before, ahead = known[:, : self.transform.past], known[:, self.transform.past :]
        mask = None if complete else observed
        point = self.blend(past, before, ahead, mask, item).double()
        shown = point if moved is None else point + moved
        forecast = self.transform.units(shown[..., None], mean, std)
        if self.quantiles is None or (levels is None and not banded):
            return (forecast[..., 0],)
        recent = self.transform.targets(past)
        seen = None if complete else self.transform.targets(observed)
        quantiles = self.quantiles(shown, recent, ahead, seen, levels, item)
        return forecast[..., 0], self.transform.units(quantiles, mean, std)
