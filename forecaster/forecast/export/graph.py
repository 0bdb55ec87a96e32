"""The exported graph: everything that turns a history into a forecast and its quantiles.

A graph is kept only if its forecasts of the bundle's made-up histories (golden.py) equal the
bundle's, within PARITY standard deviations of each series.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from forecaster.attention import Attention
from forecaster.base.errors import ForecasterError, UnavailableError
from forecaster.base.extras import check
from forecaster.base.shapes import Float, Int
from forecaster.datasets.effects import BEYOND, Effects, recent_mean
from forecaster.forecast import golden
from forecaster.forecast.composition import made_of
from forecaster.forecast.export.description import Description
from forecaster.forecast.export.runtime import Exported, Run, session
from forecaster.forecast.intervals import LEAST, POWER, Intervals
from forecaster.forecast.predictor import Predictor
from forecaster.record import Record

PARITY = 1e-5
"""How far a value may be off."""


class ExportedModule(nn.Module):
    """Maps histories to forecasts, both in units: scaling, the weighted parts, quantiles.

    A panel's series are scaled by the given `mean` and `std`.
    """

    mean: Tensor
    std: Tensor
    onto: Tensor

    def __init__(self, forecaster: Predictor) -> None:
        super().__init__()
        bundle, schema = forecaster.bundle, forecaster.schema
        self.model, self.past = forecaster.model, bundle.past
        self.targets = list(schema.target_positions)
        onto = torch.eye(len(schema.columns), dtype=torch.float64)[self.targets]
        self.register_buffer("onto", onto)  # targets as columns
        if not schema.items:
            self.register_buffer("mean", torch.from_numpy(schema.scaler.mean)[None, None])
            self.register_buffer("std", torch.from_numpy(schema.scaler.std)[None, None])
        self.quantiles = Quantiles(bundle.intervals) if forecaster.levels else None
        self.effects: _Shift | None = None
        if effects := schema.known.shifting:
            width = self.model.task.calendar + self.model.task.covariates
            self.effects = _Shift(effects, width - schema.known.width, bundle.past + bundle.horizon)

    def forward(
        self,
        history: Float[Tensor, "b p c"],
        known: Float[Tensor, "b steps f"],
        levels: Float[Tensor, "q"] | None = None,  # noqa: F821
        mean: Float[Tensor, "b 1 c"] | None = None,
        std: Float[Tensor, "b 1 c"] | None = None,
        item: Int[Tensor, "b"] | None = None,  # noqa: F821
    ) -> tuple[Tensor, ...]:
        """The forecast (B, T, K) and, if there are intervals, its quantiles (B, T, K, levels)."""
        if mean is None or std is None:
            mean, std = self.mean, self.std
        observed = ~history.isnan()
        past, moved = (history - mean) / std, None
        if self.effects is not None:
            moved = self.effects(known)
            moved, before = moved[:, self.past :], moved[:, : self.past]
            past = past - before @ self.onto
        past = past.float().masked_fill(~observed, 0.0)
        ahead = known[:, self.past :]
        point = self.model(past, known[:, : self.past], ahead, observed, item).double()
        if moved is not None:
            point = point + moved
        mean, std = mean[..., self.targets], std[..., self.targets]
        forecast = point * std + mean
        if self.quantiles is None or levels is None:
            return (forecast,)
        recent, seen = past[..., self.targets], observed[..., self.targets]
        result: Tensor = self.quantiles(point, recent, ahead, seen, levels, item)
        return forecast, result * std[..., None] + mean[..., None]


class _Shift(nn.Module):
    """`Effects.shift` of the covariates, which begin at the feature `first`, on tensors."""

    weights: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, effects: Effects, first: int, steps: int) -> None:
        super().__init__()
        self.own, self.terms = slice(first, first + len(effects.low)), effects.terms
        for name in ("weights", "low", "high"):
            values = torch.tensor(getattr(effects, name), dtype=torch.float64)
            self.register_buffer(name, values)
        halves = {(term.half_life, term.memory) for term in effects.terms if term.half_life}
        self.means = {}
        for place, half in enumerate(sorted(halves)):
            self.means[half] = f"mean{place}"
            matrix = recent_mean(np.eye(steps), *half).T.copy()
            self.register_buffer(f"mean{place}", torch.from_numpy(matrix))

    def forward(self, known: Tensor) -> Tensor:
        values = known[..., self.own].double()
        inside = torch.minimum(torch.maximum(values, self.low), self.high)
        values = inside + BEYOND * (values - inside)
        shifts = []
        for term in self.terms:
            column = values[..., term.covariate]
            if term.half_life:
                column = column @ getattr(self, self.means[term.half_life, term.memory]).T
            shifts.append(column if term.knot is None else torch.relu(column - term.knot))
        return torch.stack(shifts, dim=-1) @ self.weights


class Quantiles(nn.Module):
    """`Intervals.widths` and `Intervals.quantiles`, on tensors."""

    offsets: Tensor
    own: Tensor
    weights: Tensor
    usual: Tensor
    phases: Tensor
    of_series: Tensor

    def __init__(self, intervals: Intervals | None) -> None:
        super().__init__()
        assert intervals is not None
        conditions, backed = intervals.conditions, intervals.backed
        self.register_buffer("offsets", torch.from_numpy(intervals.offsets[..., backed]).double())
        self.register_buffer("own", torch.tensor(intervals.levels, dtype=torch.float64))
        self.each = intervals.of_series is not None
        if intervals.of_series is not None:
            factors = np.concatenate([intervals.of_series, np.ones_like(intervals.of_series[:1])])
            self.register_buffer("of_series", torch.from_numpy(factors).double())
        self.season = 0 if conditions is None else conditions.season
        if conditions is not None:
            weights = torch.tensor(conditions.weights, dtype=torch.float64)
            self.register_buffer("weights", weights)
            self.register_buffer("usual", torch.from_numpy(conditions.usual).double())
            self.register_buffer("phases", torch.from_numpy(conditions.phases).double())

    def forward(
        self,
        point: Tensor,
        past: Tensor,
        ahead: Tensor,
        seen: Tensor,
        at: Tensor,
        item: Tensor | None = None,
    ) -> Tensor:
        """Scaled quantiles (B, T, K, levels) at the levels `at`."""
        offsets, point = self.offsets, point[..., None]
        if self.season:
            widths = self._by_window(past, seen)[:, None] * self.phases[self._parts(ahead)]
            offsets = widths[..., None] * offsets
        if self.each and item is not None:
            offsets = self.of_series[item][:, None, :, None] * offsets
        quantiles = (point + offsets).sort(dim=-1).values
        level = quantiles @ self._shares(at)
        side = at - 0.5
        level = torch.where(side < 0, torch.minimum(level, point), level)
        level = torch.where(side > 0, torch.maximum(level, point), level)
        return torch.where(side == 0, point, level)

    def _shares(self, at: Tensor) -> Tensor:
        """The weights (Q, levels) of our own levels in the linear interpolation to `at`."""
        levels = self.own
        if len(levels) == 1:
            return torch.ones_like(at)[None]
        one = torch.ones_like(at)[None]
        apart = (levels[1:] - levels[:-1])[:, None]
        rising = torch.cat([one, (at - levels[:-1, None]) / apart])
        falling = torch.cat([(levels[1:, None] - at) / apart, one])
        return torch.minimum(rising, falling).clamp(0.0, 1.0)

    def _parts(self, ahead: Tensor) -> Tensor:
        features = ahead[..., : len(self.weights)].double() + 0.5
        phase = torch.floor(features @ self.weights + 1e-2).long() % self.season
        return phase * len(self.phases) // self.season

    def _by_window(self, past: Tensor, seen: Tensor) -> Tensor:
        """`Conditions.of_deviation` of `deviation`, (B, K)."""
        steps, columns = past.shape[1:]
        length = self.season if steps >= 2 * self.season else 1
        whole = steps // length * length
        shape = (-1, whole // length, length, columns)
        values, there = (x[:, -whole:].double().reshape(shape) for x in (past, seen))
        cycle = (values * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
        squares = (values - cycle[:, None]).square() * there
        newest = max(self.season, steps // 4)
        sums, counts = (
            x.reshape(-1, whole, columns)[:, -newest:].sum(dim=1) for x in (squares, there)
        )
        ratio = (sums / counts).sqrt() / self.usual
        ratio = torch.where(torch.isfinite(ratio), ratio, 1.0)
        return ratio.clamp(min=LEAST) ** POWER


def export(forecaster: Predictor, folder: Path) -> Description:
    """Write a model as ONNX, and its description, to a folder.

    Raises UnavailableError if the model cannot be exported, or if the export's forecasts differ;
    then nothing is written.
    """
    bundle = forecaster.bundle
    description = Description(
        model=bundle.name,
        bundle=bundle.digest,
        past=bundle.past,
        horizon=bundle.horizon,
        needs=forecaster.needs,
        levels=forecaster.levels,
        schema=bundle.schema,
        about={key: bundle.about[key] for key in ("intervals", "ranges") if key in bundle.about},
        record=Record(test=bundle.record.test),
        made_of=made_of(bundle),
        by_series=forecaster.model.of_series is not None
        or (bundle.intervals is not None and bundle.intervals.of_series is not None),
    )
    needed()
    try:
        with quiet():
            model, run = to_onnx(ExportedModule(forecaster).eval(), description)
    except ForecasterError:
        raise
    except Exception as error:  # tracing raises many classes of errors
        raise UnavailableError(_reason(forecaster, error)) from error
    kept = bundle.golden
    which = range(golden.FEWEST) if kept is None else kept.which.tolist()
    exported = Exported(description, run).golden(which)
    apart = float(np.abs(exported - forecaster.golden(which)).max())
    if not apart <= PARITY:
        raise UnavailableError(
            f"the forecasts of the exported model differ from the bundle's by up to {apart:.2g} "
            f"standard deviations, where {PARITY:g} is allowed; nothing was kept"
        )
    return replace(description, parity=apart).save(folder, model)


def needed() -> None:
    """Raise UnavailableError if a package that writes ONNX is missing."""
    for module in ("onnx", "onnxscript"):
        check(module, "export to ONNX")


def to_onnx(served: ExportedModule, description: Description) -> tuple[bytes, Run]:
    """The bytes of an ONNX file for any number of histories and of levels, and a function that runs
    them."""
    steps, columns = description.past + description.horizon, len(description.schema.columns)
    task = served.model.task
    batch, levels = torch.export.Dim("batch"), torch.export.Dim("levels")
    generator = torch.Generator().manual_seed(0)
    own = [*description.levels[:2], *description.levels][:3]
    every = {
        "history": torch.randn(3, description.past, columns, generator=generator).double(),
        "known": torch.zeros(3, steps, task.calendar + task.covariates),
        "levels": torch.tensor(own, dtype=torch.float64),
        # the same tensor given twice would become one input of the graph
        "mean": torch.zeros(3, 1, columns, dtype=torch.float64),
        "std": torch.ones(3, 1, columns, dtype=torch.float64),
        "item": torch.zeros(3, dtype=torch.int64),
    }
    inputs = {name: every[name] for name in description.inputs}
    dims = {name: {0: levels if name == "levels" else batch} for name in inputs}
    with torch.no_grad():
        traced = torch.export.export(served, (), inputs, dynamic_shapes=dims)
    program = torch.onnx.export(
        traced,
        input_names=list(description.inputs),
        output_names=list(description.outputs),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    for node in chain(proto.graph.node, *(function.node for function in proto.functions)):
        del node.metadata_props[:]  # paths of this machine where it was traced
    del proto.graph.value_info[:]
    for value in (*proto.graph.input, *proto.graph.output):
        for place, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_param"):
                dim.dim_param = "levels" if place or value.name == "levels" else "batch"
    model: bytes = proto.SerializeToString()
    return model, session(model, 1)


def _reason(forecaster: Predictor, error: Exception) -> str:
    """Why a model cannot be exported: the reasons of its attentions, or the error's first line."""
    kinds = {type(module) for module in forecaster.model.modules() if isinstance(module, Attention)}
    reasons = [f"{kind.__name__}: {kind.about.no_export}" for kind in kinds if kind.about.no_export]
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return (
        f"this model cannot be exported to ONNX: {'; '.join(reasons) or first}. `forecaster "
        "attentions` shows which types can"
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs and warnings of torch's exporters, which do not help users."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
