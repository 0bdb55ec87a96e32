"""Options that several commands take: those of the configuration, and some others."""

import inspect
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer

from forecaster.base.errors import UsageError
from forecaster.base.names import model_reference
from forecaster.base.spelling import in_shell, joined, option
from forecaster.cli.output import nothing
from forecaster.config import flags, run_config
from forecaster.config.flags import FLAGS

Command = TypeVar("Command", bound=Callable[..., None])

REPEATED = ("target", "past_covariates", "future_covariates", "static", "categorical", "id")
"""Options that may be given several times, with one column each."""


def _help(name: str) -> Any:
    metavar = "<str>" if name in REPEATED else None
    return typer.Option(help=run_config.declared(FLAGS[name]).description, metavar=metavar)


def _kind(name: str) -> Any:
    """The type that the command line checks; the configuration reads all others as text."""
    kind: Any = run_config.declared(FLAGS[name]).annotation
    if NoneType in get_args(kind):
        kind, _ = get_args(kind)
    if name in REPEATED:
        return list[str]
    return kind if kind in (int, float, bool) or get_origin(kind) is Literal else str


def can_be_models(given: Any) -> Any:
    """Refuse what is neither a folder nor a name, before importing what loads models."""
    for name in [given] if isinstance(given, str) else given or ():
        if not Path(name).is_dir():
            model_reference(name)
    return given


MODEL = "A bundle's folder, an MLflow run id, or a registered NAME, NAME@alias or NAME/version."
Model = Annotated[str, typer.Option(help=MODEL, callback=can_be_models)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Config = Annotated[str | None, typer.Option(help="A name in configs/ or a YAML file.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any value, such as train.lr=0.0003."),
]
Horizon = Annotated[int | None, _help("horizon")]
Policy = Annotated[flags.Policy | None, _help("policy")]
Device = Annotated[flags.Device | None, _help("device")]
Tracked = Annotated[bool, typer.Option("--track/--no-track", help="Track in MLflow.")]
Ray = Annotated[
    str | None, typer.Option(help="Run on a Ray cluster: its address, or local (docs/operate.md).")
]
Gpus = Annotated[
    float, typer.Option(help="With --ray: share of a GPU for each task, such as 0.25.", min=0)
]
Count = Annotated[int, typer.Option(min=1)]
CountOrNone = Annotated[int | None, typer.Option(min=1)]


def described(**texts: str) -> Callable[[Command], Command]:
    """Give parameters of a command their help; `Annotated` holds what else typer is to know."""

    def give(command: Command) -> Command:
        signature = inspect.signature(command)
        parameters = dict(signature.parameters)
        for name, text in texts.items():
            kind, about = parameters[name].annotation, typer.Option()
            if get_origin(kind) is Annotated:
                kind, about = get_args(kind)
            about = copy(about)
            about.help = text
            parameters[name] = parameters[name].replace(annotation=Annotated[kind, about])
        shown = signature.replace(parameters=[*parameters.values()])
        command.__dict__["__signature__"] = shown
        return command

    return give


def check_gpus(gpus: float, ray: str | None) -> None:
    """Raise UsageError for shares of a GPU without a cluster."""
    if gpus and ray is None:
        raise UsageError("--gpus needs --ray with the address of a cluster, or local")


def shell(command: str, options: Iterable[tuple[str, Any]]) -> str:
    """A shell command; an option without a value is left out, a list has commas between."""
    words = ["forecaster", command]
    for name, value in options:
        if isinstance(value, bool):
            words.append(name if value else f"--no-{name.removeprefix('--')}")
        elif value not in (None, (), []):
            several = isinstance(value, list | tuple)
            words += [name, joined([*map(str, value)]) if several else str(value)]
    return in_shell(words)


@dataclass(frozen=True)
class Asked:
    """The configuration that the options of a command describe."""

    flags: dict[str, Any]
    config: str | None
    sets: list[str]

    @property
    def given(self) -> bool:
        return bool(self.flags or self.config or self.sets)

    def load(self, tell: Callable[[str], None] = nothing, **also: Any) -> run_config.Loaded:
        """Resolve the configuration; `tell` is `say` as in `load`, `also` are further flags."""
        return run_config.load(self.config, self.sets, {**self.flags, **also}, say=tell)

    def command(self, name: str, **defaults: Any) -> str:
        """The shell command `name` with these options, those missing from `defaults`."""
        values = {**defaults, **self.flags}
        given = [(option(flag), values.get(flag)) for flag in FLAGS]
        sets = [("--set", pair) for pair in self.sets]
        return shell(name, [*given, ("--config", self.config), *sets])


def configured(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options `names` of FLAGS, or all, with --config and --set.

    The command gets them as one `Asked`, its first parameter.
    """
    chosen = names or tuple(FLAGS)
    kinds = {name: Annotated[_kind(name) | None, _help(name)] for name in chosen}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in {**kinds, "config": Config, "set_": Set}.items()
    ]

    def give(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*, config: str | None, set_: list[str] | None, **given: Any) -> None:
            values = {name: given.pop(name) for name in chosen}
            for name, value in values.items():  # each of several is one name, commas and all
                given_once = [*dict.fromkeys(value)] if isinstance(value, list) else []
                values[name] = given_once[0] if len(given_once) == 1 else given_once or value
            passed = {name: value for name, value in values.items() if value not in (None, [])}
            command(Asked(passed, config, set_ or []), **given)

        signature = inspect.signature(command)
        _, *others = signature.parameters.values()
        parameters = [other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others]
        run.__dict__["__signature__"] = signature.replace(parameters=[*shared, *parameters])
        return run

    return give
