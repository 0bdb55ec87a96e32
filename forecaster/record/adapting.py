"""Intervals that stay honest: each band's width follows the share of values that it missed.

The logarithm of a width w moves by RATE (missed - promised) after each day of values, or after each
step where steps are longer: wider after misses, narrower while too much is held. That is adaptive
conformal inference (Gibbs and Candès, NeurIPS 2021) in the form of a quantile tracker of the scores
(Angelopoulos, Candès and Tibshirani, Conformal PID control, NeurIPS 2023, sec. 2.1), with the score
|value - forecast| over the half-width as trained. Over N days the share missed differs from what is
promised by at most (largest - smallest w) / (RATE N), whatever the series does: a value counts as
missed by the width that was known at the origin of its forecast.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from forecaster.record.live import bands

RATE = 0.25
"""How far the logarithm of a width moves after a day on which everything was missed."""
Widths = dict[str, dict[str, float]]
"""The logarithms of widths over those as trained, by target and by band, such as "0.8"."""


def follow(rows: pd.DataFrame, said: Mapping[str, Widths]) -> dict[str, pd.DataFrame]:
    """The logarithms of the widths after each day, in a column for each band, by target.

    `rows` are those of `live.match`, with the first value seen of each step; `said` are the widths
    with which a digest answered. Rows of other digests do not count.
    """
    rows = rows[rows["digest"].isin(list(said))]
    return {str(target): _follow(own, said) for target, own in rows.groupby("target", sort=True)}


def _follow(rows: pd.DataFrame, said: Mapping[str, Widths]) -> pd.DataFrame:
    target, forecast, value = rows["target"].iloc[0], rows["forecast"], rows["value"]
    number, days, known = by_day(rows)
    order = np.argsort(number, kind="stable")
    ends, known = np.searchsorted(number[order], np.arange(len(days) + 1)), known[order]
    found = {}
    for share, (low, high) in bands(rows).items():
        name = f"{share:g}"
        was = rows["digest"].map({key: own[target].get(name, 0.0) for key, own in said.items()})
        half = (rows[high] - forecast).where(value > forecast, forecast - rows[low])
        with np.errstate(divide="ignore", invalid="ignore"):
            score = (np.log((value - forecast).abs() / half.clip(lower=0)) + was).to_numpy()[order]
        path = np.zeros(len(days) + 1)
        for day in range(len(days)):
            those = slice(ends[day], ends[day + 1])
            missed = (score[those] > path[known[those]])[~np.isnan(score[those])]
            off = missed.mean() - (1 - share) if len(missed) else 0.0
            path[day + 1] = path[day] + RATE * off
        found[name] = path[1:]
    return pd.DataFrame(found, index=pd.Index(days, name="until"))


def by_day(rows: pd.DataFrame) -> tuple[np.ndarray, pd.DatetimeIndex, np.ndarray]:
    """The number of the day of each row, the days, and how many of them had ended at its origin;
    steps in place of days where those are longer."""
    times = rows["time"]
    rest = pd.Timedelta(days=1) - times.drop_duplicates().sort_values().diff().min()
    short = rest > pd.Timedelta(0)
    number, days = pd.factorize(times.dt.floor("D") if short else times, sort=True)
    days = pd.DatetimeIndex(days)
    known = np.searchsorted(days + rest if short else days, rows["origin"], side="right")
    return number, days, known


def newest(paths: Mapping[str, pd.DataFrame]) -> Widths:
    """The widths at the end, rounded to four digits."""
    return {
        target: {str(share): round(float(value), 4) for share, value in path.iloc[-1].items()}
        for target, path in paths.items()
    }
