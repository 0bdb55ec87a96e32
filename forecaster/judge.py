"""The evaluation of a run: metrics, floors, intervals, pictures."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from forecaster.bundle import Bundle
from forecaster.datasets import Batch
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
    sides,
)
from forecaster.intervals import Intervals
from forecaster.model import ForecastModel
from forecaster.problem import Problem, reopen

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def forecast_with(model: ForecastModel) -> Callable[[Batch], Tensor]:
    """The model as the evaluation calls it."""
    return lambda batch: model(*batch.inputs)


def find_intervals(
    problem: Problem, model: ForecastModel, device: str
) -> tuple[Intervals | None, str]:
    """The intervals of a trained model, and in words what they are or why there are none."""
    levels = tuple(problem.config.intervals.levels)
    schema, why_not = problem.schema, problem.uncalibrated
    if not why_not:
        windows = problem.calibrating(device)
        found = calibrate(model, windows, levels)
        if not found.levels:
            return None, f"none: {len(windows)} windows are too few to calibrate any level"
        lost = ", ".join(f"{level:g}" for level in levels if level not in found.levels)
        some = f"{found.windows} of the" if found.windows < len(windows) else "the"
        some += f" {len(windows)}"
        return found, (
            f"calibrated on {some} validation windows of rows {windows.span}"
            + (f", too few for the levels {lost}" if lost else "")
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
    season = problem.facts.seasons[0]
    train = problem.training(device)
    floors = all_floors(
        train, problem.validation(device), problem.facts.seasons, problem.borders.train
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
        naive_mae(train, season),
    )
    return replace(evaluation, intervals=None if coverage is None else coverage.to_dict(names))


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
        ahead = model.quantiles(*batch.inputs)
    scaled, scaler = ahead.double().cpu().numpy(), problem.schema.target_scaler
    forecast = in_units(scaled, scaler, batch.item)[0, ..., model.middle]
    ends, band = sides(SHOWN[0]), None
    if intervals and intervals.reach(ends):
        band = in_units(intervals.quantiles(scaled, ends), scaler, batch.item)[0]
    targets = list(problem.schema.target_positions)
    item, row, step = test.origin(number)
    shown = min(test.past, max(2 * test.horizon, 2 * problem.facts.seasons[0]))
    times = problem.series.times[step - shown : step + test.horizon]
    title = f"{problem.config.data.label}, test window {number + 1} of {len(test)}"
    if problem.series.items is not None:
        title += f", series {problem.series.items.names[item]}"
    return {
        "forecast": report.forecast_figure(
            times,
            problem.series.values[row - shown : row, targets],
            problem.series.values[row : row + test.horizon, targets],
            forecast,
            problem.schema.targets,
            title,
            band,
        ),
        "error_by_step": report.step_figure(test_metrics),
        "error_by_column": report.column_figure(test_metrics),
    }


def metric_name(floor: str) -> str:
    """The name of a floor as the tracker takes it."""
    return floor.replace(", ", "_").replace(" ", "_")


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
        key = metric_name(name)
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
