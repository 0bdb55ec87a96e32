"""A trained model at rest: a folder of safetensors, JSON and a manifest. No code, no pickle.

    model.safetensors      the weights
    intervals.safetensors  what makes quantiles of the forecast, in units; empty without any
    config.json            the resolved RunConfig
    schema.json            columns, targets, time, frequency, seasons, and each column's scaler
    metrics.json           the honest figures: test split, floors, counts
    about.json             name, run, data digest, commit, versions, what attention and intervals
                           amount to
    MANIFEST.sha256        "<sha256>  <file>" for each of them

The manifest detects damage; it does not prove who wrote the bundle.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from forecaster.config import RunConfig, load_dict
from forecaster.datasets import Scaler, calendar_names, phase_weights
from forecaster.errors import BundleError, ConfigError, StorageError, UsageError
from forecaster.intervals import Intervals
from forecaster.model import ForecastModel, Task

FORMAT = 2
MANIFEST = "MANIFEST.sha256"
WEIGHTS = "model.safetensors"
INTERVALS = "intervals.safetensors"
JSON_FILES = ("config.json", "schema.json", "metrics.json", "about.json")
FILES = (*JSON_FILES, WEIGHTS, INTERVALS)


@dataclass(frozen=True)
class Schema:
    """What a model reads and writes, in the names and units of the user.

    `time` is the name of the time column, `timezone` "UTC" or "naive"; `scaler` belongs to
    `columns`, in their order; `seasons` are steps, the main one first.
    """

    columns: tuple[str, ...]
    targets: tuple[str, ...]
    time: str
    timezone: str
    freq: str
    seasons: tuple[int, ...]
    scaler: Scaler

    @property
    def target_positions(self) -> tuple[int, ...]:
        return tuple(self.columns.index(name) for name in self.targets)

    @property
    def target_scaler(self) -> Scaler:
        return self.scaler.select(self.target_positions)

    def task(self, past: int, start: int, horizon: int) -> Task:
        """The shape of the problem for a model with these lengths."""
        return Task(
            columns=len(self.columns),
            targets=self.target_positions,
            past=past,
            start=start,
            horizon=horizon,
            calendar=len(calendar_names(self.freq)),
            season=self.seasons[0],
            phase=phase_weights(self.freq, self.seasons[0]),
        )


@dataclass(frozen=True)
class Bundle:
    """A trained model with all that is needed to use and to judge it."""

    config: RunConfig
    schema: Schema
    weights: dict[str, Any]
    metrics: dict[str, Any]
    about: dict[str, Any]
    intervals: Intervals | None = None
    digest: str = ""
    origin: dict[str, str] = field(default_factory=dict)
    """The version and the alias under which it was found in a registry; not part of the files."""

    @property
    def name(self) -> str:
        """`forecaster-<data>-<features>-<target>-<horizon>`, the registered name."""
        return str(self.about["name"])

    @property
    def past(self) -> int:
        past = self.config.window.past
        assert isinstance(past, int)  # resolved before training
        return past

    @property
    def horizon(self) -> int:
        return self.config.window.horizon

    def build(self) -> ForecastModel:
        """The model with its weights, in eval mode on the CPU.

        Raises BundleError when weights, schema and configuration do not fit together.
        """
        task = self.schema.task(*self.config.window.lengths())
        try:
            model = self.config.build_model(task)
            model.load_state_dict(self.weights, strict=True)
        except (UsageError, RuntimeError) as error:
            raise BundleError(f"{WEIGHTS} does not fit config.json: {error}") from None
        return model.eval()

    def save(self, folder: Path) -> "Bundle":
        """Write the folder; returns the bundle with its digest."""
        from safetensors.torch import save

        schema = {**asdict(self.schema), "scaler": self.schema.scaler.to_dict()}
        about = {"format": FORMAT, **self.about, "versions": versions()}
        contents = (self.config.to_dict(), schema, self.metrics, about)
        files = {
            name: (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
            for name, content in zip(JSON_FILES, contents, strict=True)
        }
        files[WEIGHTS] = save({k: v.detach().cpu().contiguous() for k, v in self.weights.items()})
        files[INTERVALS] = save(_tensors(self.intervals))
        files[MANIFEST] = b"".join(_line(name, data) for name, data in files.items())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (folder / name).write_bytes(data)
        except OSError as error:
            raise StorageError(f"the bundle could not be written to {folder}: {error}") from error
        return load(folder)


def versions() -> dict[str, str]:
    """The packages that a bundle depends on."""
    return {name: version(name) for name in ("forecaster", "torch", "numpy", "pandas")}


def load(folder: Path) -> Bundle:
    """Read a bundle, every byte checked against the manifest before it is parsed.

    Raises BundleError naming the file that is missing, damaged or of another format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors

    manifest = _read(folder, MANIFEST)
    files = {name: _read(folder, name) for name in FILES}
    lines = {name: _line(name, data) for name, data in files.items()}
    damaged = [name for name, line in lines.items() if line not in manifest]
    if damaged or manifest != b"".join(lines.values()):
        raise BundleError(
            f"{folder / (damaged or [MANIFEST])[0]} is damaged: the SHA-256 of a file and the one "
            f"in {MANIFEST} differ. Fetch the bundle again or train anew."
        )
    try:
        config, schema, metrics, about = (json.loads(files[name]) for name in JSON_FILES)
        if about["format"] != FORMAT:
            raise BundleError(
                f"{folder} has bundle format {about['format']}, this version reads {FORMAT}"
            )
        bundle = Bundle(
            config=load_dict(config, str(folder / "config.json")),
            schema=_schema(schema),
            weights=load_tensors(files[WEIGHTS]),
            metrics=metrics,
            about=about,
            intervals=_intervals(load_tensors(files[INTERVALS])),
            digest=f"sha256:{hashlib.sha256(manifest).hexdigest()}",
        )
        if (own := bundle.intervals) is not None:
            wanted = (bundle.horizon, len(bundle.schema.targets), len(own.nominal))
            if (own.offsets.shape, own.scale.shape) != (wanted, wanted[:2]):
                raise BundleError(f"{INTERVALS} does not fit config.json: expected shape {wanted}")
        return bundle
    except ConfigError as error:
        raise BundleError(f"not a bundle of this version: {error}") from None
    except (KeyError, TypeError, ValueError, RecursionError, SafetensorError) as error:
        raise BundleError(f"{folder} is not a bundle of this version: {error!r}") from None


def is_bundle(folder: Path) -> bool:
    """Whether the folder looks like a bundle."""
    return (folder / MANIFEST).is_file()


def _line(name: str, data: bytes) -> bytes:
    """The line of the manifest for a file."""
    return f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode()


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{folder} is not a complete bundle: {name} is missing") from None
    except OSError as error:
        raise StorageError(f"{folder / name} could not be read: {error}") from error


def _tensors(intervals: Intervals | None) -> dict[str, Any]:
    if intervals is None:
        return {}
    return {
        "levels": torch.tensor(intervals.nominal, dtype=torch.float64),
        "offsets": torch.from_numpy(intervals.offsets),
        "scale": torch.from_numpy(intervals.scale),
        "windows": torch.tensor(intervals.windows),
    }


def _intervals(tensors: dict[str, Any]) -> Intervals | None:
    if not tensors:
        return None
    return Intervals(
        nominal=tuple(tensors["levels"].tolist()),
        offsets=tensors["offsets"].numpy(),
        scale=tensors["scale"].numpy(),
        windows=int(tensors["windows"]),
    )


def _schema(values: dict[str, Any]) -> Schema:
    return Schema(
        columns=tuple(values["columns"]),
        targets=tuple(values["targets"]),
        time=values["time"],
        timezone=values["timezone"],
        freq=values["freq"],
        seasons=tuple(values["seasons"]),
        scaler=Scaler.from_dict(values["scaler"]),
    )
