"""The definition of a comparison: a grid of cells that differ in the attention alone.

A grid names data sets, horizons, attentions and seeds, and a protocol that all share:
configuration, optimiser steps, and regimes, which are named ways to cut windows into tokens. In a
group of cells (one data set, horizon, regime, and linear path or not) windows, tokens,
normalisation, batches, steps and seeds are the same. The inner width of the feed-forward layers
depends on the attention, so that the number of parameters is within 5 % of that with full
attention; types for which this is impossible are marked.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from forecaster.attention import ATTENTIONS, CATALOGUE, CONTROLS, SYNONYMS
from forecaster.attention.base import Attention, SelfAttention
from forecaster.attention.static import LONGEST
from forecaster.base import installation
from forecaster.base.errors import ConfigError, DataError, UsageError
from forecaster.base.names import did_you_mean, find
from forecaster.base.progress import Say
from forecaster.config import run_config
from forecaster.datasets.dataset import Dataset
from forecaster.model import ForecastModel, TokenInformer
from forecaster.model.start import STARTS
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import Splits, make_splits

REFERENCES = ("full", *CONTROLS)
"""The types that are in every table."""
BUDGET_MARGIN = 0.05
"""How far the number of parameters may differ from that with full attention; a round number, and
types that cannot meet it are marked."""
LINEAR = "linear"
"""The linear path: the model's option, and the prefix of its parameters; alone, it is a row of the
tables with the path."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]+$")]
Data = dict[str, Dataset]


class TokenRegime(run_config.ConfigSection):
    """One way to cut windows into tokens."""

    set: list[str] = Field(default=[])
    """Values as `--set` takes them, after those of the protocol; none of the data, which all
    regimes share."""
    linear: list[bool] = Field(default=[True, False], min_length=1)
    """With the linear path from past to future, without it, or both; a model without such a path
    is run without it."""
    swap: list[Literal["encoder", "cross"]] = Field(default=["encoder"], min_length=1)
    """The places of the type; other places keep the configuration's type. The decoder's
    self-attention follows the encoder's. Types without a cross form are not run with `cross`."""

    @field_validator("set")
    @classmethod
    def _of_the_model(cls, texts: list[str]) -> list[str]:
        if any(text.strip().startswith("data") for text in texts):
            raise ValueError("all regimes read the data once: put data.* into protocol.set")
        return texts


class GridProtocol(run_config.ConfigSection):
    """The settings that all cells share."""

    config: str = "default"
    """A name in configs/ or a YAML file; `default` is `own` for a file, as in a training."""
    set: list[str] = Field(default=[])
    """Values as `--set` takes them."""
    steps: run_config.Positive
    """The number of optimiser steps of every cell."""
    epochs: run_config.Positive | None = None
    """Train for so many epochs of the data instead."""
    regimes: Annotated[dict[Name, TokenRegime], Field(min_length=1)]

    def load(self, sets: list[str], flags: dict[str, Any]) -> run_config.Loaded:
        """The configuration with more sets, and flags as those of the commands."""
        file = self.config == "default" and installation.names_a_file(flags["data"])
        return run_config.load("own" if file else self.config, [*self.set, *sets], flags)


class Definition(run_config.ConfigSection):
    """A grid file."""

    data: Annotated[list[str], Field(min_length=1)]
    """Data cards."""
    horizons: Annotated[list[run_config.Positive], Field(min_length=1)]
    """Steps to forecast."""
    attn: Literal["all"] | list[str] = "all"
    """Attention types; `full` and the controls are always included, `static` unless its places are
    longer than it allows."""
    options: dict[str, dict[str, Any]] = Field(default={})
    """Options of single types that differ from their defaults, when the encoder has the type."""
    seeds: (
        run_config.Positive | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    ) = 3
    """The number of seeds, from 0; or a list of seeds."""
    protocol: GridProtocol

    def attentions(self) -> list[str]:
        """The names, those of REFERENCES included, in the order of the table."""
        if self.attn == "all":
            return list(ATTENTIONS)
        named = set(map(_known, self.attn))
        return [name for name in CATALOGUE if name in named | set(REFERENCES)]

    def varied(self) -> list[str]:
        """The values in which cells may differ, named as in `--set`."""
        regimes = self.protocol.regimes.values()
        named = (text.partition("=")[0].strip() for regime in regimes for text in regime.set)
        options = (f"attn.{key}" for chosen in self.options.values() for key in chosen)
        cross = ["attn.cross"] if any("cross" in regime.swap for regime in regimes) else []
        return [*named, *options, *cross, "model.linear", "model.feed_forward"]

    def each_seed(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


@dataclass(frozen=True)
class Cell:
    """One model to train; `config` is resolved, `parameters` do not count the linear path."""

    name: str
    attn: str
    data: str
    horizon: int
    regime: str
    linear: bool
    seed: int
    config: run_config.RunConfig
    steps: int
    parameters: int
    within_budget: bool

    @property
    def digest(self) -> str:
        """The SHA-256 of all that decides the result, except data and code."""
        config = run_config.decisive(self.config.to_dict())
        text = json.dumps({"config": config, "steps": self.steps}, sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True)
class Grid:
    """A resolved definition: its cells, the data they need, and a name."""

    name: str
    definition: Definition
    cells: list[Cell]
    data: Data

    def to_dict(self) -> dict[str, Any]:
        """The definition, and for each group the configuration with full attention."""
        resolved = {
            f"{cell.data}-{cell.horizon}-{cell.regime}-{_path(cell.linear)}": cell.config.to_dict()
            for cell in reversed(self.cells)
            if cell.attn == "full"
        }
        return {"name": self.name, **self.definition.model_dump(mode="json"), "resolved": resolved}


def read(name: str) -> tuple[str, dict[str, Any]]:
    """The name and the values of a grid: a name in configs/grids or a YAML file."""
    path = run_config.find_file(name, "grid", installation.configs() / "grids")
    return path.stem, run_config.read_yaml(path)


def define(values: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> Definition:
    """A grid from plain values, overridden by `changes` with dotted names; sets are appended.

    Raises ConfigError naming the first invalid value.
    """
    values = {key: dict(item) if isinstance(item, dict) else item for key, item in values.items()}
    for key, value in changes.items():
        section, _, last = key.rpartition(".")
        node = values.setdefault(section, {}) if section else values
        node[last] = [*node.get(last, []), *value] if last == "set" else value
    try:
        return Definition.model_validate(values)
    except ValidationError as error:
        splits = error.errors(include_url=False)[0]
        where = f"{where}: {'.'.join(map(str, splits['loc']))}"
    if splits["type"] == "extra_forbidden":
        known = [
            name for kind in (Definition, GridProtocol, TokenRegime) for name in kind.model_fields
        ]
        raise ConfigError(f"{where}: unknown.{did_you_mean(str(splits['loc'][-1]), known)}")
    message = splits["msg"][:1].lower() + splits["msg"][1:]
    raise ConfigError(f"{where}: {message}, got {splits['input']!r}")


def resolve(name: str, definition: Definition, say: Say = lambda _: None) -> Grid:
    """Load the data, and find every cell with its configuration, its budget and its name.

    A regime for which the data are too few is left out, unless all are.
    """
    data: Data = {}
    cells: list[Cell] = []
    for data_name in definition.data:
        loaded = definition.protocol.load([], {"data": data_name})
        config, dataset = find_data(loaded, lambda _: None)
        data[dataset.name] = dataset
        for horizon in definition.horizons:
            refused = list[tuple[str, DataError]]()
            for regime in definition.protocol.regimes:
                try:
                    cells += [*_group(definition, data_name, config.data, dataset, horizon, regime)]
                except DataError as error:
                    refused.append((regime, error))
            if len(refused) == len(definition.protocol.regimes):
                raise refused[0][1]
            for regime, why in refused:  # without its remedy, which is that of `train`
                say(f"without the regime '{regime}': {str(why).partition('. ')[0]}")
    cells.sort(key=lambda cell: definition.each_seed().index(cell.seed))
    names = [cell.name for cell in cells]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"the grid names the same cell twice: {twice}")
    return Grid(name, definition, cells, data)


def _group(
    definition: Definition,
    data_name: str,
    data: run_config.DataConfig,
    dataset: Dataset,
    horizon: int,
    regime: str,
) -> Iterator[Cell]:
    """The cells of a data set, a horizon and a regime; names include the data set if several."""
    protocol = definition.protocol
    options = {_known(name): values for name, values in definition.options.items()}
    regime_sets, swap = protocol.regimes[regime].set, protocol.regimes[regime].swap
    start: dict[str, Any] = {}

    def splits(attn: str) -> Splits:
        flags = {"data": data_name, "horizon": horizon, "attn": attn if "encoder" in swap else None}
        cross = [f"attn.cross={attn}"] if "cross" in swap else []
        values = options.get(attn, {}) if "encoder" in swap else {}
        set_own = [f"attn.{key}={json.dumps(value)}" for key, value in values.items()]
        config = protocol.load([*regime_sets, *cross, *set_own], flags).config
        config = config.changed(model=start).model_copy(update={"data": data})
        return make_splits(make_plan(config, dataset), known=None)

    whole = _variant(splits("full"), linear=False)
    # where the data decide it, all start as full attention does
    start |= {name: whole.plan.config.model.options[name] for name in STARTS[0]
              if name in whole.plan.config.model.options}  # fmt: skip
    steps = protocol.steps
    if protocol.epochs:
        from forecaster.train.loaders import EpochOrder

        trained = whole.plan.config.train
        order = EpochOrder(len(whole.training("cpu")), trained.batch, trained.stride, 0)
        steps = protocol.epochs * len(order)
    budget, longest = _learned(whole), max(map(max, _lengths(whole.build_model())))
    for attn in [*definition.attentions(), LINEAR]:
        alone = attn == LINEAR
        if "cross" in swap and not alone and issubclass(CATALOGUE[attn], SelfAttention):
            continue
        if attn == "static" and longest > LONGEST:
            continue
        task = splits("none" if alone else attn)
        has_path = LINEAR in task.plan.config.model.options
        paths = protocol.regimes[regime].linear if has_path else [False]
        if alone and not any(paths):
            continue
        inner = None if alone else _inner(_variant(task, linear=False), budget)
        count = _learned(_variant(task, alone, inner, alone=alone))
        for linear in paths if not alone else [True]:
            for seed in definition.each_seed():
                config = _variant(task, linear, inner, seed, steps, alone).plan.config
                parts = [attn, horizon, regime, _path(linear), f"s{seed}"]
                if definition.data[1:]:
                    parts = [dataset.name, *parts]
                yield Cell(
                    name="-".join(map(str, parts)),
                    attn=attn, data=dataset.name, horizon=horizon, regime=regime, linear=linear,
                    seed=seed, config=config, steps=steps, parameters=count,
                    within_budget=abs(count - budget) <= BUDGET_MARGIN * budget,
                )  # fmt: skip


def _variant(
    splits: Splits,
    linear: bool,
    inner: int | None = None,
    seed: int = 0,
    patience: int = 1,
    alone: bool = False,
) -> Splits:
    """The splits with or without the linear path, together with the path's learning rate."""
    values = splits.plan.config.to_dict()
    model, train = values["model"], values["train"]
    if LINEAR in model:
        model[LINEAR] = linear
    if alone:
        model["alone"] = True
    if not linear:
        train["lr_of"] = {k: v for k, v in train["lr_of"].items() if not k.startswith(LINEAR)}
    if inner is not None:
        model["feed_forward"] = inner
    train["patience"] = patience  # no cell stops before its last step
    config = run_config.load_dict({**values, "seed": seed}, "the grid")
    return make_splits(make_plan(config, splits.plan.dataset), known=None)


def _inner(splits: Splits, budget: int) -> int | None:
    """The inner width with the number of parameters nearest to the budget.

    The number is affine in the width; the width is None if the model has no such option.
    """
    width: int | None = splits.plan.config.model.options.get("feed_forward")
    if width is None:
        return None
    count = _learned(splits)
    slope = _learned(_variant(splits, linear=False, inner=width + 1)) - count
    return max(1, width + round((budget - count) / slope)) if slope > 0 else width


def _learned(splits: Splits) -> int:
    """How many parameters the model learns besides those of the linear path."""
    named = splits.build_model().named_parameters()
    return sum(p.numel() for name, p in named if p.requires_grad and not name.startswith(LINEAR))


def amounts_to_full(attn: str, model: ForecastModel) -> bool:
    """Whether a type other than full is full attention at all its places in the model."""
    if attn in ("full", LINEAR):
        return False
    kind = CATALOGUE[attn]
    swapped = [module.effective().full for module in model.modules() if type(module) is kind]
    return bool(swapped) and all(swapped)


def tokens(model: ForecastModel) -> int:
    """The length of the sequence that the first attention sees, or would see if there were one."""
    lengths = next(_lengths(model), None)
    if lengths is None:
        assert isinstance(model, TokenInformer)  # with the linear path alone
        return model.cut.past
    return lengths[0]


def _lengths(model: ForecastModel) -> Iterator[tuple[int, int]]:
    for module in model.modules():
        if isinstance(module, Attention):
            yield module.place.query_length, module.place.key_length


def _known(attn: str) -> str:
    return find(CATALOGUE, attn, "attention", SYNONYMS)[0]


def _path(linear: bool) -> str:
    return "linear" if linear else "plain"
