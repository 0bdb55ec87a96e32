"""RunConfig -> Result: load, train, evaluate, bundle, track. The one sequence behind `train`."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml
from torch import Tensor

from forecaster import resources
from forecaster.bundle import Bundle, Schema
from forecaster.config import Loaded, RunConfig
from forecaster.datasets import (
    Batch,
    Borders,
    Card,
    Scaler,
    Series,
    Windows,
    calendar_features,
    load,
    load_card,
)
from forecaster.errors import DataError, StorageError, UnavailableError, UsageError
from forecaster.evaluate import (
    SHOWN,
    Coverage,
    Evaluation,
    all_floors,
    calibrate,
    evaluate,
    in_units,
    naive_mae,
    percent,
    score,
    sides,
)
from forecaster.intervals import Intervals
from forecaster.lookup import did_you_mean
from forecaster.model import ForecastModel
from forecaster.predict import Forecaster

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.train import Fit

Say = Callable[[str], None]
"""Takes a sentence for the person who waits."""


@dataclass(frozen=True)
class Problem:
    """A configuration made concrete by its data: every length known, every column chosen."""

    config: RunConfig
    card: Card
    series: Series
    digest: str
    borders: Borders

    @cached_property
    def schema(self) -> Schema:
        """With the scaler of the training rows."""
        card, data = self.card, self.config.data
        columns = self.series.columns
        return Schema(
            columns=columns,
            targets=columns if data.features == "M" else (str(data.target),),
            time=card.time,
            timezone=card.timezone,
            freq=card.freq,
            seasons=card.seasons,
            scaler=Scaler.fit(self.series.values[: self.borders.train]),
        )

    def refitted(self) -> "Problem":
        """The same problem with every row a training row, for weights that go to work."""
        rows = len(self.series.values)
        return replace(self, borders=Borders(rows, rows, rows))

    def windows(self, first: int, last: int, device: str) -> Windows:
        """The windows whose targets lie in rows [first, last), scaled.

        Rows at and after `last` are cut off first, so that nothing can look at them.
        """
        values = self.schema.scaler.transform(self.series.values[:last])
        calendar = calendar_features(self.series.times[:last], self.card.freq)
        past = self.config.window.past
        assert isinstance(past, int)
        return Windows(
            values=torch.from_numpy(values.astype(np.float32)).to(device),
            calendar=torch.from_numpy(calendar).to(device),
            past=past,
            horizon=self.config.window.horizon,
            first=first,
            last=last,
            targets=self.schema.target_positions,
        )

    def training(self, device: str) -> Windows:
        return self.windows(0, self.borders.train, device)

    def validation(self, device: str) -> Windows:
        return self.windows(self.borders.train, self.borders.validation, device)

    @property
    def half(self) -> int:
        """The row that halves validation: rows before it stop training, the others calibrate."""
        return (self.borders.train + self.borders.validation) // 2

    @property
    def uncalibrated(self) -> str:
        """Why nothing is calibrated, and all of validation stops training; "" where it is."""
        if not self.config.intervals.calibrate:
            return "intervals.calibrate is false"
        stop, rest = self.half - self.borders.train, self.borders.validation - self.half
        horizon = self.config.window.horizon
        if horizon <= min(stop, rest):
            return ""
        return (
            f"of the {stop + rest} rows of validation {stop} would stop training and {rest} "
            f"calibrate, but each half has to hold a window of {horizon} steps; the longest "
            f"horizon with calibrated intervals is {min(stop, rest)}"
        )

    def stopping(self, device: str) -> Windows:
        """The validation windows that stop training."""
        last = self.borders.validation if self.uncalibrated else self.half
        return self.windows(self.borders.train, last, device)

    def calibrating(self, device: str) -> Windows:
        """The validation windows that do not, where intervals are calibrated."""
        return self.windows(self.half, self.borders.validation, device)

    def test(self, device: str) -> Windows:
        """Read by the evaluation alone, after training."""
        return self.windows(self.borders.validation, self.borders.test, device)

    def build_model(self) -> ForecastModel:
        """The untrained model, a function of the configuration and its seed alone."""
        task = self.schema.task(*self.config.window.lengths())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return self.config.build_model(task)

    @property
    def name(self) -> str:
        """The registered name of models for this problem."""
        data, window = self.config.data, self.config.window
        target = "all" if data.features == "M" else data.target
        name = f"forecaster-{data.name}-{data.features}-{target}-{window.horizon}"
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def find_data(loaded: Loaded, say: Say) -> tuple[RunConfig, Card, Series]:
    """The data of the configuration, or its stated `otherwise` when the user named none."""
    data = loaded.config.data
    card = load_card(data.name)
    try:
        series = load(card, data.path)
    except UnavailableError as error:
        if data.otherwise is None or loaded.named("data.name") or data.path is not None:
            raise
        say(
            f"{error}\nThis run uses {data.otherwise} instead of {card.name}: nobody named a data "
            f"set, and {loaded.origins['data.otherwise']} says so."
        )
        card = load_card(data.otherwise)
        series = load(card)
    path = data.path and data.path.resolve()  # a bundle finds its data from any folder
    found = data.model_copy(update={"name": card.name, "path": path})
    return loaded.config.model_copy(update={"data": found}), card, series


def pose(config: RunConfig, card: Card, series: Series) -> Problem:
    """Resolve what depends on the data: look-back in cycles, start, features, columns."""
    data, window = config.data, config.window
    features = data.features or ("M" if data.target is None else "MS")
    target = None if features == "M" else data.target or card.target
    if target is not None and target not in card.columns:
        hint = did_you_mean(target, card.columns)
        raise UsageError(
            f"{card.name} has no column '{target}'.{hint} It has {', '.join(card.columns)}."
        )
    past = window.past
    if isinstance(past, str):
        past = int(past.split()[0]) * card.seasons[0]
    start = window.start or max(1, past // 2)
    if start > past:
        raise UsageError(
            f"window.start={start} known steps open the decoder, but the look-back has only {past} "
            f"steps: choose --set window.start={max(1, past // 2)}, say"
        )
    resolved = config.model_copy(
        update={
            "data": data.model_copy(update={"features": features, "target": target}),
            "window": window.model_copy(update={"past": past, "start": start}),
        }
    )
    columns = (str(target),) if features == "S" else card.columns
    borders = card.borders(len(series.values))
    return Problem(resolved, card, series.select(columns), series.digest, borders)


def forecast_with(model: ForecastModel) -> Callable[[Batch], Tensor]:
    """The model as the evaluation calls it."""
    return lambda batch: model(batch.past, batch.past_calendar, batch.future_calendar)


def find_intervals(
    problem: Problem, model: ForecastModel, device: str
) -> tuple[Intervals | None, str]:
    """The intervals of a trained model, and in words what they are or why there are none."""
    levels = tuple(problem.config.intervals.levels)
    schema, why_not = problem.schema, problem.uncalibrated
    if not why_not:
        windows = problem.calibrating(device)
        found = calibrate(model, windows, schema.target_scaler, levels)
        if not found.levels:
            return None, f"none: {len(windows)} windows are too few to calibrate any level"
        lost = ", ".join(f"{level:g}" for level in levels if level not in found.levels)
        return found, (
            f"calibrated on the {len(windows)} validation windows of rows {windows.first} to "
            f"{windows.last}" + (f", too few for the levels {lost}" if lost else "")
        )
    if model.spread is None:
        return None, f"none: {why_not}"
    found = Intervals.uncalibrated(levels, problem.config.window.horizon, len(schema.targets))
    return found, f"the model's own, not calibrated: {why_not}"


def judge(
    problem: Problem, model: ForecastModel, device: str, intervals: Intervals | None = None
) -> Evaluation:
    """Score the model, its intervals and the floors on every test window."""
    model = model.to(device).eval()
    season = problem.card.seasons[0]
    targets = list(problem.schema.target_positions)
    train = problem.training(device)
    scaled = train.values.double().cpu().numpy()[:, targets]
    floors = all_floors(
        train, problem.validation(device), problem.card.seasons, problem.borders.train
    )
    names, scaler = problem.schema.targets, problem.schema.target_scaler
    online = problem.config.intervals.online
    coverage = None if intervals is None else Coverage(model, intervals, scaler, online=online)
    evaluation = evaluate(
        coverage.forecast if coverage else forecast_with(model),
        floors,
        problem.test(device),
        names,
        scaler,
        naive_mae(scaled, season),
    )
    return replace(evaluation, intervals=None if coverage is None else coverage.to_dict(names))


def summarise(effective: dict[str, str]) -> str:
    """What the attention amounts to, places that agree joined."""
    grouped: dict[str, list[str]] = {}
    for place, text in effective.items():
        grouped.setdefault(text, []).append(place)
    return "; ".join(f"{', '.join(places)}: {text}" for text, places in grouped.items())


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

    config, card, series = find_data(loaded, say)
    problem = pose(config, card, series)
    config, schema = problem.config, problem.schema
    device = resources.device(config.device)
    train, stopping = problem.training(device), problem.stopping(device)
    model = problem.build_model()
    effective = summarise(model.effective())
    parameters = sum(p.numel() for p in model.parameters())
    name = f"{config.data.name}-{config.window.horizon}-{config.attn.name}-s{config.seed}"
    say(
        f"{name}: {config.data.name} ({len(series.values):,} rows of {len(schema.columns)} columns "
        f"every {schema.freq}), look back {config.window.past}, forecast {config.window.horizon}; "
        f"{config.model.name} with {parameters:,} parameters on {device}"
    )
    say(f"attention {config.attn.name} amounts to: {effective}")
    if config.intervals.calibrate and problem.uncalibrated:
        say(f"intervals will not be calibrated: {problem.uncalibrated}")

    about: dict[str, Any] = {
        "name": problem.name,
        "data_digest": problem.digest,
        "borders": [problem.borders.train, problem.borders.validation, problem.borders.test],
        "commit": commit(),
        "attn_effective": effective,
        "refit": config.train.refit,
    }
    wanted = load_card(loaded.config.data.name).name
    instead_of = wanted if wanted != card.name else ""
    params = {
        **config.flat(),
        "attn.effective": effective,
        "data.digest": problem.digest,
        "data.instead_of": instead_of,
        "model.parameters": str(parameters),
    }
    tags: dict[str, str] = {
        "data": config.data.name,
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
        tracked.dataset(config.data.name, problem.digest, series.source)
        fitted = fit(
            model, train, stopping, config.train,
            device=device, seed=config.seed, report=tracked.report,
        )  # fmt: skip
        say(
            f"trained {fitted.epochs} epochs in {fitted.seconds:.0f} s "
            f"({fitted.windows_per_second:.0f} windows/s); kept the weights after "
            f"{fitted.best_epoch:.2f} epochs"
        )
        model.to(device)  # Lightning leaves it on the CPU
        validated = score(forecast_with(model), problem.validation(device))
        say(
            f"validation MSE {validated.mse:.4f} on all {validated.windows} windows, of which "
            f"{len(stopping)} stopped training"
        )
        intervals, about["intervals"] = find_intervals(problem, model, device)
        say(f"intervals: {about['intervals']}")
        metrics: dict[str, Any] = {
            "validation_mse": validated.mse,
            "train": {"windows": len(train), "epochs": fitted.epochs, "seconds": fitted.seconds,
                      "best_epoch": fitted.best_epoch, "steps": fitted.steps,
                      "windows_per_second": fitted.windows_per_second},
            "validation_windows": validated.windows,
            "stopping_windows": len(stopping),
            "test": judge(problem, model, device, intervals).to_dict(),
        }  # fmt: skip
        show(metrics)
        figures = draw(problem, model, intervals, metrics["test"], device)
        final, model = refit(problem, fitted, device, say) if about["refit"] else (problem, model)
        folder = runs / f"{name}-{tracked.id[:8]}"
        bundle = Bundle(
            config=config,
            schema=final.schema,
            weights=dict(model.state_dict()),
            metrics=metrics,
            about={**about, "run_id": tracked.id},
            intervals=intervals,
        ).save(folder)
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


def reopen(bundle: Bundle) -> Problem:
    """The problem that a bundle was trained on, for judging it.

    Raises UsageError for a bundle that has seen the test rows, DataError for other data.
    """
    if bundle.about["refit"]:
        raise UsageError(
            "this bundle was refitted on all rows, the test split included, so its weights cannot "
            "be judged; the honest figures measured before the refit are in its metrics.json"
        )
    config = bundle.config
    card = load_card(config.data.name)
    problem = pose(config, card, load(card, config.data.path))
    if problem.digest != bundle.about["data_digest"]:
        raise DataError(
            f"the bundle was trained on {bundle.about['data_digest']}, but {problem.series.source} "
            f"has digest {problem.digest}: its figures could not be compared"
        )
    return problem


def rejudge(bundle: Bundle, device: str) -> dict[str, Any]:
    """Repeat the evaluation of a bundle on its own data."""
    return judge(reopen(bundle), bundle.build(), device, bundle.intervals).to_dict()


def draw(
    problem: Problem,
    model: ForecastModel,
    intervals: Intervals | None,
    test_metrics: dict[str, Any],
    device: str,
) -> dict[str, "Figure"]:
    """The pictures of a run: one forecast of the test split, error by step, error by column."""
    from forecaster.evaluate import report

    test = problem.test(device)
    number = len(test) // 2
    batch = test.batch(torch.tensor([number], device=device))
    with torch.inference_mode():
        ahead = model.quantiles(*batch[:3])
    paths = in_units(ahead, problem.schema.target_scaler)[0]
    ends = sides(SHOWN[0])
    targets = list(problem.schema.target_positions)
    row = test.starts[number] + test.past
    shown = min(test.past, max(2 * test.horizon, 2 * problem.card.seasons[0]))
    times = problem.series.times[row - shown : row + test.horizon]
    title = f"{problem.config.data.name}, test window {number + 1} of {len(test)}"
    return {
        "forecast": report.forecast_figure(
            times,
            problem.series.values[row - shown : row, targets],
            problem.series.values[row : row + test.horizon, targets],
            paths[..., model.middle],
            problem.schema.targets,
            title,
            intervals.quantiles(paths, ends) if intervals and intervals.reach(ends) else None,
        ),
        "error_by_step": report.step_figure(test_metrics),
        "error_by_column": report.column_figure(test_metrics),
    }


def flat_metrics(metrics: dict[str, Any]) -> dict[str, float]:
    """The figures of a run by the names they carry in the tracker."""
    test = metrics["test"]
    flat = {
        "validation_mse_best": metrics["validation_mse"],
        "test_mse": test["mse"],
        "test_mae": test["mae"],
        "test_mase": test["mase"],
        "test_windows": test["windows"],
        "validation_windows": metrics["validation_windows"],
        "train_windows": metrics["train"]["windows"],
        "train_seconds": metrics["train"]["seconds"],
        "train_windows_per_second": metrics["train"]["windows_per_second"],
        "best_epoch": metrics["train"]["best_epoch"],
    }
    for name, floor in test["floors"].items():
        key = name.replace(", ", "_").replace(" ", "_")
        flat |= {f"floor/{key}/mse": floor["mse"], f"floor/{key}/mae": floor["mae"]}
        flat[f"skill/{key}"] = floor["skill"]
    for name, column in test["columns"].items():
        flat |= {f"column/{name}/{key}": value for key, value in column.items()}
    intervals = test["intervals"] or {}
    for prefix, found in (("intervals", intervals), ("online", intervals.get("online") or {})):
        for name in (name for name in map(percent, SHOWN) if found.get(name)):
            shown = found[name]
            flat[f"{prefix}/{name}/coverage"] = shown["coverage"]
            flat[f"{prefix}/{name}/width"] = shown["width"]
            columns = shown["columns"] if name == percent(SHOWN[0]) else {}
            for column, own in columns.items():
                flat |= {f"column/{column}/{prefix}_{name}_{key}": own[key] for key in own}
        flat[f"{prefix}/crps"] = found.get("crps")
    return {key: float(value) for key, value in flat.items() if value is not None}


def commit() -> str:
    """The commit of a checkout, "-dirty" when it has changes; "unknown" in an installed wheel."""
    if not (resources.CHECKOUT / ".git").exists():
        return "unknown"
    git = ["git", "-C", str(resources.CHECKOUT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        state = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("-dirty" if state.stdout.strip() else "")
