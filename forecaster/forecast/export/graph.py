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

from forecaster.attention import Attention
from forecaster.base.errors import ForecasterError, UnavailableError
from forecaster.base.extras import check
from forecaster.base.spelling import spelled
from forecaster.forecast import golden
from forecaster.forecast.composition import made_of
from forecaster.forecast.export.description import Description
from forecaster.forecast.export.runtime import Exported, Run, session
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.served import ServedModel
from forecaster.record import Record

PARITY = 1e-5
"""How far a value may be off."""
REMEMBERED = ("intervals", "ranges", "newcomers")
"""What of a bundle's about.json an exported model forecasts and judges with."""


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
        about={key: bundle.about[key] for key in REMEMBERED if key in bundle.about},
        record=Record(test=bundle.record.test, newcomers=bundle.record.newcomers),
        made_of=made_of(bundle),
        by_series=forecaster.model.of_series is not None
        or (bundle.intervals is not None and bundle.intervals.of_series is not None),
    )
    needed()
    for part in forecaster.model.members:
        if not part.exports:
            raise UnavailableError(
                f"the part '{part.name}' stays in its own folder and is not exported: train "
                f"without {spelled('part')}"
            )
    try:
        with quiet():
            model, run = to_onnx(module_of(forecaster), description)
    except ForecasterError:
        raise
    except Exception as error:  # tracing raises many classes of errors
        raise UnavailableError(_reason(forecaster, error)) from error
    kept = bundle.golden
    which = range(golden.FEWEST) if kept is None else kept.which.tolist()
    exported = golden.forecasts(Exported(description, run), which)
    apart = float(np.abs(exported - golden.forecasts(forecaster, which)).max())
    if not apart <= PARITY:
        raise UnavailableError(
            f"the forecasts of the exported model differ from the bundle's by up to {apart:.2g} "
            f"standard deviations, where {PARITY:g} is allowed; nothing was kept"
        )
    return replace(description, parity=apart).save(folder, model)


def module_of(forecaster: Predictor) -> ServedModel:
    """The module that serves a model, all of it in one graph."""
    bundle = forecaster.bundle
    return ServedModel(forecaster.model, bundle.schema, bundle.intervals).eval()


def needed() -> None:
    """Raise UnavailableError if a package that writes ONNX is missing."""
    for module in ("onnx", "onnxscript"):
        check(module, "export to ONNX")


def to_onnx(served: ServedModel, description: Description) -> tuple[bytes, Run]:
    """The bytes of an ONNX file for any number of histories and of levels, and a function that runs
    them."""
    schema, steps = description.schema, description.past + description.horizon
    columns, features = len(schema.columns), schema.calendar_width + schema.known.width
    batch, levels = torch.export.Dim("batch"), torch.export.Dim("levels")
    generator = torch.Generator().manual_seed(0)
    own = [*description.levels[:2], *description.levels][:3]
    every = {
        "history": torch.randn(3, description.past, columns, generator=generator).double(),
        "known": torch.zeros(3, steps, features),
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
