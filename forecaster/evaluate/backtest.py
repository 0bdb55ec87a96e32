"""Judge a model on every window of the test split, with the floors beside it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forecaster.datasets import Scaler, Windows
from forecaster.evaluate.floors import Floor
from forecaster.evaluate.metrics import Forecast, Score, paired_interval, score


@dataclass(frozen=True)
class Evaluation:
    """A model's errors, the floors', and what the comparison says.

    MSE and MAE are on values scaled by the training rows; `naive` (K,) is the seasonal naive's
    mean absolute error on the training rows, the unit of MASE; `scaler` is that of the targets.
    """

    model: Score
    floors: dict[str, Score]
    chosen: dict[str, str]
    targets: tuple[str, ...]
    scaler: Scaler
    naive: np.ndarray
    paired: dict[str, tuple[float, float]]
    intervals: dict[str, Any] | None = None
    """What the quantiles of the model came to, as Coverage.to_dict, if it has any."""

    def skill(self, floor: str) -> float:
        """1 - MSE / MSE of the floor: above 0 is better than the floor; nan for a floor of 0."""
        reference = self.floors[floor].mse
        return 1 - self.model.mse / reference if reference > 0 else float("nan")

    @property
    def best_floor(self) -> str:
        return min(self.floors, key=lambda name: self.floors[name].mse)

    def verdict(self) -> str:
        """In words: does the model beat the best floor, and is the difference measurable?"""
        name = self.best_floor
        low, high = self.paired[name]
        floor = f"the best floor, {name} ({self.floors[name].mse:.3f})"
        interval = f"paired 95 % interval of the difference [{low:+.3f}, {high:+.3f}]"
        if high < 0:
            return f"The model beats {floor}: {interval}."
        if low > 0:
            return f"The model LOSES to {floor}: {interval}. Use the floor, or another recipe."
        difference = self.model.mse - self.floors[name].mse
        better = "better than" if difference < 0 else "worse than" if difference > 0 else "equal to"
        if np.isinf(low):
            count = self.model.windows
            return f"The model is {better} {floor}; {count} windows are too few to measure it."
        return f"The model is {better} {floor}, but not measurably: {interval}."

    def lost_to(self) -> list[str]:
        """The floors with a smaller MSE than the model."""
        return [name for name, floor in self.floors.items() if floor.mse < self.model.mse]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        std = np.asarray(self.scaler.std)
        squared, absolute = self.model.squared.mean(axis=0), self.model.absolute.mean(axis=0)
        mase = absolute / self.naive
        columns = {
            name: {
                "mse": float(squared[i]),
                "mae": float(absolute[i]),
                "mase": _number(mase[i]),
                "rmse_units": float(np.sqrt(squared[i]) * std[i]),
                "mae_units": float(absolute[i] * std[i]),
            }
            for i, name in enumerate(self.targets)
        }
        floors = {
            name: {
                "mse": floor.mse,
                "mae": floor.mae,
                "skill": _number(self.skill(name)),
                "paired_low": _number(self.paired[name][0]),
                "paired_high": _number(self.paired[name][1]),
                "chosen": self.chosen[name],
            }
            for name, floor in self.floors.items()
        }
        known = mase[np.isfinite(mase)]
        return {
            "windows": self.model.windows,
            "mse": self.model.mse,
            "mae": self.model.mae,
            "mase": float(known.mean()) if len(known) else None,
            "columns": columns,
            "by_step": {
                "mse": self.model.squared.mean(axis=1).tolist(),
                "mae": self.model.absolute.mean(axis=1).tolist(),
            },
            "floors": floors,
            "best_floor": self.best_floor,
            "lost_to": self.lost_to(),
            "verdict": self.verdict(),
            "intervals": self.intervals,
        }


def evaluate(
    forecast: Forecast,
    floors: list[Floor],
    test: Windows,
    targets: tuple[str, ...],
    scaler: Scaler,
    naive: np.ndarray,
) -> Evaluation:
    """Score `forecast` and every floor on the same test windows, all of them."""
    model = score(forecast, test)
    scores = {floor.name: score(floor.forecast, replace(test, past=floor.past)) for floor in floors}
    return Evaluation(
        model=model,
        floors=scores,
        chosen={floor.name: floor.chosen for floor in floors},
        targets=targets,
        scaler=scaler,
        naive=naive,
        paired={
            name: paired_interval(model.by_window - floor.by_window, block=test.horizon)
            for name, floor in scores.items()
        },
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
