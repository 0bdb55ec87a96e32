"""What a ledger says of one model: its errors by period, beside what its test split promised."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd

from forecaster.base.progress import Say
from forecaster.record import Record, alarms, ledger, live


@dataclass(frozen=True)
class Promise:
    """What a model is held to: the scaled mean absolute `error` of its test split, and its `ratio`
    to that of the seasonal naive forecast, where they are known. `model` is its digest. Alarms
    watch the first `steps` of a forecast: a season, or the horizon if that is less or nothing
    repeats."""

    model: str
    steps: int
    error: float | None = None
    ratio: float | None = None

    @classmethod
    def of(cls, record: Record, model: str, horizon: int, season: int) -> Self:
        steps = min(horizon, season) if season > 1 else horizon
        if record.test is None:
            return cls(model, steps)
        ratio = alarms.usual_ratio(record.test.to_dict(), season)
        return cls(model, steps, record.test["mae"], ratio)


@dataclass(frozen=True)
class Look:
    """The steps that are scored, how many wait for their values, how many do not count, and the
    alarms."""

    promise: Promise
    rows: pd.DataFrame
    waiting: int
    strange: int
    alarms: list[alarms.Alarm]

    @property
    def alarmed(self) -> bool:
        return any(alarm.since is not None for alarm in self.alarms)

    def frame(self, by: str | None = None) -> pd.DataFrame:
        """Errors by period and, if given, by the values of the column `by` (`live.summary`)."""
        return live.summary(self.rows, by)

    def to_dict(self, by: str | None = None) -> dict[str, Any]:
        """For JSON: errors by period and, if given, by the values of the column `by`."""
        return {
            "scored": len(self.rows),
            "waiting": self.waiting,
            "strange": self.strange,
            "test_scaled": self.promise.error,
            "periods": live.plain(self.frame(by)),
            "alarms": [alarm.to_dict() for alarm in self.alarms],
        }


def look(folder: Path, promise: Promise, say: Say = lambda _: None) -> Look:
    """Score the forecasts of a model in a ledger. Raises DataError as `ledger.read` does."""
    forecasts = ledger.read(folder, "forecasts", say, model=promise.model)
    actuals = ledger.read(folder, "actuals", say)
    matched = live.match(forecasts, actuals)
    first = live.match(forecasts, actuals, first=True)[0]
    first = first[first["step"] <= promise.steps] if len(first) else first
    alarmed: list[alarms.Alarm] = []
    if len(first):
        origins, year = alarms.origins(first, promise.steps), alarms.in_a_year(first)
        alarmed = alarms.alarms(origins, promise.ratio, year, promise.steps)
    return Look(promise, *matched, alarmed)
