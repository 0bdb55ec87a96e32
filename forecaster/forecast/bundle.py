"""A trained model at rest: a folder of safetensors, JSON and a manifest. No code, no pickle.

    parts.json             what the forecast is made of: kind and settings of each part
    parts.safetensors      the weight of each part at each step, and what each has learned but for
    model.safetensors      the network's weights; empty where it has no share
    intervals.safetensors  what makes quantiles of the forecast, scaled, and whole windows of errors
                           for paths and totals; empty without any
    golden.safetensors     what it forecast of made-up histories when it was saved; empty if unknown
    config.json            the resolved RunConfig
    schema.json            columns, targets, how the file was read, and each column's scaler
    metrics.json           the honest figures: test split, floors, counts
    about.json             name, run, data digest, commit, versions, what attention and intervals
                           amount to, what histories are usual, what stands in for new series
    MANIFEST.sha256        "<sha256>  <file>" for each of them

The manifest detects damage; it does not prove who wrote the bundle.
"""

import hashlib
import json
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from forecaster.base.atomic import sync, write
from forecaster.base.errors import BundleError, ConfigError, StorageError, UsageError
from forecaster.base.installation import MANIFEST
from forecaster.base.version import __version__
from forecaster.config.run_config import RunConfig, load_dict
from forecaster.datasets.calendar import calendar_names
from forecaster.forecast.golden import Golden
from forecaster.forecast.intervals import Conditions, Intervals
from forecaster.model import ForecastModel, Task
from forecaster.parts import NETWORK, Blend, Network, Part, kind_of
from forecaster.plan.schema import Schema
from forecaster.record import Record

FORMAT = 11
WEIGHTS = "model.safetensors"
INTERVALS = "intervals.safetensors"
JSON_FILES = ("config.json", "schema.json", "metrics.json", "about.json", "parts.json")
GOLDEN = "golden.safetensors"
UNSAID: dict[str, Any] = {
    "data_digest": "unknown", "intervals": "unknown", "refit": False, "commit": "unknown",
    "versions": {},
}  # fmt: skip
"""What about.json may leave out."""
PARTS = "parts.safetensors"
FILES = (*JSON_FILES, WEIGHTS, PARTS, INTERVALS, GOLDEN)


@dataclass(frozen=True, eq=False)
class Share:
    """A part at rest: its kind, what `Part.settings` and `state_dict` gave, its weights (T,), and
    those in each series (S,).

    Of the network the configuration has the settings, and the bundle the tensors.
    """

    name: str
    kind: str
    settings: dict[str, Any]
    weights: Tensor
    tensors: dict[str, Tensor] = field(default_factory=dict)
    of_series: Tensor | None = None

    @classmethod
    def of(cls, blend: Blend) -> "tuple[Share, ...]":
        """Those of a model."""
        shares = []
        for place, (part, weights) in enumerate(zip(blend.members, blend.weights, strict=True)):
            of_series = None if blend.of_series is None else blend.of_series[:, place].cpu()
            settings, tensors = {}, {}
            if not isinstance(part, Network):
                settings = part.settings
                tensors = {name: tensor.cpu() for name, tensor in part.state_dict().items()}
            shares.append(cls(part.name, part.kind, settings, weights.cpu(), tensors, of_series))
        return tuple(shares)


@dataclass(frozen=True)
class Bundle:
    """A trained model with all that is needed to use and to judge it."""

    config: RunConfig
    schema: Schema
    weights: dict[str, Any]
    record: Record
    about: dict[str, Any]
    intervals: Intervals | None = None
    parts: tuple[Share, ...] = ()
    """What the forecast is made of; without any, the network alone."""
    golden: Golden | None = None
    """What `golden.forecasts` gave when it was saved."""
    digest: str = ""
    origin: dict[str, str] = field(default_factory=dict)
    """Where a registry had it: name, version, alias, source; not part of the files."""

    @property
    def name(self) -> str:
        """`forecaster-<data>-<features>-<target>-<horizon>`, the registered name."""
        return str(self.about["name"])

    @property
    def past(self) -> int:
        return self.config.window.steps

    @property
    def horizon(self) -> int:
        return self.config.window.horizon

    def build(self) -> Blend:
        """The model with its weights, in eval mode on the CPU.

        Raises BundleError when weights, schema and configuration do not fit together.
        """
        form = self.schema.task(*self.config.window.lengths())
        task = replace(form, past=self.past)
        if not self.parts:
            return Blend(
                task, {NETWORK: Network(self.build_network(form))}, torch.ones(1, task.horizon)
            ).eval()
        parts: dict[str, Part] = {}
        for share in self.parts:
            if share.kind == NETWORK:
                parts[share.name] = Network(self.build_network(form))
                continue
            kind = kind_of(share.kind)
            try:
                parts[share.name] = kind.build(task, share.settings, share.tensors)
            except (TypeError, ValueError, RuntimeError) as error:
                raise BundleError(
                    f"the part '{share.name}' of {PARTS} does not fit parts.json: {error}"
                ) from None
        try:
            weights, of_series = _weights(self.parts)
            if of_series is not None and len(of_series) != len(self.schema.items):
                raise ValueError(f"weights of {len(of_series)} series")
            return Blend(task, parts, weights, of_series).eval()
        except (ValueError, RuntimeError) as error:
            raise BundleError(f"{PARTS} does not fit config.json: {error}") from None

    def build_network(self, task: Task) -> ForecastModel:
        """The network alone."""
        try:
            model = self.config.build_model(task)
            model.load_state_dict(self.weights, strict=True)
        except (UsageError, RuntimeError) as error:
            raise BundleError(f"{WEIGHTS} does not fit config.json: {error}") from None
        return model

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What training gave, by file and name."""
        weights = {k: v.detach().cpu().contiguous() for k, v in self.weights.items()}
        return {
            WEIGHTS: weights,
            PARTS: _shared(self.parts),
            INTERVALS: _tensors(self.intervals),
        }

    def save(self, folder: Path) -> "Bundle":
        """Write the folder, the manifest last; returns the bundle with its digest.

        Raises StorageError, and then leaves what was there before.
        """
        from safetensors.torch import save

        about = {"format": FORMAT, **self.about, "versions": versions()}
        parts = [
            {"name": each.name, "kind": each.kind, "settings": each.settings} for each in self.parts
        ]
        plain = (self.config.to_dict(), self.schema.to_dict(), self.record.to_dict(), about, parts)
        contents = {
            name: (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
            for name, content in zip(JSON_FILES, plain, strict=True)
        }
        golden = {} if self.golden is None else vars(self.golden)
        made = {name: torch.from_numpy(each) for name, each in golden.items()}
        tables = {**self.tensors(), GOLDEN: made}
        contents |= {name: save(table) for name, table in tables.items()}
        contents[MANIFEST] = b"".join(_line(name, data) for name, data in contents.items())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (
                TemporaryDirectory(prefix=".new.", dir=folder) as new,
                TemporaryDirectory(prefix=".old.", dir=folder) as old,
                ExitStack() as undo,
            ):
                for name, data in contents.items():
                    write(Path(new, name), data)
                # the folder itself stays: it may hold other files, be mounted, or be a link
                there = [name for name in reversed(contents) if (folder / name).exists()]
                moves = [(folder / name, Path(old, name)) for name in there]
                moves += [(Path(new, name), folder / name) for name in contents]
                for origin, target in moves:  # without a manifest on the way, so it is no bundle
                    origin.replace(target)
                    undo.callback(target.replace, origin)
                sync(folder)
                undo.pop_all()
        except (OSError, StorageError) as error:
            with suppress(OSError):
                folder.rmdir()  # where it has nothing else
            raise StorageError(f"the bundle could not be written to {folder}: {error}") from error
        return load(folder)


def versions() -> dict[str, str]:
    others = {name: version(name) for name in ("torch", "numpy", "pandas")}
    return {"forecaster": __version__, **others}


def load(folder: Path) -> Bundle:
    """Read a bundle, every byte checked against the manifest before it is parsed.

    Raises BundleError naming the file that is missing, damaged or of another format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors

    manifest = _read(folder, MANIFEST)
    about_json = _read(folder, "about.json")
    _check_format(folder, about_json, manifest)
    rest = {name: _read(folder, name) for name in FILES if name != "about.json"}
    files = {name: rest.get(name, about_json) for name in FILES}
    lines = {name: _line(name, data) for name, data in files.items()}
    damaged = [name for name, line in lines.items() if line not in manifest]
    if damaged or manifest != b"".join(lines.values()):
        raise BundleError(
            f"{folder / (damaged or [MANIFEST])[0]} is damaged: the SHA-256 of a file and the one "
            f"in {MANIFEST} differ. Fetch it again, or train the model again."
        )
    try:
        config, schema, metrics, about, parts = (json.loads(files[name]) for name in JSON_FILES)
        if missing := [key for key in ("format", "name") if key not in about]:
            raise KeyError(*missing)
        bundle = Bundle(
            config=load_dict(config, str(folder / "config.json")),
            schema=Schema.from_dict(schema),
            weights=load_tensors(files[WEIGHTS]),
            record=Record.read(metrics),
            about={**UNSAID, **about},
            parts=_shares(parts, load_tensors(files[PARTS])),
            intervals=_intervals(load_tensors(files[INTERVALS])),
            golden=_golden(load_tensors(files[GOLDEN])),
            digest=_digest(manifest),
        )
        bundle.config.window.lengths()  # raises where they are not those of a trained model
        if (own := bundle.intervals) is not None:
            _check_intervals(own, bundle)
        levels = len(own.levels) if own else 0
        if (kept := bundle.golden) is not None:
            wanted = (len(kept.which), bundle.horizon, len(bundle.schema.targets), 1 + levels)
            if kept.forecast.shape != wanted or min(kept.which, default=-1) < 0:
                raise BundleError(f"{GOLDEN} does not fit config.json: expected shape {wanted}")
        return bundle
    except ConfigError as error:
        raise BundleError(f"not a bundle of this version: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, SafetensorError,
            OverflowError, RecursionError) as error:  # fmt: skip
        raise BundleError(f"{folder} is not a bundle of this version: {error!r}") from None


def _check_format(folder: Path, about_json: bytes, manifest: bytes) -> None:
    """Raise BundleError for a whole bundle of another format, which may have other files."""
    if _line("about.json", about_json) not in manifest:
        return  # it is damaged, which the caller reports
    try:
        format_number = json.loads(about_json)["format"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return  # it is no bundle, which the caller reports
    if format_number == FORMAT:
        return
    remedy = "use it with the version that made it"
    if isinstance(format_number, int) and format_number < FORMAT:
        remedy += ", or train the model again with the command that made it"
    raise BundleError(
        f"{folder} has bundle format {format_number}, but this version of forecaster reads format "
        f"{FORMAT}: {remedy}"
    )


def digest_of(folder: Path) -> str:
    """The digest that the bundle in a folder has if it is whole; reads the manifest alone."""
    return _digest(_read(folder, MANIFEST))


def _digest(manifest: bytes) -> str:
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def _line(name: str, data: bytes) -> bytes:
    return f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode()


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{folder} is not a complete bundle: {name} is missing") from None
    except OSError as error:
        raise StorageError(f"{folder / name} could not be read: {error}") from error


def _shared(parts: tuple[Share, ...]) -> dict[str, Tensor]:
    """The tensors of all parts in one table: "weights", and "2/name" of the third one."""
    shared = {
        f"{place}/{name}": tensor.contiguous()
        for place, part in enumerate(parts)
        for name, tensor in part.tensors.items()
    }
    if parts:
        shared["weights"], of_series = _weights(parts)
        if of_series is not None:
            shared["weights_of_series"] = of_series
    return shared


def _weights(parts: tuple[Share, ...]) -> tuple[Tensor, Tensor | None]:
    """The weights (n, T) of parts, and those in each series (S, n)."""
    of_series = [part.of_series for part in parts if part.of_series is not None]
    weights = torch.stack([part.weights for part in parts])
    return weights, torch.stack(of_series, dim=1) if of_series else None


def _shares(parts: list[dict[str, Any]], tensors: dict[str, Tensor]) -> tuple[Share, ...]:
    groups: list[dict[str, Tensor]] = [{} for _ in parts]
    for name, tensor in tensors.items():
        place, slash, inner = name.partition("/")
        if slash:
            groups[int(place)][inner] = tensor
    for part in parts:
        if part["kind"] != NETWORK:
            kind_of(part["kind"])
    of_series = tensors.get("weights_of_series")
    columns = [None] * len(parts) if of_series is None else of_series.unbind(dim=1)
    return tuple(
        Share(weights=weights, tensors=mine, of_series=series, **part)
        for part, weights, mine, series in zip(
            parts, tensors.get("weights", ()), groups, columns, strict=True
        )
    )


def _tensors(intervals: Intervals | None) -> dict[str, Tensor]:
    """The tensors of intervals, each by the name of its field; `nominal` is called levels."""
    if intervals is None:
        return {}
    values = {each.name: getattr(intervals, each.name) for each in fields(intervals)}
    values["levels"], conditions = values.pop("nominal"), values.pop("conditions")
    values |= vars(conditions) if conditions else {}
    return {
        name: torch.from_numpy(np.asarray(value))
        for name, value in values.items()
        if value is not None
    }


def _intervals(tensors: dict[str, Tensor]) -> Intervals | None:
    if not tensors:
        return None
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    conditions = None
    if "season" in arrays:
        weights = tuple(arrays["weights"].tolist())
        conditions = Conditions(int(arrays["season"]), weights, arrays["usual"], arrays["phases"])
    levels = tuple(arrays["levels"].tolist())
    known = arrays["offsets"], arrays["scale"], int(arrays["windows"])
    more = arrays.get("of_series"), arrays.get("errors"), float(arrays["apart"])
    return Intervals(levels, *known, conditions, *more)


def _check_intervals(own: Intervals, bundle: Bundle) -> None:
    """Raise BundleError naming the first thing of the intervals that the model cannot have."""
    horizon, targets = bundle.horizon, len(bundle.schema.targets)
    levels = tuple(bundle.config.intervals.levels)
    checks: list[tuple[str, object, object]] = [
        ("levels", own.nominal, levels),
        ("offsets of shape", own.offsets.shape, (horizon, targets, len(levels))),
        ("a scale of shape", own.scale.shape, (horizon, targets)),
    ]
    if own.of_series is not None:
        count = len(bundle.schema.items)
        checks.append(("widths of series of shape", own.of_series.shape, (count, targets)))
    if own.errors is not None:
        most = max(1, len(bundle.schema.items)), horizon, targets
        shape = own.errors.shape
        limits = (max(1, shape[0]), *map(min, shape[1:], most)) if len(shape) == 4 else (1, *most)
        checks.append(("errors of a shape within", shape, limits))
    if (conditions := own.conditions) is not None:
        weights, known = len(conditions.weights), len(calendar_names(bundle.schema.freq))
        checks += [
            ("the usual deviations of shape", conditions.usual.shape, (targets,)),
            ("widths of shape", conditions.phases.shape, (max(1, len(conditions.phases)), targets)),
            ("a season of at least 1 step, here", conditions.season, max(1, conditions.season)),
            ("weights of the calendar's features at most, here", weights, min(weights, known)),
        ]
    for name, actual, expected in checks:
        if actual != expected:
            raise BundleError(
                f"{INTERVALS} does not fit config.json: expected {name} {expected}, got {actual}"
            )


def _golden(tensors: dict[str, Any]) -> Golden | None:
    return Golden(**{name: tensor.numpy() for name, tensor in tensors.items()}) if tensors else None
