"""RunConfig -> Result: load, train, judge, keep, track. The one sequence behind `train`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from forecaster import machine, resources
from forecaster.bundle import Bundle
from forecaster.config import Loaded
from forecaster.datasets import Windows, load_card
from forecaster.datasets.oddities import sentences
from forecaster.errors import StorageError
from forecaster.evaluate import score
from forecaster.judge import draw, find_intervals, flat_metrics, forecast_with, judge
from forecaster.model import ForecastModel
from forecaster.predict import Forecaster, keep
from forecaster.problem import Problem, find_data, make_problem
from forecaster.progress import Say
from forecaster.remarks import Ranges

if TYPE_CHECKING:
    from forecaster.train import Fit


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    name: str
    run_id: str
    bundle: Bundle
    folder: Path
    registered: str
    ui_command: str
    metrics: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "run_id": self.run_id,
            "folder": str(self.folder),
            "model": self.bundle.name,
            "digest": self.bundle.digest,
            "registered": self.registered,
            "ui": self.ui_command,
            "config": self.bundle.config.to_dict(),
            "about": self.bundle.about,
            **self.metrics,
        }


def run(loaded: Loaded, say: Say, show: Callable[[dict[str, Any]], None]) -> Result:
    """Train, judge, keep and track one configuration; `show` gets the metrics of the test split."""
    from forecaster import track
    from forecaster.train import fit

    problem = make_problem(*find_data(loaded, say), say)
    if problem.config.data.is_file:  # the oddities of a card's file are known
        for sentence in sentences(problem.oddities):
            say(sentence)
    config, device = problem.config, machine.device(problem.config.device)
    train, stopping = problem.training(device), problem.stopping(device)
    model = problem.build_model()
    name = f"{config.data.label}-{config.window.horizon}-{config.attn.name}-s{config.seed}"
    _announce(name, problem, model, device, say)
    about = _about(problem, model)
    params, tags = _notes(loaded, problem, model, device)
    runs = _folder("runs")
    with track.start(config, name, tags) as tracked:
        tracked.params(params)
        tracked.text("config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))
        tracked.dataset(config.data.label, problem.digest, problem.series.source)
        fitted = fit(
            model, train, stopping, config.train,
            device=device, seed=config.seed, report=tracked.report,
        )  # fmt: skip
        metrics = {**_training(fitted, train, say), **_validation(problem, model, device, say)}
        intervals, about["intervals"] = find_intervals(problem, model, device)
        say(f"intervals: {about['intervals']}")
        metrics["test"] = judge(problem, model, device, intervals).to_dict()
        show(metrics["test"])
        figures = draw(problem, model, intervals, metrics["test"], device)

        final, model = refit(problem, fitted, device, say) if about["refit"] else (problem, model)
        if intervals is not None:
            old, new = problem.schema.target_scaler, final.schema.target_scaler
            intervals = intervals.rescaled(old.std / new.std)
        ranges = Ranges.fit(final.training("cpu"), final.dataset.seasons[0])
        about["ranges"] = ranges.to_dict()
        folder = runs / f"{name}-{tracked.id[:8]}"
        about["run_id"] = tracked.id
        weights = dict(model.state_dict())
        bundle = keep(Bundle(config, final.schema, weights, metrics, about, intervals), folder)
        say(f"bundle written to {folder}")

        if lost := tracked.flush():
            say(f"the tracker lost {lost} reports of epochs on the way")
        for title, figure in figures.items():
            tracked.figure(title, figure)
        ahead = Forecaster(bundle, "cpu")
        logged = tracked.log_model(
            folder, name, ahead.example, ahead.predict(ahead.example), bundle.horizon, tags
        )
        tracked.metrics(flat_metrics(metrics), logged)
        registered = ""
        if config.track.register_model:
            task = {"data.digest": problem.digest, "borders": str(about["borders"])}
            score = metrics["validation_mse"]
            registered = tracked.register(logged, bundle.name, score, task).sentence
        return Result(name, tracked.id, bundle, folder, registered, tracked.ui_command, metrics)


def _announce(name: str, problem: Problem, model: ForecastModel, device: str, say: Say) -> None:
    """What will be trained, and what is known of it before."""
    config, series = problem.config, problem.series
    count = len(problem.schema.needs)
    size = f"{len(series.values):,} rows of {count} column" + "s" * (count > 1)
    if series.items is not None:
        size = f"{len(series.items):,} series, {size}"
    say(
        f"{name}: {config.data.label} ({size} every {problem.schema.freq}), "
        f"look back {config.window.past}, forecast {config.window.horizon}; "
        f"{config.model.name} with {parameters(model):,} parameters on {device}"
    )
    say(f"attention {config.attn.name} amounts to: {summarise(model.effective())}")
    if config.intervals.calibrate and problem.uncalibrated:
        say(f"intervals will not be calibrated: {problem.uncalibrated}")


def _about(problem: Problem, model: ForecastModel) -> dict[str, Any]:
    borders = problem.borders
    return {
        "name": problem.name,
        "data_digest": problem.digest,
        "borders": [borders.train, borders.validation, borders.test],
        "commit": resources.commit(),
        "attn_effective": summarise(model.effective()),
        "refit": problem.config.train.refit,
    }


def _notes(
    loaded: Loaded, problem: Problem, model: ForecastModel, device: str
) -> tuple[dict[str, str], dict[str, str]]:
    config, data = problem.config, loaded.config.data
    wanted = config.data.name if config.data.is_file else load_card(data.name).name
    found = {
        "attn.effective": summarise(model.effective()),
        "data.digest": problem.digest,
        "data.instead_of": wanted if wanted != config.data.name else "",
    }
    params = {**config.flat(), **found, "model.parameters": str(parameters(model))}
    tags = {
        "data": config.data.label,
        "horizon": str(config.window.horizon),
        "attn": config.attn.name,
        "model": config.model.name,
        "features": str(config.data.features),
        "seed": str(config.seed),
        "device": device,
        "refit": str(config.train.refit),
        "git.commit": resources.commit(),
        **found,
    }
    return params, tags


def _folder(name: str) -> Path:
    """The folder of the bundles, made if need be."""
    folder = Path(name)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"no folder {folder.resolve()} for the bundle: {error}") from error
    return folder


def _training(fitted: "Fit", train: Windows, say: Say) -> dict[str, Any]:
    say(
        f"trained {fitted.epochs} epochs in {fitted.seconds:.0f} s "
        f"({fitted.windows_per_second:.0f} windows/s); kept the weights after "
        f"{fitted.best_epoch:.2f} epochs"
    )
    for sentence in fitted.sentences:
        say(sentence)
    kept = ("epochs", "seconds", "best_epoch", "steps", "windows_per_second", "still_falling")
    return {"train": {"windows": len(train), **{key: getattr(fitted, key) for key in kept}}}


def _validation(problem: Problem, model: ForecastModel, device: str, say: Say) -> dict[str, Any]:
    """The error on every window of validation, which decides between models of one task."""
    windows, stopping = problem.validation(device), len(problem.stopping(device))
    found = score(forecast_with(model), windows)
    say(f"validation MSE {found.mse:.4f} on {windows.described}, training stopped by {stopping}")
    return {
        "validation_mse": found.mse,
        "validation_windows": found.windows,
        "validation_every": windows.every,
        "stopping_windows": stopping,
    }


def refit(problem: Problem, fitted: "Fit", device: str, say: Say) -> tuple[Problem, ForecastModel]:
    """Train once more on all rows, with a new scaler, for the epochs that validation chose."""
    from forecaster.train import fit

    everything = problem.refitted()
    model = everything.build_model()
    windows = everything.training(device)
    epochs = fitted.best_epoch
    say(f"refit on all {len(everything.series.values):,} rows for {epochs:.2f} epochs")
    config = problem.config
    fit(model, windows, None, config.train, device=device, seed=config.seed, epochs=epochs)
    return everything, model


def summarise(effective: dict[str, str]) -> str:
    """What the attention amounts to, places that agree joined."""
    grouped: dict[str, list[str]] = {}
    for place, text in effective.items():
        grouped.setdefault(text, []).append(place)
    return "; ".join(f"{', '.join(places)}: {text}" for text, places in grouped.items())


def parameters(model: ForecastModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
