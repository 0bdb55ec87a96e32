"""Train a model, judge one again, show a configuration."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forecaster.cli import options
from forecaster.cli.output import nothing, print_json, print_pages, say
from forecaster.config.flags import FLAGS, parse, seconds

if TYPE_CHECKING:
    from forecaster.config.run_config import Loaded
    from forecaster.record import Backtest, Cutoffs

CUTOFFS = "Train anew and judge at this many cut-offs of the test split (docs/evaluation.md)."


@options.configured()
@options.described(
    cutoffs=CUTOFFS,
    resume="Continue an unfinished run in runs/; auto: the newest of this configuration.",
    force="Train even if the same run has already finished.",
    details="Print every figure of the evaluation, and what was chosen on the way.",
)
def train(
    request: options.Asked,
    cutoffs: options.CountOrNone = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN|auto")] = None,
    force: Annotated[bool, typer.Option("--force")] = False,
    details: Annotated[bool, typer.Option("--details")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a model, judge it, keep it and track it.

    The model is judged on every test window beside forecasts that need no training, kept as a
    bundle in runs/, and tracked in MLflow. --resume continues an interrupted run, which then ends
    with the same weights as without interruption. The same command again shows the first run.

    Example: forecaster train --attn prob --horizon 336 --data ETTh1
    """
    if resume in (None, "auto") or request.given:
        loaded = request.load(say)
    else:
        from forecaster.run import resuming

        loaded = resuming.begun_with(resume)
    from forecaster.base import progress
    from forecaster.run import train

    shown = nothing if as_json else partial(show, whole=details)
    with progress.details(details):
        result = train.run(loaded, say, shown, cutoffs, resume, force)
    if as_json:
        print_json(result.to_dict())
        return
    if result.record.cutoffs:
        show(result.record.cutoffs)
    print("\n" * details + f"bundle   {result.folder}")
    if result.registered:
        print(f"model    {result.registered}")
    ahead = ""
    if result.bundle.schema.known.columns:
        ahead = " --future future.csv"
        print(f"fill in  forecaster future --model {result.folder} --output future.csv")
    print(f"forecast forecaster predict --model {result.folder}{ahead}")
    if ahead:
        print(f"effects  forecaster effects --model {result.folder}")
    print(f"look     forecaster report {result.folder}")
    print(f"serve    forecaster serve --model {result.folder}")
    print_pages("compare", result.ui_command)


@options.described(cutoffs=CUTOFFS)
def evaluate(
    model: options.Model,
    cutoffs: options.CountOrNone = None,
    device: options.Device = None,
    as_json: options.AsJson = False,
) -> None:
    """Repeat the evaluation of a trained model.

    Judges it on every test window beside forecasts that need no training; or trains it anew at
    several cut-offs, on the rows before each, and judges that. Of a model that was refitted to all
    rows it shows the figures from before.

    Example: forecaster evaluate --model forecaster-ETTh1-M-all-336 --cutoffs 5
    """
    from forecaster.base import machine
    from forecaster.evaluate import cutoffs as rolling
    from forecaster.evaluate import judge
    from forecaster.forecast.predictor import load_bundle
    from forecaster.run import train

    bundle, where = load_bundle(model), machine.device(device or "auto")
    judged: Backtest | Cutoffs
    if cutoffs:
        make = partial(train.train_anew, device=where, say=say)
        judged = rolling.rejudge(bundle, cutoffs, make, where, say).cutoffs
    elif bundle.about["refit"]:
        say("the model was refitted to all rows; these are the figures from before")
        judged = bundle.record.judged
    else:
        judged = judge.rejudge(bundle, where).backtest
    if as_json:
        print_json(judged.to_dict())
    else:
        show(judged)


SEARCHED = tuple(
    name for name in FLAGS if name not in ("time_limit", "refit", "register", "blend", "part")
)


@options.configured(*SEARCHED)
@options.described(
    space="A name in configs/spaces/ or a YAML file: what may vary.",
    trials="Number of trials, including earlier ones.",
    time_limit="End the search after 90s, 5m or 1h.",
    name="Name of the folder in runs/tunes; by default from data and horizon.",
    storage="A database that several machines share, as Optuna takes it.",
)
def tune(
    request: options.Asked,
    space: str = "default",
    trials: options.Count = 20,
    time_limit: str | None = None,
    name: str | None = None,
    storage: str | None = None,
    tracked: options.Tracked = True,
    as_json: options.AsJson = False,
) -> None:
    """Search for the configuration whose network validates best.

    Every trial trains the network and is judged on validation; no trial sees the test split. The
    same command continues a search, and several processes can share one. Needs the extra `tune`.

    Example: forecaster tune --data ETTh1 --horizon 96 --time-limit 1h
    """
    from forecaster.run import tune as searching

    limit = None if time_limit is None else parse("--time-limit", seconds, time_limit)
    loaded = request.load(say)
    label = f"{loaded.config.data.label}-{loaded.config.window.horizon}"

    def load(sets: Sequence[str]) -> "Loaded":
        return replace(request, sets=[*request.sets, *sets]).load()

    name = name or f"{label}-{Path(space).stem}"
    limits: dict[str, Any] = {"trials": trials, "limit": limit}
    where: dict[str, Any] = {"storage": storage, "tracked": tracked}
    result = searching.run(load, searching.read_space(space), name, say, **limits, **where)
    if as_json:
        print_json(result.to_dict())
        return
    print(f"\n{result.text()}\n")
    print(f"best     {result.file}")
    print(f"train    forecaster train --config {result.file}")
    print_pages("runs", result.ui_command)


@options.configured()
def config(request: options.Asked, as_json: options.AsJson = False) -> None:
    """Print the resolved configuration.

    Prints it with the origin of each value. Takes the options of train and trains nothing; the
    output can be given to --config.

    Example: forecaster config --attn full --set train.epochs=3
    """
    loaded = request.load()
    if as_json:
        print_json({"config": loaded.config.to_dict(), "origins": loaded.origins})
        return
    import yaml

    lines = yaml.safe_dump(loaded.config.to_dict(), sort_keys=False).splitlines()
    sections: list[str] = []
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        sections = [*sections[:depth], line.strip().split(":")[0]]
        origin = loaded.origins.get(".".join(sections))
        print(f"{line:<38}  # {origin}" if origin else line)


def show(judged: "Backtest | Cutoffs", whole: bool = True) -> None:
    from forecaster import record
    from forecaster.evaluate import cutoffs
    from forecaster.report import tables

    if isinstance(judged, record.Cutoffs):
        print(f"\n{cutoffs.text(judged)}")
    else:
        print(f"\n{tables.text(judged)}" if whole else tables.brief(judged))
