"""What a ledger says of one model: its errors by period, beside what its test split promised."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pandas as pd

from forecaster.base.progress import Say
from forecaster.record import Record, alarms, ledger, live

MOST_SERIES = 1000
"""The most series that a service tells of."""


@dataclass(frozen=True)
class Promise:
    """What a model is held to: the scaled mean absolute `error` of its test split, and its `ratio`
    to that of the seasonal naive forecast, where they are known. `model` is its digest as it was
    trained. Alarms watch the first `steps` of a forecast: a season, or the horizon if that is less
    or nothing repeats."""

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
        return any(each.since is not None for each in self.alarms)

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
            "alarms": [each.to_dict() for each in self.alarms],
        }


def look(
    folder: Path, promise: Promise, say: Say = lambda _: None, most: int | None = None
) -> Look:
    """Score the forecasts of a model in a ledger, the newest `most` rows if given. Raises DataError
    as `ledger.read` does."""
    forecasts = ledger.read(folder, "forecasts", say, model=promise.model, most=most)
    actuals = ledger.read(folder, "actuals", say, most=most)
    found = live.match(forecasts, actuals)
    first = live.match(forecasts, actuals, first=True).rows
    first = first[first["step"] <= promise.steps] if len(first) else first
    told: list[alarms.Alarm] = []
    if len(first):
        origins, year = alarms.origins(first, promise.steps), alarms.in_a_year(first)
        told = alarms.alarms(origins, promise.ratio, year, promise.steps)
    return Look(promise, *found, told)


def whole(folder: Path, promise: dict[str, Any], most: int) -> dict[str, Any]:
    """What GET /models/NAME/live answers: all of `look`, by series, target and step, too; of many
    series, those with the largest errors."""
    found = look(folder, Promise(**promise), most=most)
    by = {name: live.plain(found.frame(name)) for name in ("target", "step")}
    if len(found.rows):
        error = (found.rows["error"].abs() / found.rows["scale"]).groupby(found.rows["series"])
        worst = error.mean().nlargest(MOST_SERIES).index
        own = found.rows[found.rows["series"].isin(worst)]
        by["series"] = live.plain(live.summary(own, "series"))
    return {"looked": datetime.now(UTC).isoformat(), **found.to_dict(), "by": by}
