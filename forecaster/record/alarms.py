"""Alarms on live forecasts: tests that may be looked at after every forecast, and stay valid.

Origins that do not overlap are pooled, in turn, to stretches of STEPS steps at least. A number x in
[0, 1] is observed in each of a year's N stretches. If its expectation given the past is at most m,
every product of factors 1 + b (x - m), 0 <= b <= 1 / m, over the stretches since some start is a
bet whose expected gain is not positive (Waudby-Smith and Ramdas, Estimating means of bounded random
variables by betting, JRSS B 2024, sec. 4). The evidence is the sum of such bets from every start,
each with a stake of 1 / N (Shin, Ramdas and Rinaldo, E-detectors, 2024, sec. 2). With the stakes
that are left it is a nonnegative supermartingale that begins at 1, so it reaches 1 / LEVEL within
the year with probability LEVEL at most (Ville).

Two numbers are watched. The *error*, over LARGER times its usual ratio to the seasonal naive error
from the same origins, less the latter: a mean of ratios would exceed the usual one, which is one of
means. It counts in units of the mean naive error of the past, or that of the stretch if larger, so
it is -1 at least, and times that are hard for both count little; MOST cuts it from above, which
lowers its expectation. The *coverage* of the band of SHARE is held to its promise.

LEVEL is proved where, given the past, the first is not expected above 0, nor the share of missed
values above what is promised and MISSED. It is only simulated (benchmarks/alarms.py) where origins
are pooled for it: the usual ratio is an estimate, and errors remember, or have heavy tails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from forecaster.record.live import SHARE, bands

LEVEL = 0.025
"""The share of models that each of the two may call wrongly within a year."""
BETS = (0.3, 0.6, 0.9)
"""The bets b, as shares of 1 / m; the evidence is their mean. Small ones suit small shifts, large
ones large shifts; which one is right is not known before."""
MOST = 4.0
"""The error beyond the naive one counts as this less 1 at most, in its unit, so that no single
error raises an alarm."""
STEPS = 12
"""The least steps of a stretch: more than the 1 / (1 - 0.9) of an autocorrelation of 0.9."""
LARGER, MISSED = 1.25, 0.1
"""What is no alarm: a ratio larger by this factor, and coverage lower by this; false
alarms were counted with both (docs/after.md)."""


@dataclass(frozen=True)
class Alarm:
    """What was watched at `origins` origins: `what`, "error" or "coverage", the `evidence` at the
    newest, and the origin `since` which it is an alarm, None if it is not."""

    what: str
    evidence: float
    since: pd.Timestamp | None
    origins: int

    def __str__(self) -> str:
        shown = f"evidence {self.evidence:.2g} of {1 / LEVEL:g} after {self.origins} origins"
        if self.since is None:
            return f"no alarm about the {self.what}: {shown}"
        return f"ALARM since {self.since}: the {self.what} is worse than on the test split; {shown}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "since": None if self.since is None else self.since.isoformat()}


def evidence(observed: Sequence[float], most: float, year: int) -> np.ndarray:
    """The evidence after each observation in [0, 1] that their mean exceeds `most`.

    `year` is the number N of observations that share the stakes.
    """
    bets = np.array(BETS) / most
    sums, path = np.zeros(len(bets)), np.empty(len(observed))
    for number, x in enumerate(observed):
        stake = 1 / year if number < year else 0.0
        sums = (sums + stake) * (1 + bets * (x - most))
        path[number] = sums.mean()
    return path


def origins(rows: pd.DataFrame, steps: int) -> pd.DataFrame:
    """What was found at origins that do not overlap: the mean scaled `error`, that of the seasonal
    naive forecast, `naive`, and `missed`, the share of values outside the band of SHARE.

    `rows` are those of `live.match`; an origin counts once all `steps` have their values.
    """
    outside = np.full(len(rows), np.nan)
    if ends := bands(rows).get(SHARE):
        outside = (~rows["value"].between(rows[ends[0]], rows[ends[1]])).to_numpy(float)
    table = pd.DataFrame({
        "origin": rows["origin"], "step": rows["step"], "end": rows["time"], "missed": outside,
        "error": rows["error"].abs().where(rows["naive_error"].notna()) / rows["scale"],
        "naive": rows["naive_error"].abs() / rows["scale"],
    })  # fmt: skip
    by = table.groupby("origin")
    whole = by[["error", "naive", "missed"]].mean()
    ends_at = by["end"].max()[by["step"].nunique() == steps]
    apart: list[Any] = []
    last = None
    for origin, end in ends_at.items():
        if last is None or origin >= last:
            apart.append(origin)
            last = end
    return whole.loc[apart]


def in_a_year(rows: pd.DataFrame) -> int:
    """How many origins that do not overlap a year holds."""
    span = (rows["time"] - rows["origin"]).max()
    return max(1, int(pd.Timedelta(days=366) / span))


def usual_ratio(test: Mapping[str, Any], season: int) -> float | None:
    """The mean error of a model over that of the seasonal naive forecast, on its test split, over
    the whole horizon."""
    name = "last value" if season == 1 else f"seasonal naive, {season}"
    floor = test["floors"].get(name)
    return float(test["mae"] / floor["mae"]) if floor and floor["mae"] else None


def alarms(rows: pd.DataFrame, usual: float | None, year: int, steps: int) -> list[Alarm]:
    """Both alarms on `origins`, each of `steps`, where there is something to watch; `usual` is
    `usual_ratio`, `year` is `in_a_year`."""
    many = -(-STEPS // steps)
    whole = len(rows) // many * many
    pooled = rows[:whole].groupby(np.arange(whole) // many).mean()
    pooled.index = rows.index[many - 1 : whole : many]
    watched: dict[str, tuple[pd.Series, float]] = {
        "coverage": (pooled["missed"], 1 - SHARE + MISSED)
    }
    if usual:
        naive = pooled["naive"]
        past = naive.shift().expanding().mean()
        unit = past.where(past > naive, naive)
        beyond = (pooled["error"] / (LARGER * usual) - naive) / unit.where(unit > 0)
        watched["error"] = ((1 + beyond) / MOST).clip(upper=1.0), 1 / MOST
    watches = []
    for what, (values, most) in watched.items():
        known = values.dropna()
        if known.empty:
            continue
        path = evidence(known.tolist(), most, max(1, year // many))
        reached = np.flatnonzero(path >= 1 / LEVEL)
        since = known.index[reached[0]] if len(reached) else None
        watches.append(Alarm(what, float(path[-1]), since, many * len(known)))
    return watches
