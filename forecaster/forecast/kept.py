"""Questions and their answers as rows of a ledger (`forecaster.record.ledger`)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster.datasets.calendar import normalise_freq
from forecaster.datasets.dataset import Series
from forecaster.forecast.answer import Answer
from forecaster.forecast.question import Question
from forecaster.record.look import Promise

if TYPE_CHECKING:
    from forecaster.forecast.bundle import Bundle
    from forecaster.forecast.predictor import Predictor


def forecasts(
    model: "Predictor",
    question: Question,
    answer: Answer,
    time: datetime | None = None,
) -> pd.DataFrame:
    """The rows of the answer to a question, which was given at a `time`, by default now."""
    count, steps, targets = answer.forecasts.shape
    past, season = question.values.shape[1], model.schema.reading.seasons[0]
    history = question.values[..., list(model.schema.target_positions)]
    season = season if season <= past else 1
    naive = history[:, past - season + np.arange(steps) % season]
    newest = past - 1 - np.isfinite(history[:, ::-1]).argmax(axis=1)
    std = scales(model, question)
    times = _times(model, question, past + steps)

    def at_each_step(values: np.ndarray) -> np.ndarray:
        """What each history has of each target, for each step."""
        return np.repeat(values[:, None], steps, axis=1).reshape(-1)

    table = {
        "model": model.digest,
        "series": np.repeat(_names(question), steps * targets),
        "target": np.tile(model.schema.targets, count * steps),
        "made": _utc(time),
        "origin": np.repeat(times[:, past - 1], steps * targets),
        "step": np.tile(np.repeat(np.arange(1, steps + 1, dtype=np.int32), targets), count),
        "time": np.repeat(times[:, past:], targets, axis=1).reshape(-1),
        "forecast": answer.forecasts.reshape(-1),
        "known": at_each_step(times[np.arange(count)[:, None], newest]),
        "last": at_each_step(np.take_along_axis(history, newest[:, None], axis=1)[:, 0]),
        "naive": naive.reshape(-1),
        "scale": at_each_step(np.broadcast_to(std, (count, targets))),
    }
    for place, level in enumerate(answer.levels):
        table[f"q{level:g}"] = answer.quantiles[..., place].reshape(-1)
    return pd.DataFrame(table)


def scales(model: "Predictor", question: Question) -> np.ndarray:
    """The standard deviations of the targets of each history, (B, K) or (1, K)."""
    std = model.scaler_of(question).select(model.schema.target_positions).std
    return std.reshape(-1, len(model.schema.targets))


def actuals(model: "Predictor", question: Question, seen: datetime | None = None) -> pd.DataFrame:
    """The rows of the newest values of each history, as many as a forecast has steps; `seen` now by
    default."""
    past = question.values.shape[1]
    newest = slice(-min(past, model.form.horizon), None)
    observed = question.values[:, newest][..., list(model.schema.target_positions)]
    count, steps, width = observed.shape
    times = _times(model, question, past)[:, newest]
    table = pd.DataFrame({
        "series": np.repeat(_names(question), steps * width),
        "target": np.tile(np.array(model.schema.targets, dtype=object), count * steps),
        "time": np.repeat(times, width, axis=1).reshape(-1),
        "value": observed.reshape(-1),
    })  # fmt: skip
    return _seen(table, seen)


def promise(bundle: "Bundle") -> Promise:
    """What the forecasts of a model are held to."""
    season = bundle.schema.reading.seasons[0]
    return Promise.of(bundle.record, bundle.digest, bundle.horizon, season)


def of_series(series: Series, targets: Sequence[str]) -> pd.DataFrame:
    """The rows of all values of a file."""
    items = series.layout
    columns = [series.columns.index(target) for target in targets]
    table = pd.DataFrame({
        "series": np.array(items.names, dtype=object).repeat(items.lengths).repeat(len(targets)),
        "target": np.tile(np.array(targets, dtype=object), len(series.values)),
        "time": np.repeat(series.times.to_numpy()[items.steps], len(targets)),
        "value": series.values[:, columns].reshape(-1),
    })  # fmt: skip
    return _seen(table, None)


def _seen(rows: pd.DataFrame, time: datetime | None) -> pd.DataFrame:
    """The rows that have a value."""
    return rows[rows["value"].notna()].assign(seen=_utc(time))


def _utc(time: datetime | None) -> pd.Timestamp:
    return pd.Timestamp(time or datetime.now(UTC)).tz_convert(None).as_unit("us")


def _names(question: Question) -> np.ndarray:
    names = question.items or [None] * len(question.values)
    return np.array(["" if name is None else name for name in names], dtype=object)


def _times(model: "Predictor", question: Question, steps: int) -> np.ndarray:
    """The times (B, steps) from the first row of each history on."""
    unique, inverse = np.unique(question.starts, return_inverse=True)
    freq = normalise_freq(model.schema.freq)
    ranges = [pd.date_range(start, periods=steps, freq=freq).to_numpy() for start in unique]
    return np.stack(ranges)[inverse].astype("M8[us]")
