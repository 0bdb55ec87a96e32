"""The description beside an exported model, so that it can run without torch."""

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.base.atomic import storing, write
from forecaster.base.errors import BundleError, StorageError, UnavailableError
from forecaster.datasets.calendar import calendar_names
from forecaster.forecast.intervals import Intervals
from forecaster.plan.schema import Schema
from forecaster.record import Record

FILE, DESCRIPTION = "model.onnx", "model.json"
VERSION = 1


@dataclass(frozen=True)
class Description:
    """An exported model in words and numbers: `DESCRIPTION` in its folder.

    `model` is the name of the model and `bundle` the digest of its bundle; `past`, `horizon` and
    `needs` are steps; `levels` those of the intervals, () without any; `made_of` are its parts, and
    `by_series` says whether each series has weights of its own.
    `about` and `record` are the bundle's, as far as remarks about forecasts need them. `parity` is
    the largest distance from the bundle's forecasts, in standard deviations of the series, and
    `sha256` is that of the model's file.
    """

    model: str
    bundle: str
    past: int
    horizon: int
    needs: int
    levels: tuple[float, ...]
    schema: Schema
    about: dict[str, Any]
    record: Record
    made_of: list[dict[str, Any]] = field(default_factory=list)
    by_series: bool = False
    parity: float = 0.0
    sha256: str = ""

    @property
    def intervals(self) -> Intervals | None:
        """The intervals, for their levels only; the numbers are in the model."""
        zero = np.zeros((1, 1, len(self.levels)))
        return Intervals(self.levels, zero, zero[..., 0], 0) if self.levels else None

    @property
    def inputs(self) -> dict[str, str]:
        """The inputs of the model in their order, each with its contents."""
        schema, covariates = self.schema, self.schema.known
        known = [*calendar_names(schema.freq), *(["holiday"] if schema.holidays else [])]
        known += [f"{name}, scaled" for name in covariates.columns]
        known += [
            f"{attribute.name} = {word}" if word else f"{attribute.name}, scaled"
            for attribute in covariates.attributes
            for word in attribute.words or ("",)
        ]
        shape = f"(batch, {self.past}, {len(schema.columns)})"
        shapes = {
            "history": f"float64 {shape}: {', '.join(schema.columns)}, in units, NaN where missing",
            "known": f"float32 (batch, {self.past + self.horizon}, {len(known)}): "
            f"{', '.join(known)} of each step",
        }
        if self.levels:
            shapes["levels"] = f"float64 (levels): from {self.levels[0]:g} to {self.levels[-1]:g}"
        if schema.items:
            scale = f"float64 (batch, 1, {len(schema.columns)}): the scale of the series"
            shapes |= {"mean": scale, "std": scale}
        if self.by_series:
            count = len(schema.items)
            shapes["item"] = f"int64 (batch): the series by its number, {count} for an unknown one"
        return shapes

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs of the model, each with its contents."""
        shape = f"(batch, {self.horizon}, {len(self.schema.targets)}"
        shapes = {"forecast": f"float64 {shape}): {', '.join(self.schema.targets)}, in units"}
        if self.levels:
            shapes["quantiles"] = f"float64 {shape}, levels): those at the levels, in units"
        return shapes

    def to_dict(self) -> dict[str, Any]:
        """The description as plain JSON types."""
        return {
            "version": VERSION,
            "format": "onnx",
            "file": FILE,
            "inputs": self.inputs,
            "outputs": self.outputs,
            **{
                each.name: getattr(self, each.name)
                for each in fields(self)
                if each.name != "record"
            },
            "schema": self.schema.to_dict(),
            "metrics": self.record.to_dict(),
        }

    def save(self, folder: Path, model: bytes) -> "Description":
        """Write the model, and this description beside it. Raises StorageError."""
        described = replace(self, sha256=hashlib.sha256(model).hexdigest())
        with storing(f"the export could not be written to {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        write(folder / FILE, model)
        write(folder / DESCRIPTION, (json.dumps(described.to_dict(), indent=1) + "\n").encode())
        return described


def read(folder: Path) -> tuple[Description, bytes]:
    """The description in a folder, and the bytes of the model beside it.

    Raises UnavailableError if there is none, BundleError if it is damaged.
    """
    try:
        state = json.loads((folder / DESCRIPTION).read_bytes())
        if (state.pop("version"), state.pop("format")) != (VERSION, "onnx"):
            raise KeyError("version")
        for name in ("file", "inputs", "outputs"):
            state.pop(name)
        state["schema"], state["levels"] = Schema.from_dict(state["schema"]), tuple(state["levels"])
        state["record"] = Record.read(state.pop("metrics"))
        description = Description(**state)
        model = (folder / FILE).read_bytes()
    except FileNotFoundError as error:
        raise UnavailableError(
            f"the folder {folder} holds no exported model: {Path(str(error.filename)).name} is "
            "missing; write one with `forecaster export --model MODEL --format onnx`"
        ) from None
    except OSError as error:
        raise StorageError(f"{folder} could not be read: {error}") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BundleError(
            f"{folder / DESCRIPTION} is not a description of this version: {error!r}; export the "
            "model anew"
        ) from None
    if hashlib.sha256(model).hexdigest() != description.sha256:
        raise BundleError(
            f"{folder / FILE} is damaged: its SHA-256 is not the one in {DESCRIPTION}; "
            "export the model anew"
        )
    return description, model
