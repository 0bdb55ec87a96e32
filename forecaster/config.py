"""One frozen RunConfig: what a run is, from data to tracking.

    field defaults < one file < environment FORECASTER_* < --set a.b=c < named flags

Files never stack. The environment speaks of values inside a section with two underscores,
FORECASTER_TRAIN__EPOCHS=3, and of FORECASTER_SEED and FORECASTER_DEVICE. `model` and `attn` are
a name with the options of that class's constructor beside it; naming another class drops the
options that belonged to the old one.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from forecaster import resources
from forecaster.attention import ATTENTIONS, SYNONYMS
from forecaster.attention.base import AttentionChoice, AttentionPlan
from forecaster.errors import ConfigError, ForecasterError, UsageError
from forecaster.lookup import did_you_mean, find, option_model
from forecaster.model import SKELETONS, ForecastModel, Task

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
Cycles = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]* cycles?$")]
Features = Literal["M", "S", "MS"]

FLAGS = {
    "attn": "attn.name",
    "data": "data.name",
    "target": "data.target",
    "features": "data.features",
    "horizon": "window.horizon",
    "lookback": "window.past",
    "epochs": "train.epochs",
    "refit": "train.refit",
    "register": "track.register_model",
    "seed": "seed",
    "device": "device",
}
"""The named flags of the command line and the values that they are short for."""

NAMED = ("model", "attn", "attn.decoder", "attn.cross")
ENVIRONMENT = re.compile(r"FORECASTER_(?:(?:[A-Z0-9]+__)+[A-Z0-9_]+|SEED|DEVICE)")


class Section(BaseModel):
    """Frozen, unknown keys forbidden."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataConfig(Section):
    name: str = "ETTh1"
    """A data card, see `forecaster data`."""
    otherwise: str | None = None
    """The card that takes its place when `name` is a default and cannot be had."""
    path: Path | None = None
    """A file to read instead of looking for the card's."""
    features: Features | None = None
    """M: all columns to all; S: the target alone; MS: all columns to the target. By default M,
    or MS when a target is named."""
    target: str | None = None
    """The column that S and MS predict; by default the card's."""


class WindowConfig(Section):
    past: Positive | Cycles = 96
    """Look-back P: steps, or "21 cycles" of the data's main season."""
    start: Positive | None = None
    """Known steps that open the Informer's decoder; by default half the look-back."""
    horizon: Positive = 96
    """Forecast steps T."""


class Choice(BaseModel):
    """A class by name, with its options beside the name."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class _OptionError(ValueError):
    """A wrong option of a named class; `known` are the right ones."""

    def __init__(self, error: ValidationError, known: list[str]) -> None:
        super().__init__(str(error))
        self.problem = error.errors(include_url=False)[0]
        self.known = known


def _choose(value: Any, table: Mapping[str, Any], kind: str, synonyms: Mapping[str, str]) -> Any:
    """Complete `{name, options...}` with the defaults of the named constructor."""
    if isinstance(value, Choice):
        return value
    fields = {"name": value} if isinstance(value, str) else dict(value)
    if not isinstance(fields.get("name"), str):
        raise ValueError(f"{kind} wants a name; known: {', '.join(table)}")
    try:
        name, constructor = find(table, fields.pop("name"), kind, synonyms)
    except UsageError as error:
        raise ValueError(str(error)) from None
    model = option_model(constructor, name)
    try:
        options = model(**fields)
    except ValidationError as error:
        raise _OptionError(error, list(model.model_fields)) from None
    return {"name": name, **{key: getattr(options, key) for key in type(options).model_fields}}


class ModelChoice(Choice):
    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        return _choose(value, SKELETONS, "model", {})


class AttentionOption(Choice):
    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        return _choose(value, ATTENTIONS, "attention", SYNONYMS)

    def choice(self) -> AttentionChoice:
        return AttentionChoice(self.name, self.options)


class AttnConfig(AttentionOption):
    decoder: AttentionOption | None = None
    """The decoder's self-attention; by default the encoder's type."""
    cross: AttentionOption | None = None
    """The decoder's cross-attention; by default full."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return _choose(value, ATTENTIONS, "attention", SYNONYMS)
        roles = {key: value[key] for key in ("decoder", "cross") if key in value}
        own = {key: item for key, item in value.items() if key not in roles}
        return {**_choose(own, ATTENTIONS, "attention", SYNONYMS), **roles}

    def plan(self) -> AttentionPlan:
        own = self.choice()
        return AttentionPlan(
            encoder=own,
            decoder=self.decoder.choice() if self.decoder else own,
            cross=self.cross.choice() if self.cross else AttentionChoice("full"),
        )


class TrainConfig(Section):
    epochs: Positive = 6
    """At most so many passes over the training windows."""
    batch: Positive = 32
    """Windows in a step."""
    stride: Positive = 1
    """Use every n-th training window in an epoch; the offset is drawn anew each epoch."""
    optimiser: Literal["adam", "adamw"] = "adam"
    lr: Rate = 1e-4
    lr_of: dict[str, Rate] = {}
    """Other learning rates, without weight decay, for parameters whose name begins with the key."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["constant", "halve", "type1"] = "halve"
    """halve: the rate halves every epoch; type1: from the third epoch on (the authors' code)."""
    clip: Rate | None = None
    """Largest norm of the gradient."""
    loss: Literal["mse", "mae", "huber"] = "mse"
    checks: Positive = 1
    """Validations in an epoch."""
    patience: Positive = 3
    """Stop after so many validations without a gain."""
    validation_stride: Positive = 1
    """Validate on every n-th window while training; the final figures use every one."""
    precision: Literal["auto", "32", "bf16"] = "auto"
    """auto: bf16 on CUDA, 32 bits elsewhere. Evaluation is always in 32 bits."""
    refit: bool = False
    """After the honest evaluation, train once more on all rows and keep those weights."""


class TrackConfig(Section):
    uri: str | None = None
    """MLflow's address; by default $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."""
    experiment: str = "forecaster"
    register_model: bool = True
    """Register the model and let the alias champion follow the best one."""


class RunConfig(Section):
    """Everything that decides a run."""

    data: DataConfig = DataConfig()
    window: WindowConfig = WindowConfig()
    model: ModelChoice = Field(default="informer", validate_default=True)
    attn: AttnConfig = Field(default="prob", validate_default=True)
    train: TrainConfig = TrainConfig()
    track: TrackConfig = TrackConfig()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"

    @field_validator("attn")
    @classmethod
    def _roles_exist(cls, attn: AttnConfig, info: Any) -> AttnConfig:
        model = info.data.get("model")
        if model is not None:
            roles = SKELETONS[model.name].attention_roles
            for role in ("decoder", "cross"):
                if getattr(attn, role) is not None and role not in roles:
                    raise ValueError(
                        f"attn.{role} is set, but the model '{model.name}' has no {role} "
                        f"attention to choose; its places are: {', '.join(roles)}"
                    )
        return attn

    @model_validator(mode="after")
    def _target_is_used(self) -> "RunConfig":
        if self.data.features == "M" and self.data.target is not None:
            raise ValueError(
                f"data.target={self.data.target} names one column, but data.features=M predicts "
                "all of them; choose MS (all columns to the target) or S (the target alone)"
            )
        return self

    def build_model(self, task: Task) -> ForecastModel:
        """The untrained model. Raises UsageError with the sizes when they do not fit."""
        skeleton: Any = SKELETONS[self.model.name]
        try:
            return skeleton(task, self.attn.plan(), **self.model.options)  # type: ignore[no-any-return]
        except ValueError as error:
            raise UsageError(f"this configuration cannot be built: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, defaults included; `load_dict` reads it back."""
        return self.model_dump(mode="json")

    def flat(self) -> dict[str, str]:
        """Dotted names and values as text, for tables and trackers."""
        return {key: _text(value) for key, value in _leaves(self.to_dict())}


def load_dict(values: Mapping[str, Any], where: str) -> RunConfig:
    """A RunConfig from plain values, such as those in a bundle."""
    return _validate(values, {}, where)


@dataclass(frozen=True)
class Loaded:
    """A configuration and where each value that is not a default came from."""

    config: RunConfig
    origins: dict[str, str]

    def named(self, path: str) -> bool:
        """Whether the user chose this value; False for defaults and for default.yaml."""
        origin = self.origins.get(path, "")
        return origin != "" and origin != str(resources.configs() / "default.yaml")


def load(
    file: str | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Resolve a configuration.

    `file` is a name in the folder configs or a path; `sets` are "a.b=c"; `flags` maps the keys of
    FLAGS to values, None meaning not given. Raises UsageError for what the command line got
    wrong, ConfigError for files and the environment.
    """
    flags = {key: value for key, value in (flags or {}).items() if value is not None}
    environment = os.environ if environment is None else environment
    layers: list[tuple[str, str, Any]] = []
    path = _file(file, flags.get("data"))
    for key, value in _leaves(_read(path)):
        layers.append((key, str(path), value))
    for name, text in sorted(environment.items()):
        if ENVIRONMENT.fullmatch(name):
            key = name.removeprefix("FORECASTER_").lower().replace("__", ".")
            layers.append((key, f"${name}", _parse(text, f"${name}", ConfigError)))
    for item in sets:
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise UsageError(f"--set wants KEY=VALUE such as window.horizon=96, got '{item}'")
        layers.append((key.strip(), f"--set {item}", _parse(text, f"--set {item}", UsageError)))
    for flag, value in flags.items():
        layers.append((FLAGS[flag], f"--{flag}", value))

    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key, origin, value in layers:
        _put(values, origins, key, origin, value)
    return Loaded(_validate(values, origins, str(path)), origins)


def _file(file: str | None, data: str | None) -> Path:
    folder = resources.configs()
    if file is None:
        own = folder / f"{data}.yaml"
        return own if data is not None and own.is_file() else folder / "default.yaml"
    for path in (Path(file), folder / f"{file}.yaml", folder / "grids" / f"{file}.yaml"):
        if path.is_file():
            return path
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    raise UsageError(
        f"no configuration '{file}': it is neither a file nor one of {', '.join(names)}."
        f"{did_you_mean(file, names)}"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not plain YAML: {reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{path}: expected a mapping of sections, got {type(values).__name__}")
    return values


def _parse(text: str, where: str, error: type[ForecasterError]) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise error(f"{where}: the value is not plain YAML; quote it") from None
    # YAML 1.1 takes 1e-3 for a string, because it has no dot
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+[eE][-+]?\d+", value):
        return float(value)
    return value


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            leaves.extend(_leaves(value, f"{path}."))
        else:
            leaves.append((path, value))
    # the name comes first, since it decides which options there are
    return sorted(leaves, key=lambda leaf: not leaf[0].endswith(".name"))


def _put(
    values: dict[str, Any], origins: dict[str, str], key: str, origin: str, value: Any
) -> None:
    if key in NAMED and isinstance(value, str):
        key = f"{key}.name"
    *sections, last = key.split(".")
    node = values
    for section in sections:
        inner = node.setdefault(section, {})
        if not isinstance(inner, dict):
            inner = node[section] = {}
        node = inner
    path = ".".join(sections)
    if last == "name" and path in NAMED and node.get("name") != value:
        for option in [name for name in node if name not in ("decoder", "cross")]:
            del node[option]
            origins.pop(f"{path}.{option}", None)
    node[last] = value
    origins[key] = origin


def _validate(values: Mapping[str, Any], origins: Mapping[str, str], where: str) -> RunConfig:
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        problem: Any = error.errors(include_url=False)[0]
    location = _path(problem["loc"])
    cause = problem.get("ctx", {}).get("error")
    known = _keys(location[:-1])
    if isinstance(cause, _OptionError):
        problem, known = cause.problem, cause.known
        location = (*location, *_path(problem["loc"]))
        cause = problem.get("ctx", {}).get("error")
    path = ".".join(location)
    # a rule across values has no place of its own: blame what came last
    candidates = [path, f"{path}.name", *[key for key in origins if key.startswith(path)][::-1]]
    origin = next((origins[key] for key in candidates if key in origins), where)
    match problem["type"]:
        case "extra_forbidden":
            hint = did_you_mean(location[-1], known)
            sentence = f"unknown key '{path}'.{hint} Known here: {', '.join(known)}."
        case "value_error":
            sentence = str(cause)
        case _:
            sentence = f"{path}: {problem['msg'].lower()}, got {problem['input']!r}"
    kind = UsageError if origin.startswith("--") else ConfigError
    raise kind(f"{origin}: {sentence}")


def _path(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """A pydantic location without the parts that name a branch of a union."""
    branches = ("int", "float", "constrained-str")
    return tuple(
        str(part) for part in location if str(part).isidentifier() and part not in branches
    )


def _keys(sections: tuple[str, ...]) -> list[str]:
    kind: Any = RunConfig
    for section in sections:
        kind = kind.model_fields[section].annotation
    return list(kind.model_fields)


def _text(value: Any) -> str:
    return "" if value is None else str(value)
