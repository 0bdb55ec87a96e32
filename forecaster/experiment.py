"""RunConfig -> Result: load, train, judge, keep, track. The one sequence behind `train`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from forecaster import resources
from forecaster.bundle import Bundle
from forecaster.config import Loaded
from forecaster.datasets import load_card
from forecaster.errors import StorageError
from forecaster.evaluate import score
from forecaster.judge import draw, find_intervals, flat_metrics, forecast_with, judge
from forecaster.model import ForecastModel
from forecaster.predict import Forecaster, keep
from forecaster.problem import Problem, find_data, make_problem
from forecaster.progress import Say

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
    """Train, evaluate, keep and track one configuration; `show` gets the metrics at once."""
    from forecaster import track
    from forecaster.train import fit

    config, facts, series = find_data(loaded, say)
    problem = make_problem(config, facts, series)
    config, schema = problem.config, problem.schema
    device = resources.device(config.device)
    train, stopping = problem.training(device), problem.stopping(device)
    model = problem.build_model()
    effective = summarise(model.effective())
    parameters = sum(p.numel() for p in model.parameters())
    name = f"{config.data.label}-{config.window.horizon}-{config.attn.name}-s{config.seed}"
    say(
        f"{name}: {config.data.label} ({_size(problem)} every {schema.freq}), "
        f"look back {config.window.past}, forecast {config.window.horizon}; "
        f"{config.model.name} with {parameters:,} parameters on {device}"
    )
    say(f"attention {config.attn.name} amounts to: {effective}")
    if config.intervals.calibrate and problem.uncalibrated:
        say(f"intervals will not be calibrated: {problem.uncalibrated}")

    about: dict[str, Any] = {
        "name": problem.name,
        "data_digest": problem.digest,
        "borders": [problem.borders.train, problem.borders.validation, problem.borders.test],
        "commit": resources.commit(),
        "attn_effective": effective,
        "refit": config.train.refit,
    }
    wanted = facts.name if config.data.is_file else load_card(loaded.config.data.name).name
    instead_of = wanted if wanted != facts.name else ""
    params = {
        **config.flat(),
        "attn.effective": effective,
        "data.digest": problem.digest,
        "data.instead_of": instead_of,
        "model.parameters": str(parameters),
    }
    tags: dict[str, str] = {
        "data": config.data.label,
        "data.digest": problem.digest,
        "data.instead_of": instead_of,
        "horizon": str(config.window.horizon),
        "attn": config.attn.name,
        "attn.effective": effective,
        "model": config.model.name,
        "features": str(config.data.features),
        "seed": str(config.seed),
        "device": device,
        "refit": str(config.train.refit),
        "git.commit": str(about["commit"]),
    }
    runs = Path("runs")
    try:
        runs.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"no folder {runs.resolve()} for the bundle: {error}") from error
    with track.start(config, name, tags) as tracked:
        tracked.params(params)
        tracked.text("config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))
        tracked.dataset(config.data.label, problem.digest, series.source)
        fitted = fit(
            model, train, stopping, config.train,
            device=device, seed=config.seed, report=tracked.report,
        )  # fmt: skip
        say(
            f"trained {fitted.epochs} epochs in {fitted.seconds:.0f} s "
            f"({fitted.windows_per_second:.0f} windows/s); kept the weights after "
            f"{fitted.best_epoch:.2f} epochs"
        )
        validation = problem.validation(device)
        validated = score(forecast_with(model), validation)
        say(
            f"validation MSE {validated.mse:.4f} on {validation.described}, training stopped by "
            f"{len(stopping)}"
        )
        intervals, about["intervals"] = find_intervals(problem, model, device)
        say(f"intervals: {about['intervals']}")
        metrics: dict[str, Any] = {
            "validation_mse": validated.mse,
            "train": {"windows": len(train), "epochs": fitted.epochs, "seconds": fitted.seconds,
                      "best_epoch": fitted.best_epoch, "steps": fitted.steps,
                      "windows_per_second": fitted.windows_per_second},
            "validation_windows": validated.windows,
            "validation_every": validation.every,
            "stopping_windows": len(stopping),
            "test": judge(problem, model, device, intervals).to_dict(),
        }  # fmt: skip
        show(metrics)
        figures = draw(problem, model, intervals, metrics["test"], device)
        final, model = refit(problem, fitted, device, say) if about["refit"] else (problem, model)
        if intervals is not None:
            old, new = schema.target_scaler, final.schema.target_scaler
            intervals = intervals.rescaled(old.std / new.std)
        folder = runs / f"{name}-{tracked.id[:8]}"
        finished = Bundle(
            config=config,
            schema=final.schema,
            weights=dict(model.state_dict()),
            metrics=metrics,
            about={**about, "run_id": tracked.id},
            intervals=intervals,
        )
        bundle = keep(finished, folder)
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
            registered = tracked.register(logged, bundle.name, validated.mse, task).sentence
        return Result(name, tracked.id, bundle, folder, registered, tracked.ui_command, metrics)


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


def _size(problem: Problem) -> str:
    """How large the data are, in words."""
    series = problem.series
    count = len(problem.schema.needs)
    rows = f"{len(series.values):,} rows of {count} column" + "s" * (count > 1)
    return rows if series.items is None else f"{len(series.items):,} series, {rows}"
