"""One frozen RunConfig: all settings of a run, from data to tracking.

    field defaults < a file's base < the file < environment FORECASTER_* < --set a.b=c < named flags

A file may name another as its `base`, which may have a base itself; the file then holds only what
differs. Environment variables name a value inside a section with two underscores,
FORECASTER_TRAIN__EPOCHS=3; FORECASTER_SEED, _DEVICE, _BLEND and _PART belong to no
section. `model` and `attn` are a name with the options of that class's constructor beside it;
naming another class drops the options that lower layers gave to the old one.

Everything that needs no class is checked before torch is imported, so that a wrong name is reported
at once.
"""

import os
import re
import reprlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, cast, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from forecaster.base import installation
from forecaster.base.errors import ConfigError, ForecasterError, StorageError, UsageError
from forecaster.base.installation import SUFFIXES, names_a_file
from forecaster.base.names import canonical, did_you_mean, find, option_model
from forecaster.base.spelling import joined, spelled
from forecaster.config.flags import (
    FLAGS,
    Blend,
    Decimal,
    Device,
    Features,
    Order,
    Policy,
    Separator,
    Split,
    names,
    numbers,
    seconds,
)
from forecaster.datasets.reading import ALL, Fill

if TYPE_CHECKING:
    from forecaster.attention.base import AttentionChoice, AttentionPlan
    from forecaster.model import ForecastModel, Task

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
Levels = Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)]

LARGEST, LARGEST_FLOAT, MOST_LAYERS = 2**32, 3e38, 1000
"""Upper limits of whole numbers, of other numbers and of layers: anything larger is a typing error,
as no machine could compute it."""
NAMED = ("model", "attn", "attn.decoder", "attn.cross")
ROLES = ("decoder", "cross")
EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"
ENVIRONMENT = re.compile(r"FORECASTER_(?:(?:[A-Z0-9]+__)+[A-Z0-9_]+|SEED|DEVICE|BLEND|PART)")
ONE_UNDERSCORE = re.compile(
    r"FORECASTER_(DATA|WINDOW|MODEL|ATTN|TRAIN|INTERVALS|TRACK)_([A-Z0-9_]+)"
)


class ConfigSection(BaseModel):
    """Frozen; unknown keys and other types are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _from_text(read: Callable[[str], Any]) -> BeforeValidator:
    """A validator that reads a text, as an option or a variable has it, and keeps other values."""

    def validate(value: Any) -> Any:
        try:
            return read(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValueError(f"expected {error}, got {_short(value)}") from None

    return BeforeValidator(validate)


def _joined(value: Any) -> Any:
    several = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return joined(value) if several else value


def _listed(value: Any) -> Any:
    return [value] if type(value) is int else value


Names = Annotated[list[str], _from_text(names)]
Joined = Annotated[str | None, BeforeValidator(_joined)]
"""Names with commas between, or in quotes around those with a comma; also given as a list."""
Numbers = Annotated[list[Positive], _from_text(numbers), BeforeValidator(_listed)]


class _RuleError(ValueError):
    """A violated rule that spans values; `places` are their dotted names."""

    def __init__(self, sentence: str, *places: str) -> None:
        super().__init__(sentence)
        self.places = places


_OF_FILES = (
    *("time", "stamps", "decimal", "separator", "id", "panel", "categorical", "sheet", "drop_last"),
    *("freq", "seasons", "static", "split", "fill"),
)
"""Values that describe how to read a file; a data card has its own."""


def _fill_rule(rule: str) -> str:
    if rule.rpartition("=")[2] not in get_args(Fill):
        raise ValueError(
            f"expected {' or '.join(get_args(Fill))}, for a column as in temp=linear, got "
            f"{_short(rule)}"
        )
    return rule


FillRule = Annotated[str, AfterValidator(_fill_rule)]


class DataConfig(ConfigSection):
    name: str = "ETTh1"
    """A name of `forecaster data list`; or a file, a folder, a pattern (docs/data.md)."""
    otherwise: str | None = None
    """The card to use instead when `name` is a default and is not available."""
    path: Annotated[Path | None, Field(strict=False)] = None
    """A file to read instead of looking for the card's."""
    features: Features | None = None
    """M: all columns to all; S: the targets alone; MS: all columns to the targets. By default M; or
    MS when a target is named, and S when nothing else is read from a file."""
    target: Joined = None
    """Columns to predict, comma-separated; by default all, for S and MS the card's."""
    past_covariates: Names = []
    """Columns to read but not to predict, comma-separated; by default all others of a card, none
    of a file."""
    future_covariates: Names = []
    """Columns known ahead, comma-separated: a forecast has to be given their values."""
    static: Names = []
    """Columns that are attributes of a series, comma-separated: the same in all of its rows."""
    categorical: Names = []
    """Covariates whose cells are words, even if most look like numbers."""
    sheet: str | None = None
    """The sheet of a workbook; by default the first with a row."""
    holidays: str | None = None
    """Public holidays for the calendar: a country or state, DE or AU-VIC."""
    time: str | None = None
    """The time column of a file, or several, such as Date,Hour; by default detected."""
    stamps: Order | None = None
    """What comes first in stamps such as 01/02/2020, if the file does not show it."""
    decimal: Decimal | None = None
    """The decimal sign of a text file, if the file does not show it."""
    separator: Separator | None = None
    """What separates the fields of a text file; by default detected."""
    id: Joined = None
    """The columns of a file that name its series, comma-separated; by default detected."""
    panel: bool | None = None
    """Take each column of a wide file as a series of its own."""
    freq: str | None = None
    """The time step of a file: 15min, h, D, W-MON, MS; by default detected."""
    seasons: Numbers = []
    """Steps of the cycles of a file, comma-separated, the main one first; by default detected."""
    missing: Annotated[list[str | int | float], _from_text(names)] = []
    """Marks of missing values, comma-separated, such as -9999, besides empty cells and usual ones
    such as NA."""
    fill: Annotated[list[FillRule], _from_text(names)] = []
    """Fill gaps of covariates: linear, previous, zero or season, for all of them or by column, as
    in temp=linear,promo=zero; by default none."""
    drop_last: bool = False
    """Leave out the last step of a file, a day, week or month that is not over."""
    effects: bool = True
    """Estimate what covariates known ahead do to the targets, take it out of the history for every
    part of the model, and add it to the forecast (docs/recipe.md)."""
    split: Split | None = None
    """Cut a panel at one date, or each series by its own length; by default at one date if that
    leaves no part empty."""
    min: float | None = None
    """The least value that a forecast of a target may have; by default zero for counts of a file,
    whole numbers of which none is negative."""
    max: float | None = None
    """The largest value that a forecast of a target may have."""
    policy: Policy = "error"
    """What to do about gaps, repeated and unsorted stamps of a file (docs/data.md)."""

    @property
    def is_file(self) -> bool:
        """Whether `name` is that of a file, a folder or a pattern, not of a card."""
        return names_a_file(self.name)

    @property
    def label(self) -> str:
        """A short name of the data: the card's name, or the file's without its folder."""
        if not self.is_file:
            return self.name
        path = Path(self.name)
        named = path.parent if re.search(r"[*?]", path.name) else path
        return named.name.split(".")[0] or "data"

    @property
    def targets(self) -> list[str]:
        return names(self.target or "")

    @property
    def ids(self) -> list[str]:
        return names(self.id or "")

    @property
    def filled(self) -> dict[str, Fill]:
        """The rules of `fill` by column, or ALL of them."""
        parts = [rule.rpartition("=") for rule in self.fill]
        return {column or ALL: cast(Fill, how) for column, _, how in parts}

    @model_validator(mode="after")
    def _fits_together(self) -> "DataConfig":
        if not self.is_file:
            for name in _OF_FILES:
                if getattr(self, name):
                    raise _RuleError(
                        f"data.{name} describes how to read a file of your own, but data.name="
                        f"{self.name} is a data card, which already states it",
                        f"data.{name}",
                    )
        elif self.path is not None:
            raise _RuleError(
                f"data.path={self.path} names a file for a data card, but data.name={self.name} "
                "is a file already",
                "data.path",
            )
        if self.features == "M" and self.target is not None:
            raise _RuleError(
                f"data.target={self.target} names one column, but data.features=M predicts "
                "all of them; choose MS (all columns to the target) or S (the target alone)",
                "data.target",
                "data.features",
            )
        return self


class WindowConfig(ConfigSection):
    past: int | str = 96
    """Steps to look back, "21 cycles" of the main season, or auto, a length that fits."""
    reach: Positive | Literal["auto"] | None = None
    """Steps that smoothing reads where a series has them, if more than the look-back; auto: eight
    cycles of the main season, if the look-back is auto."""
    start: Positive | None = None
    """Known steps at the start of the Informer's decoder input; by default half the look-back."""
    horizon: Positive = 96
    """Steps to forecast."""

    @property
    def steps(self) -> int:
        """The steps of history that all parts of the model together read, once resolved."""
        assert isinstance(self.past, int)
        return max(self.past, self.reach if isinstance(self.reach, int) else 0)

    def lengths(self) -> tuple[int, int, int]:
        """(past, start, horizon) in steps. Raises ValueError if the data have not resolved them."""
        if isinstance(self.past, str) or self.start is None:
            raise ValueError(f"window.past={self.past}, window.start={self.start} are unresolved")
        return self.past, self.start, self.horizon

    @field_validator("past", mode="before")
    @classmethod
    def _is_a_length(cls, value: Any) -> Any:
        value = int(value) if isinstance(value, str) and value.isdecimal() else value
        steps = type(value) is int and value >= 1
        if steps or (type(value) is str and re.fullmatch(r"[1-9][0-9]* cycles?|auto", value)):
            return value
        raise ValueError(
            f'window.past: expected steps such as 504, whole cycles such as "21 cycles" or auto, '
            f"got {_short(value)}"
        )


class Choice(BaseModel):
    """A class by name, with its options beside the name."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)
    kind: ClassVar[Literal["attention", "model"]]
    roles: ClassVar[tuple[str, ...]] = ()
    """Places inside, which have choices of their own."""

    name: str

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        """Complete `{name, options...}` with the defaults of the named constructor."""
        from forecaster.attention import CATALOGUE, SYNONYMS
        from forecaster.model import SKELETONS

        if isinstance(value, Choice):
            return value
        table: Mapping[str, Any] = CATALOGUE if cls.kind == "attention" else SKELETONS
        fields = dict(value) if isinstance(value, dict) else {"name": value}
        called = fields.pop("name", None)
        if not isinstance(called, str):
            got = "no name" if called is None else _short(called)
            raise ValueError(
                f"expected the name of a known {cls.kind} ({', '.join(table)}), got {got}"
            )
        try:
            name, constructor = find(table, called, cls.kind, SYNONYMS)
        except UsageError as error:
            raise ValueError(str(error)) from None
        inside = {key: fields.pop(key) for key in cls.roles if key in fields}
        model = option_model(constructor, name)
        known = ["name", *model.model_fields, *cls.roles]
        for key in fields:
            if key not in known:
                raise PydanticCustomError("unknown_key", "", {"key": key, "known": known})
        options = model.model_validate({key: _tuples(item) for key, item in fields.items()})
        return {"name": name, **dict(options), **inside}

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _tuples(value: Any) -> Any:
    """Convert the lists of YAML and JSON to the tuples that constructors take."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class ModelChoice(Choice):
    kind = "model"


class AttentionOption(Choice):
    kind = "attention"

    def choice(self) -> "AttentionChoice":
        from forecaster.attention import AttentionChoice

        return AttentionChoice(self.name, self.options)


class AttnConfig(AttentionOption):
    roles = ROLES

    name: str
    """Attention; see `forecaster attentions`."""
    decoder: AttentionOption | None = None
    """The decoder's self-attention; by default the encoder's type."""
    cross: AttentionOption | None = None
    """The decoder's cross-attention; by default full."""

    def plan(self) -> "AttentionPlan":
        from forecaster.attention import AttentionChoice, AttentionPlan

        encoder = self.choice()
        return AttentionPlan(
            encoder=encoder,
            decoder=self.decoder.choice() if self.decoder else encoder,
            cross=self.cross.choice() if self.cross else AttentionChoice("full"),
        )


class TrainConfig(ConfigSection):
    epochs: Positive = 6
    """Passes over the training windows, at most; by default a small file gets more."""
    updates: Positive | None = None
    """Training may always make this many optimiser steps, even if `epochs` would make fewer; checks
    are then at least a fiftieth of them apart. Off if a later layer names `epochs` alone."""
    time_limit: Annotated[Rate | None, _from_text(seconds)] = None
    """End the training of the network at the first check after 90s, 5m or 1h; the closed forms
    follow it, and the evaluation, on about a thousand windows."""
    batch: Positive = 32
    """Windows per optimiser step."""
    stride: Positive = 1
    """Use every n-th training window in an epoch; the offset is drawn anew each epoch."""
    windows: Positive | None = None
    """Use at most this many per epoch: one from each of as many equal runs of windows, drawn anew
    each epoch."""
    optimiser: Literal["adam", "adamw"] = "adam"
    lr: Rate = 1e-4
    lr_of: dict[str, Rate] = {}
    """Other learning rates, without weight decay, for parameters whose name begins with the key.
    They belong to a model: naming another model drops them, as it drops the first one's options."""
    few_steps: Positive | None = None
    """If an epoch has fewer optimiser steps than this, the rates of `lr_of` are multiplied by the
    ratio few_steps / steps; the rates are meant for many windows."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["constant", "halve", "type1", "cosine"] = "halve"
    """halve: the rate halves every epoch; type1: from the third epoch on (Informer's code);
    cosine: it falls along half a cosine to zero after the last epoch."""
    clip: Rate | None = None
    """The largest norm of the gradient."""
    loss: Literal["mse", "mae", "huber"] = "mse"
    checks: Positive = 1
    """Validations in an epoch: one after every steps // checks steps."""
    patience: Positive = 3
    """Stop after this many validations without a gain."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Keep the earliest weights whose validation error is at most this share above the best."""
    validation_stride: Positive = 1
    """Validate on every n-th window while training; the final figures use every one."""
    validation_windows: Positive | None = None
    """Validate on at most this many while training: one from each of as many equal runs of windows,
    always the same."""
    precision: Literal["auto", "32", "bf16"] = "auto"
    """auto: bf16 on CUDA for a network at least 128 wide, else 32 bits; bf16: always bf16.
    Evaluation is always in 32 bits."""
    graphs: bool = True
    """On CUDA, replay an optimiser step as one graph: quicker, since it does not wait for launches,
    with up to three times the memory. A step that must wait for the device, or with `accumulate` or
    `checkpointing`, runs as it is."""
    accumulate: Positive = 1
    """Split the windows of a step into this many parts, taken one after another: less memory, the
    same mean gradient."""
    checkpointing: bool = False
    """Keep only the input of each layer and recompute the layer for its gradient: less memory, the
    same gradient, one more forward pass."""
    refit: bool | None = None
    """After the evaluation, train once more on all rows and keep those weights, by default where
    fewer than 1,000 windows train."""


class IntervalsConfig(ConfigSection):
    levels: Levels = [0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975]
    """Levels of the quantiles, rising; forecasts can have any level between them."""
    calibrate: bool = True
    """Use the first half of the validation rows to stop training, the second half to calibrate."""

    @field_validator("levels")
    @classmethod
    def _rise(cls, levels: list[float]) -> list[float]:
        if any(low >= high for low, high in pairwise(levels)):
            raise _RuleError(
                f"intervals.levels: expected levels that rise, such as [0.1, 0.5, 0.9], got "
                f"{_short(levels)}",
                "intervals.levels",
            )
        return levels


class TrackConfig(ConfigSection):
    uri: str | None = None
    """MLflow's address; by default $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."""
    experiment: str = "forecaster"
    """The experiment of the runs there; by default $MLFLOW_EXPERIMENT_NAME, else forecaster."""
    register_model: bool = True
    """Register the model in MLflow, where it challenges the champion (docs/mlflow.md)."""


class _Values(ConfigSection):
    """The values of a run, with its classes unchecked: checking them needs torch."""

    data: DataConfig = DataConfig()
    window: WindowConfig = WindowConfig()
    model: Any = "informer"
    attn: Any = "prob"
    train: TrainConfig = TrainConfig()
    intervals: IntervalsConfig = IntervalsConfig()
    blend: Blend = "all"
    """What is served. all: the network and closed forms, weighed on validation; none: the network
    alone; or one closed form by its name. The others are still trained and judged."""
    part: str | None = None
    """A pretrained model beside the other parts: chronos:FOLDER reads Chronos-Bolt or Chronos-2
    from a local folder."""
    track: TrackConfig = TrackConfig()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of weights, order and dropout."""
    device: Device = "auto"
    """Where to compute; auto takes CUDA where there is one."""

    @field_validator("part")
    @classmethod
    def _names_a_folder(cls, part: str | None) -> str | None:
        if part is None or re.fullmatch("chronos:.+", part):
            return part
        raise ValueError(f"expected chronos:FOLDER, got {_short(part)}")


V = TypeVar("V", bound=_Values)


class _Asked(_Values):
    """Values requested for a new run: what they name must exist."""

    @model_validator(mode="after")
    def _numbers_can_be_meant(self) -> Self:
        for place, value in leaves(self.model_dump(mode="json")):
            largest = LARGEST if isinstance(value, int) else LARGEST_FLOAT
            if isinstance(value, int | float) and abs(value) > largest:
                raise _RuleError(f"expected at most {largest:.4g}, got {value:.4g}", place)
            if place.endswith("_layers") and isinstance(value, int) and value > MOST_LAYERS:
                raise _RuleError(f"expected at most {MOST_LAYERS:,} layers, got {value:,}", place)
        return self

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        from forecaster.attention import CATALOGUE, SYNONYMS
        from forecaster.datasets.card import card_names, is_generated

        name, attn = self.data.name, self.attn.get("name") if isinstance(self.attn, dict) else None
        try:
            place = "data.name"
            if not self.data.is_file and not is_generated(name):
                find(dict.fromkeys(card_names()), name, "data set")
            place = "attn.name"
            if isinstance(attn, str):
                find(dict.fromkeys(CATALOGUE), attn, "attention", SYNONYMS)
        except UsageError as error:
            hint = f" A file of your own has a name ending in {', '.join(SUFFIXES)}."
            dotted = place == "data.name" and "." in name
            raise _RuleError(f"{error}{hint if dotted else ''}", place) from None
        return self


class RunConfig(_Values):
    """Everything that decides a run."""

    model: ModelChoice = Field(default="informer", validate_default=True)
    attn: AttnConfig = Field(default="prob", validate_default=True)

    @field_validator("attn")
    @classmethod
    def _roles_exist(cls, attn: AttnConfig, info: Any) -> AttnConfig:
        from forecaster.attention import ATTENTIONS, CATALOGUE
        from forecaster.attention.base import SelfAttention
        from forecaster.model import SKELETONS

        if attn.cross is not None and issubclass(CATALOGUE[attn.cross.name], SelfAttention):
            kinds = ATTENTIONS.items()
            able = [name for name, kind in kinds if not issubclass(kind, SelfAttention)]
            raise _RuleError(
                f"{attn.cross.name} relates a series to itself and has no cross form; these "
                f"have one: {', '.join(able)}",
                "attn.cross",
                "attn.cross.name",
            )
        model = info.data.get("model")
        if model is not None:
            roles = SKELETONS[model.name].places(model.options)
            for role in ROLES:
                if getattr(attn, role) is not None and role not in roles:
                    raise _RuleError(
                        f"attn.{role} is set, but the model '{model.name}' with these options has "
                        f"no {role} attention; its places are: {', '.join(roles)}",
                        f"attn.{role}",
                        f"attn.{role}.name",
                        "model.name",
                    )
        return attn

    def build_model(self, task: "Task") -> "ForecastModel":
        """The untrained model. Raises UsageError naming the sizes if they do not fit."""
        from forecaster.model import SKELETONS

        skeleton: Any = SKELETONS[self.model.name]
        try:
            model: ForecastModel = skeleton(task, self.attn.plan(), **self.model.options)
        except (ValueError, RuntimeError) as error:  # torch raises either for wrong sizes
            raise UsageError(f"this configuration cannot be built: {error}") from error
        return model

    def changed(self, **sections: Mapping[str, Any]) -> Self:
        """The same with other values in some of its sections, which are not checked."""
        changes = {
            name: getattr(self, name).model_copy(update=values) for name, values in sections.items()
        }
        return self.model_copy(update=changes)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def flat(self) -> dict[str, str]:
        """Dotted names and values as text, for tables and trackers."""
        named = leaves(self.to_dict())
        return {key: "" if value is None else str(value) for key, value in named}


def declared(path: str) -> FieldInfo:
    """The field of a value by its dotted name: its type, and its docstring as description."""
    section: Any = RunConfig
    for name in path.split("."):
        info: FieldInfo = section.model_fields[name]
        section = info.annotation
    return info


def load_dict(values: Mapping[str, Any], where: str) -> RunConfig:
    """A RunConfig from plain values, such as those in a bundle."""
    return _validate(RunConfig, values, {}, where)


@dataclass(frozen=True)
class Loaded:
    """A configuration, and the origin of each value that is not a default."""

    config: RunConfig
    origins: dict[str, str]
    file: str = field(default="", compare=False)
    """The name of the configuration in configs/, or its path; "" if unknown."""

    def named(self, path: str) -> bool:
        """Whether the user chose this value; False for defaults and for default.yaml."""
        origin = self.origins.get(path, "")
        return origin != "" and origin != str(installation.configs() / "default.yaml")


def load(
    file: str | None = None,
    sets: Sequence[str] | Mapping[str, Any] = (),
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Loaded:
    """Resolve a configuration; `say` gets a sentence about it before torch is imported.

    `file` is a name in the folder configs or a path; `sets` are "a.b=c", or values by their dotted
    names; `flags` maps the keys of FLAGS to values, None meaning not given. Raises UsageError for
    errors on the command line or by the caller, ConfigError for errors in files and the
    environment.
    """
    flags = {key: value for key, value in (flags or {}).items() if value is not None}
    environment = os.environ if environment is None else environment
    variables = []
    if tracked := environment.get(EXPERIMENT):
        variables.append(("track.experiment", f"${EXPERIMENT}", tracked))
    for name, text in sorted(environment.items()):
        if ENVIRONMENT.fullmatch(name):
            key = name.removeprefix("FORECASTER_").lower().replace("__", ".")
            variables.append((key, f"${name}", _parse(text, f"${name}", ConfigError)))
        elif parts := ONE_UNDERSCORE.fullmatch(name):
            meant = f"FORECASTER_{parts[1]}__{parts[2]}"
            raise ConfigError(f"unknown variable {name}. Did you mean {meant}?")
    if isinstance(sets, Mapping):
        given = [(key, spelled(key), value) for key, value in sets.items()]
    else:
        given = [*map(_assignment, sets)]
    given += [(FLAGS[flag], spelled(flag), value) for flag, value in flags.items()]
    named = {key: value for key, _, value in _decisive_first([*variables, *given])}
    path = _file(file, named.get("data.name"))
    called = {origin for _, origin, _ in given}
    values: dict[str, Any] = {
        name: {"name": _Values.model_fields[name].default} for name in ("model", "attn")
    }
    origins: dict[str, str] = {}
    for layer in [*_layers(path), variables, given]:
        for key, origin, value in _decisive_first(layer):
            _put(values, origins, key, origin, value)
    asking = _validate(_Asked, values, origins, str(path), called)
    ahead = f"{asking.data.label}, {asking.window.horizon} steps ahead"
    say(f"{ahead}: importing torch, reading the data")
    name = path.stem if path.parent == installation.configs() else str(path)
    return Loaded(_validate(RunConfig, values, origins, str(path), called), origins, name)


def _assignment(item: str) -> tuple[str, str, Any]:
    key, equals, text = item.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UsageError(f"--set expects KEY=VALUE such as window.horizon=96, got '{item}'")
    return key.strip(), f"--set {item}", _parse(text, f"--set {item}", UsageError)


def _file(file: str | None, data: Any) -> Path:
    """The configuration that is named, or else the one for the data that are named."""
    folder = installation.configs()
    if file is not None:
        return find_file(file, "configuration", folder)
    if isinstance(data, str) and names_a_file(data):
        return folder / "own.yaml"
    path = folder / f"{data}.yaml"
    return path if path.is_file() else folder / "default.yaml"


def find_file(name: str, kind: str, folder: Path, beside: Path = Path()) -> Path:
    """A YAML file, relative to the folder `beside`, or a name in `folder`. Raises UsageError."""
    for path in (beside / name, folder / f"{name}.yaml"):
        if path.is_file():
            return path
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    raise UsageError(
        f"no {kind} '{name}': it is neither a file nor one of {', '.join(names)}."
        f"{did_you_mean(name, names)}"
    )


def _layers(path: Path, above: tuple[Path, ...] = ()) -> list[list[tuple[str, str, Any]]]:
    """The values of a file, after those of its base; `above` are the files based on this one.

    `otherwise` belongs to the name beside it: a file that names its data does not inherit one.
    """
    values = read_yaml(path)
    base = values.pop("base", None)
    layer = [(key, str(path), value) for key, value in values.items()]
    if base is None:
        return [layer]
    if not isinstance(base, str):
        raise ConfigError(
            f"{path}: base: expected a name in configs/ or a file, got {_short(base)}"
        )
    try:
        lower_file = find_file(base, "configuration", installation.configs(), path.parent)
    except UsageError as error:
        raise ConfigError(f"{path}: base: {error}") from None
    files = (*above, path)
    if any(lower_file.samefile(file) for file in files):
        raise ConfigError(f"{path}: base: {base} is itself based on this file")
    lower = _layers(lower_file, files)
    if "data.name" in dict(leaves(values)):
        lower.append([("data.otherwise", str(path), None)])
    return [*lower, layer]


class _Loader(yaml.SafeLoader):
    """Plain YAML: no Python, no repeated keys, no aliases (ten lines of them can fill memory)."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise self._error("aliases are not allowed here")
        if self.depth > 20:
            raise self._error("it is nested too deeply")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise self._error(f"the key '{name}' appears twice", key)
            seen.add(name)
        return super().construct_mapping(node, deep)

    def _error(self, sentence: str, node: yaml.Node | None = None) -> yaml.MarkedYAMLError:
        mark = node.start_mark if node else self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return yaml.MarkedYAMLError(None, None, sentence, mark)


# YAML 1.1 reads 1e-3 as a string, because it has no dot
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _parse(text: str, where: str, kind: type[ForecasterError]) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a date such as 2026-13-01
        reason = " ".join(str(error).replace(' in "<unicode string>",', " at").split())
        raise kind(f"{where}: not plain YAML: {reason}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a file of plain YAML. Raises ConfigError for anything else."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text: {error}") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    values = _parse(text, str(path), ConfigError)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of sections, got {_short(values)}")
    return values


def decisive(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in plain values, without those that influence no figure.

    Where the data lie and where the run is tracked have their defaults, as in the digests of the
    cells of a grid. That the data are the same is for a caller to check.
    """
    data, track = {**values["data"], "path": None}, TrackConfig().model_dump(mode="json")
    return {**values, "data": data, "track": track}


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of nested mappings."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The differences of two plain documents, leaf by leaf; null is the same as nothing."""
    before, after = dict(leaves(old)), dict(leaves(new))
    return [
        f"{key}: {before.get(key, 'nothing')} there, {after.get(key, 'nothing')} here"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def _decisive_first(layer: Iterable[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    """The single values of a layer, first those that drop values of lower layers."""
    single = [
        (f"{path}.name" if path in NAMED and isinstance(leaf, str) else path, origin, leaf)
        for key, origin, value in layer
        for path, leaf in leaves({key: value})
    ]
    return sorted(single, key=lambda leaf: not (_is_name(leaf[0]) or leaf[0] == "train.epochs"))


def _is_name(key: str) -> bool:
    return key.removesuffix(".name") in NAMED and key not in NAMED


def _section(values: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.split(".") if path else ():
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    return values


def _put(
    values: dict[str, Any], origins: dict[str, str], key: str, origin: str, value: Any
) -> None:
    """Set a value, and drop those of lower layers that it makes void."""
    above, _, last = key.rpartition(".")
    node, void = _section(values, above), [key]
    if _is_name(key) and canonical(str(node.get("name"))) != canonical(str(value)):
        void += [f"{above}.{option}" for option in node if option not in ROLES]
        void += ["train.lr_of"] * (above == "model")  # its keys are paths of the other model
    if key == "train.epochs":
        void.append("train.updates")  # whoever names a limit on epochs means it
    for path in void:
        section, _, name = path.rpartition(".")
        _section(values, section).pop(name, None)
        for place in [*origins]:
            if place == path or place.startswith(f"{path}."):
                del origins[place]
    node[last] = value
    origins[key] = origin


def _validate(
    kind: type[V],
    values: Mapping[str, Any],
    origins: Mapping[str, str],
    where: str,
    called: Collection[str] = (),
) -> V:
    """Check values; `called` are the origins that belong to the caller, not to files."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problem: Any = error.errors(include_url=False)[0]
    location: list[str] = []
    value: Any = values
    for part in problem["loc"]:
        if isinstance(value, Mapping):  # what follows is a place in a list or a branch of a type
            location.append(part)
            value = value.get(part)
    about = problem.get("ctx", {})
    if problem["type"] == "unknown_key":
        location.append(about["key"])
    path = ".".join(location)
    match problem["type"]:
        case "unknown_key":
            sentence = _unknown(path, about["known"])
        case "extra_forbidden":
            section: Any = RunConfig.model_fields[location[0]].annotation if location[1:] else kind
            sentence = _unknown(path, list(section.model_fields))
        case "value_error":
            sentence = str(about["error"])
        case "model_type" | "dict_type":
            sentence = f"{path or 'all'}: expected keys and values, got {_short(problem['input'])}"
        case _:
            message = problem["msg"][:1].lower() + problem["msg"][1:]
            sentence = f"{path}: {message}, got {_short(problem['input'])}"
    # blame the value itself, else the values below it; among several, the one set last
    places = getattr(about.get("error"), "places", (path, f"{path}.name"))
    blamed = [key for key in origins if key in places]
    blamed = blamed or [key for key in origins if key.startswith(f"{path}.")]
    origin = origins[blamed[-1]] if blamed else where
    error_kind = UsageError if origin in called else ConfigError
    raise error_kind(f"{origin}: {sentence}")


def _unknown(path: str, known: Sequence[str]) -> str:
    hint = did_you_mean(path.rpartition(".")[2], known)
    return f"unknown key '{path}'.{hint} Known here: {', '.join(known)}."


def _short(value: Any) -> str:
    return reprlib.repr(value)
