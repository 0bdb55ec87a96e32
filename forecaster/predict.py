"""From a bundle and a history to a forecast in original units, with timestamps and names."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from forecaster import resources
from forecaster.bundle import Bundle, Schema, is_bundle, load
from forecaster.datasets import calendar_features, from_frame, future_times
from forecaster.errors import (
    ConfigError,
    DataError,
    ForecasterError,
    StorageError,
    UnavailableError,
    UsageError,
)

if TYPE_CHECKING:
    import pandas as pd


class Forecaster:
    """A trained model ready to forecast.

    `bundle` is what it was loaded from; `device` is where its weights live, once.
    """

    def __init__(self, bundle: Bundle, device: str = "auto") -> None:
        self.bundle = bundle
        self.device = resources.device(device)
        self.model = bundle.build().to(self.device)

    @classmethod
    def load(cls, source: str | Path, device: str = "auto") -> "Forecaster":
        """From a bundle's folder, an MLflow run id, or a registered name (NAME, NAME@alias,
        NAME/version).

        Raises UnavailableError when it cannot be found, BundleError when it is damaged.
        """
        return cls(load_bundle(source), device)

    @property
    def schema(self) -> Schema:
        return self.bundle.schema

    def forecast(self, history: np.ndarray, starts: "pd.DatetimeIndex") -> np.ndarray:
        """Forecast many histories at once.

        history (B, P, C): values in units, columns in the order of the schema, exactly the
        model's look-back. starts (B,): the time of each first row. Returns (B, T, targets) in
        units. Raises DataError for values that are not finite, before or after the model.
        """
        return self.forecast_quantiles(history, starts, ())[0]

    def forecast_quantiles(
        self, history: np.ndarray, starts: "pd.DatetimeIndex", levels: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """`forecast`, and the quantiles at `levels` beside it, (B, T, targets, len(levels)).

        In units, rising with the level. Levels between those that the model was calibrated for are
        taken linearly. Raises UsageError as `check_levels` does.
        """
        self.check_levels(levels)
        schema, past, horizon = self.schema, self.bundle.past, self.bundle.horizon
        if history.shape[1:] != (past, len(schema.columns)):
            raise DataError(
                f"expected histories of {past} steps x {len(schema.columns)} columns, got "
                f"{history.shape[1]} x {history.shape[2]}"
            )
        unique, inverse = np.unique(starts, return_inverse=True)
        calendars = np.stack([self._calendar(start, past + horizon) for start in unique])
        calendar = torch.from_numpy(calendars[inverse]).to(self.device)
        with np.errstate(over="ignore"):
            scaled = schema.scaler.transform(history).astype(np.float32)
        self._check_finite(scaled, schema.columns, "history, once scaled,")
        with torch.inference_mode():
            values = torch.from_numpy(scaled).to(self.device)
            output = self.model.quantiles(values, calendar[:, :past], calendar[:, past:])
        scaled = output.transpose(2, 3).cpu().numpy().astype(np.float64)
        paths = np.moveaxis(schema.target_scaler.inverse(scaled), 2, 3)
        forecast = np.ascontiguousarray(paths[..., self.model.middle])
        self._check_finite(forecast, schema.targets, "forecast")
        if not levels or self.bundle.intervals is None:
            return forecast, np.empty((*forecast.shape, 0))
        return forecast, self.bundle.intervals.quantiles(paths, levels)

    @property
    def kind(self) -> Literal["mean", "median"]:
        """What `forecast` is: the median where the model was trained for quantiles alone."""
        return "mean" if self.model.spread is None else "median"

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels that the intervals hold; empty without intervals."""
        return () if self.bundle.intervals is None else self.bundle.intervals.levels

    def check_levels(self, levels: Sequence[float]) -> None:
        """Raises UsageError where quantiles at these levels cannot be had, and says why."""
        if levels and self.bundle.intervals is None:
            raise UsageError(f"this model has no quantiles: {self.bundle.about['intervals']}")
        if self.bundle.intervals is not None:
            self.bundle.intervals.check(levels)

    def predict(
        self,
        frame: "pd.DataFrame",
        horizon: int | None = None,
        levels: Sequence[float] = (),
        *,
        where: str = "the history",
    ) -> "pd.DataFrame":
        """The future of one history, from the step after its last row.

        frame: the time column (or a DatetimeIndex) and the model's columns by name, in any order;
        at least `past` rows, of which the newest are used. Returns the time column and one column
        per target, `horizon` rows (at most what the model was trained for, and by default that);
        behind each target its quantiles at `levels`, in columns such as "load 0.1". Raises
        DataError naming what is missing, `where` being what it calls the history, and UsageError as
        `check_levels` does.
        """
        import pandas as pd

        schema, past = self.schema, self.bundle.past
        steps = self.bundle.horizon if horizon is None else horizon
        if not 1 <= steps <= self.bundle.horizon:
            raise UsageError(
                f"this model forecasts 1 to {self.bundle.horizon} steps, got horizon={steps}"
            )
        series = from_frame(
            frame, time=schema.time, columns=schema.columns, freq=schema.freq, where=where
        )
        if len(series.times) < past:
            raise DataError(
                f"{where} has {len(series.times)} rows, the model looks back {past}: give at least "
                f"{past} rows"
            )
        levels = sorted(set(levels))
        forecast, quantiles = self.forecast_quantiles(
            series.values[None, -past:], series.times[[-past]], levels
        )
        values = np.concatenate([forecast[..., None], quantiles], axis=-1)[0, :steps]
        times = future_times(series.times[-1], steps, schema.freq)
        if schema.timezone == "UTC":
            times = times.tz_localize("UTC")
        suffixes = ["", *(f" {level}" for level in levels)]
        names = [name + suffix for name in schema.targets for suffix in suffixes]
        result = pd.DataFrame(values.reshape(steps, -1), columns=names)
        result.insert(0, schema.time, times)
        return result

    @cached_property
    def example(self) -> "pd.DataFrame":
        """A made-up history that the model accepts: a wave of the main season around the mean."""
        import pandas as pd

        schema, past = self.schema, self.bundle.past
        times = pd.date_range("2026-01-01", periods=past, freq=schema.freq)
        wave = np.sin(np.arange(past) * (2 * np.pi / schema.seasons[0]))[:, None]
        values = np.asarray(schema.scaler.mean) + np.asarray(schema.scaler.std) * wave
        frame = pd.DataFrame(values.round(4), columns=list(schema.columns))
        frame.insert(0, schema.time, times)
        return frame

    def _calendar(self, start: Any, steps: int) -> np.ndarray:
        import pandas as pd

        times = pd.date_range(start, periods=steps, freq=self.schema.freq)
        return calendar_features(times, self.schema.freq)

    @staticmethod
    def _check_finite(values: np.ndarray, names: tuple[str, ...], what: str) -> None:
        bad = ~np.isfinite(values).all(axis=(0, 1))
        if bad.any():
            column = names[int(bad.argmax())]
            raise DataError(f"the {what} has values that are not finite in column '{column}'")


def load_bundle(source: str | Path) -> Bundle:
    """The bundle behind a folder, a run id or a registered name.

    Raises UnavailableError or UsageError when there is none, BundleError when it is damaged.
    """
    folder = Path(source)
    if is_bundle(folder):
        return load(folder)
    if folder.is_dir():
        raise UnavailableError(f"the folder {folder} holds no bundle (no MANIFEST.sha256)")
    with tempfile.TemporaryDirectory(prefix="forecaster-") as temporary:
        found = ask_tracker("download", str(source), temporary)
        return replace(load(Path(temporary)), origin=json.loads(found))


def ask_tracker(*arguments: str) -> str:
    """What `python -m forecaster.track ARGUMENTS` prints; its error is raised here.

    A child process, so that this one never imports mlflow.
    """
    command = [sys.executable, "-m", "forecaster.track", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        kinds = (UsageError, DataError, UnavailableError, StorageError, ConfigError)
        kind = {kind.exit_code: kind for kind in kinds}.get(done.returncode, ForecasterError)
        silence = f"{' '.join(command)} ended with status {done.returncode}"
        raise kind((done.stderr.strip().splitlines() or [silence])[-1])
    return done.stdout
