"""Search a space of configurations, each judged on validation alone.

Optuna runs the search (Akiba et al., KDD 2019): its default sampler, seeded, proposes values, and a
trial trains a network as `forecaster train` does at its start. No trial sees the test split.

A search is kept in runs/tunes/NAME: trials.db is Optuna's storage and best.yaml the best
configuration so far. The same command continues it; several processes, and several machines with
one storage, can share it.
"""

import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from forecaster.base import atomic, installation, machine
from forecaster.base.errors import (
    ConfigError,
    DeviceLostError,
    ForecasterError,
    UnavailableError,
    UsageError,
)
from forecaster.base.extras import needed
from forecaster.base.progress import Bar, Say, lasting
from forecaster.config.run_config import (
    Loaded,
    RunConfig,
    differences,
    find_file,
    read_yaml,
)
from forecaster.datasets.dataset import Dataset
from forecaster.forecast.runner import works
from forecaster.model.base import parameters
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.record.folder import make_folder
from forecaster.tracking import texts

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    Space = dict[str, CategoricalDistribution | FloatDistribution | IntDistribution]
    """The candidates for values of the configuration, by dotted name."""

TUNES = Path("runs/tunes")
"""The folder of searches, below the working directory."""
BASE = "base"
"""What a search keeps beside its trials: the facts that all of them share."""


@dataclass(frozen=True)
class Trial:
    """A finished trial; `validation_mse` is None if it failed, for the reason `failed`."""

    number: int
    values: dict[str, Any]
    validation_mse: float | None
    seconds: float
    failed: str = ""

    @property
    def rank(self) -> tuple[bool, float]:
        """The sorting key: the least error first, failed trials last."""
        return self.validation_mse is None, self.validation_mse or 0.0

    def __str__(self) -> str:
        values = ", ".join(f"{key}={value}" for key, value in self.values.items())
        if self.validation_mse is None:
            return f"trial {self.number}: FAILED: {self.failed} ({values})"
        found = f"validation MSE {self.validation_mse:.4f}, {self.seconds:.0f} s"
        return f"trial {self.number}: {found}, {values}"


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: its trials, best first; `file` has the best configuration."""

    folder: Path
    trials: list[Trial]
    file: Path
    ui_command: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "best": str(self.file),
            "ui": self.ui_command,
            "trials": [asdict(trial) for trial in self.trials],
        }

    def text(self, most: int = 5) -> str:
        """The best trials, a line for each."""
        return "\n".join(map(str, self.trials[:most]))


def read_space(wanted: str) -> "Space":
    """Read a space: a name in configs/spaces or a YAML file. Raises ConfigError if invalid."""
    with needed("tune"):
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    path = find_file(wanted, "space", installation.configs() / "spaces")
    space: Space = {}
    for key, value in read_yaml(path).items():
        try:
            if isinstance(value, dict):
                whole = isinstance(value["low"], int) and isinstance(value["high"], int)
                space[key] = (IntDistribution if whole else FloatDistribution)(**value)
            else:
                space[key] = CategoricalDistribution(value if isinstance(value, list) else [])
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{path}: {key}: expected a list of values, or low and high with log or step, got "
                f"{value!r}: {error}"
            ) from None
    if not space:
        raise ConfigError(f"{path}: expected values to search, got none")
    return space


def run(
    load: Callable[[Sequence[str]], Loaded],
    space: "Space",
    name: str,
    say: Say,
    *,
    trials: int,
    limit: float | None,
    storage: str | None,
    tracked: bool,
) -> SearchResult:
    """Search until `trials` trials have ended, or `limit` seconds are over.

    `load` resolves the configuration with further values as `--set` takes them. A failed trial is
    reported and stops no other; one that trains when the time is over ends at its next check and
    has failed, too. Raises UsageError if the folder holds another search, ForecasterError if every
    trial failed, DeviceLostError if no other could use the GPU.
    """
    from optuna.distributions import distribution_to_json

    begun = time.monotonic()
    loaded = _check(space, load)
    config, dataset = find_data(loaded, say)
    folder = TUNES / name
    base = {
        "config": {key: value for key, value in config.to_dict().items() if key != "track"},
        "space": {key: distribution_to_json(each) for key, each in space.items()},
        "data": dataset.digest,
    }
    study = _open(folder, name, storage, base, config.seed)
    with ExitStack() as stack:
        above = None
        if tracked:
            from forecaster.tracking.run import start

            later = f"All trials are in {folder}."
            above = stack.enter_context(start(config, name, {"tune": name}, later=later, say=say))
        bar = Bar("{task.completed} of {task.total} trials", trials, len(_ended(study)))
        stack.enter_context(bar)
        while len(_ended(study)) < trials:
            left = None if limit is None else limit - (time.monotonic() - begun)
            if left is not None and left <= 0:
                break
            trial = study.ask({**space})
            try:
                own = load(_sets(trial.params)).config.model_copy(update={"data": config.data})
                facts = judge(dataset, own, left)
            except DeviceLostError:
                raise
            except Exception as error:  # such as too little memory for one of them
                known = isinstance(error, ForecasterError)
                facts = {"failed": str(error) if known else f"{type(error).__name__}: {error}"}
            gc.collect()  # a trainer and its model refer to each other
            torch.cuda.empty_cache()
            ended = _tell(study, trial, facts)
            if above is not None and ended.validation_mse is not None:
                figures = {"validation_mse": ended.rank[1], "seconds": ended.seconds}
                tags = {"tune": name, **texts.tags(own)}
                params = texts.params(own, ended.values)
                above.child(f"{name}-{ended.number}", tags, params, figures, {})
            bar.advance("", 1)
            first = ended.validation_mse is not None and ended.number == study.best_trial.number
            bar.line(f"{ended}{' (the best so far)' * first}")
    found = sorted(_ended(study), key=lambda each: each.rank)
    if not found or found[0].validation_mse is None:
        why = f"; the first: {found[0].failed}" if found else ": the time was over before one ended"
        raise ForecasterError(f"no trial of {folder} succeeded{why}")
    file = folder / "best.yaml"
    best = load(_sets(found[0].values)).config.to_dict()
    atomic.write(file, yaml.safe_dump(best, sort_keys=False).encode())
    return SearchResult(folder, found, file, above.ui_command if above else "")


def _sets(values: Mapping[str, Any]) -> list[str]:
    """The values as arguments of `--set`."""
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]


def judge(dataset: Dataset, config: RunConfig, seconds: float | None) -> dict[str, Any]:
    """Train the network of a configuration, and return its figures on validation.

    Raises ForecasterError if training takes longer than `seconds`, DeviceLostError if the GPU no
    longer works.
    """
    from forecaster.run.train import train_network

    if seconds is not None:
        own = config.train.time_limit
        limited = seconds if own is None else min(own, seconds)
        config = config.changed(train={"time_limit": limited})
    splits = make_splits(make_plan(config, dataset))
    device = machine.device(splits.plan.config.device)
    try:
        with redirect_stderr(StringIO()):  # a line for each epoch
            model, fitted = train_network(splits, device)
    except RuntimeError as error:
        if works(device):
            raise
        raise DeviceLostError(f"the GPU is lost: {error}") from error
    if seconds is not None and fitted.late and seconds == config.train.time_limit:
        raise ForecasterError(f"took longer than {lasting(seconds)}")
    return {
        "validation_mse": fitted.validation_mse,
        "best_epoch": fitted.best_epoch,
        "parameters": parameters(model),
    }


def _check(space: "Space", load: Callable[[Sequence[str]], Loaded]) -> Loaded:
    """The configuration without the space. Raises UsageError if the two conflict."""
    loaded = load([])
    for key, each in space.items():
        if (origin := loaded.origins.get(key, "")).startswith("--"):
            raise UsageError(f"{key} is searched, but {origin} sets it: remove one of them")
        load(_sets({key: each.choices[0] if hasattr(each, "choices") else each.low}))
    return loaded


def _open(
    folder: Path, name: str, storage: str | None, base: dict[str, Any], seed: int
) -> "optuna.Study":
    """The study of the search, new or existing."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    make_folder(folder)
    try:
        study = optuna.create_study(
            storage=storage or f"sqlite:///{folder / 'trials.db'}",
            study_name=name, direction="minimize", load_if_exists=True,
        )  # fmt: skip
    except Exception as error:  # the driver of the database may raise anything
        raise UnavailableError(
            f"the storage {storage or folder} cannot be used: {error}"
        ) from error
    old = study.user_attrs.get(BASE)
    if old is None:
        study.set_user_attr(BASE, base)
    elif told := differences(old, base):
        shown = "\n".join(f"  {line}" for line in told[:8])
        raise UsageError(
            f"{folder} holds another search of that name:\n{shown}\nGive this one another --name, "
            "or remove the folder."
        )
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    return study


def _tell(study: "optuna.Study", trial: "optuna.Trial", facts: dict[str, Any]) -> Trial:
    from optuna.trial import TrialState

    for key, value in facts.items():
        trial.set_user_attr(key, value)
    error = facts.get("validation_mse")
    return _trial(study.tell(trial, error, TrialState.FAIL if error is None else None))


def _ended(study: "optuna.Study") -> list[Trial]:
    """The trials that have succeeded or failed."""
    from optuna.trial import TrialState

    states = (TrialState.COMPLETE, TrialState.FAIL)
    return [_trial(each) for each in study.get_trials(deepcopy=False, states=states)]


def _trial(ended: "optuna.trial.FrozenTrial") -> Trial:
    seconds = 0.0 if ended.duration is None else ended.duration.total_seconds()
    failed = ended.user_attrs.get("failed", "")
    return Trial(ended.number, ended.params, ended.value, seconds, failed)
