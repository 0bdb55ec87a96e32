"""A model as it serves: from histories in units to forecasts and quantiles in units."""

import numpy as np
import torch
from torch import Tensor, nn

from forecaster.base import machine
from forecaster.base.shapes import Float, Int
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.quantiles import Quantiles
from forecaster.forecast.runner import Runner
from forecaster.parts import Blend
from forecaster.plan.schema import Schema
from forecaster.plan.transform import Transform


class ServedModel(nn.Module):
    """A blend between the transforms of its data, with the quantiles of its intervals, if any.

    With a `device`, the blend runs there and the rest, in 64 bits, on the processor.
    """

    def __init__(
        self, blend: Blend, schema: Schema, intervals: Intervals | None, device: str | None = None
    ) -> None:
        super().__init__()
        self.takes_beside = blend.takes_beside
        self.blend = Runner(blend.to(device), device) if device else blend
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
        inputs = [past, before, ahead, mask, item]
        if self.takes_beside:
            inputs.append(self.transform.base(mean, std) if moved is None else moved.float())
        point = self.blend(*inputs).double()
        shown = point if moved is None else point + moved[:, self.transform.past :]
        forecast = self.transform.units(shown[..., None], mean, std)
        if self.quantiles is None or (levels is None and not banded):
            return (forecast[..., 0],)
        recent = self.transform.targets(past)
        seen = None if complete else self.transform.targets(observed)
        quantiles = self.quantiles(shown, recent, ahead, seen, levels, item)
        return forecast[..., 0], self.transform.units(quantiles, mean, std)

    @machine.threads(1)
    def answer(self, *inputs: np.ndarray | None, **options: bool) -> list[np.ndarray]:
        """`forward`, on arrays; another number of threads would change the last digits."""
        with torch.inference_mode():
            tensors = (None if array is None else torch.from_numpy(array) for array in inputs)
            return [output.numpy() for output in self(*tensors, **options)]
