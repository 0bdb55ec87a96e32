"""How good forecasts were once the actual values came: a ledger scored."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = ["series", "target", "time"]
FORECAST = ["model", "series", "target", "origin", "step"]
SHARE = 0.8  # of the band that every model of enough windows has
PERIODS = {"day": 1, "week": 7, "month": 30}
"""Days before the newest step that was scored."""


def match(
    forecasts: pd.DataFrame, actuals: pd.DataFrame, *, first: bool = False
) -> tuple[pd.DataFrame, int, int]:
    """Each forecast step of a ledger with its actual value, once; how many steps still wait for
    theirs, and how many do not count because they were made from other values than came.

    A forecast that was made again from the same origin counts once, as it was made first. It does
    not count if the newest value of its history is none that was seen for that step: whoever asks
    about another series under its name changes nothing. Of several values of a step, the latest
    seen counts, or with `first` the first. Rows gain `value`, `error`, forecast minus value, and
    `naive_error`.
    """
    if forecasts.empty or actuals.empty:
        return pd.DataFrame(), len(forecasts), 0
    honest = _honest(forecasts, actuals)
    counted, strange = forecasts[honest], forecasts[~honest].drop_duplicates([*FORECAST, "made"])
    once = counted.sort_values("made", kind="stable").drop_duplicates(FORECAST)
    known = actuals.sort_values("seen", kind="stable")
    known = known.drop_duplicates(STEP, keep="first" if first else "last")
    known = known[[*STEP, "value", "seen"]]
    rows = once.merge(known, "inner", STEP)
    rows["error"] = rows["forecast"] - rows["value"]
    rows["naive_error"] = rows["naive"] - rows["value"]
    return rows, len(once) - len(rows), len(strange)


def _honest(forecasts: pd.DataFrame, actuals: pd.DataFrame) -> np.ndarray:
    """Whether the newest value of each forecast's history is one that was seen, if any was."""
    names = ["series", "target", "time", "last"]
    newest = forecasts[["series", "target", "known", "last"]].set_axis(names, axis=1)
    distinct = newest.drop_duplicates(ignore_index=True)
    both = distinct.reset_index(names="row").merge(actuals[[*STEP, "value"]], "left", STEP)
    same = np.isclose(both["last"], both["value"], rtol=1e-6) | both["value"].isna().to_numpy()
    honest = pd.Series(same).groupby(both["row"]).any()
    joined = newest.merge(distinct.assign(honest=honest), "left", names)
    return joined["honest"].to_numpy()


def bands(rows: pd.DataFrame) -> dict[float, tuple[str, str]]:
    """The share of each band that the quantiles of a ledger bound, and its two columns."""
    names = map(str, rows.columns)
    levels = sorted(float(name[1:]) for name in names if name[:1] == "q" and name[1:2].isdigit())
    by_share = {}
    for low in levels:
        high = round(1 - low, 9)
        if low < 0.5 and high in levels:
            by_share[round(high - low, 9)] = (f"q{low:g}", f"q{high:g}")
    return by_share


def summary(rows: pd.DataFrame, by: str | None = None) -> pd.DataFrame:
    """What was found, a row for each period and, if given, each value of the column `by`.

    `steps` were scored; `mae` and `bias` are in units, `scaled` is the mean absolute error over the
    standard deviation of the series, `against_naive` the ratio of the sum of absolute errors to
    that of the seasonal naive forecast from the same origin, and `80 %` the share of values in that
    band. nan where nothing tells.
    """
    if rows.empty:
        return pd.DataFrame()
    newest, parts = rows["time"].max(), list[dict[Any, Any]]()
    for period, days in {**PERIODS, "all": None}.items():
        part = rows if days is None else rows[rows["time"] > newest - pd.Timedelta(days=days)]
        if by is None:
            parts.append({"period": period, **_figures(part)})
            continue
        for name, group in part.groupby(by, sort=True):
            parts.append({"period": period, by: name, **_figures(group)})
    return pd.DataFrame(parts)


def _figures(rows: pd.DataFrame) -> dict[str, float]:
    off, naive = rows["error"].abs(), rows["naive_error"].abs()
    both = naive.notna()
    apart = float(naive[both].sum())
    figures: dict[str, float] = {
        "steps": len(rows),
        "mae": float(off.mean()),
        "scaled": float((off / rows["scale"]).mean()),
        "against_naive": float(off[both].sum()) / apart if apart > 0 else float("nan"),
        "bias": float(rows["error"].mean()),
    }
    for share, (low, high) in bands(rows).items():
        known = rows[low].notna() & rows[high].notna()
        inside = rows["value"].between(rows[low], rows[high])[known]
        figures[f"{100 * share:g} %"] = float(inside.mean()) if len(inside) else float("nan")
    return figures


def figure(
    rows: pd.DataFrame, expected: float | None, before: pd.DataFrame | None = None
) -> "Figure":
    """A picture of the scaled error by day, beside that of the test split, and of the coverage of a
    band beside its promise; `before` are the rows of the model that this one has replaced."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(8, 5), layout="constrained")
    above, below = picture.subplots(2, 1, sharex=True)
    for part, label, colour in ((before, "the model before", "0.6"), (rows, "live", "C0")):
        if part is None or part.empty:
            continue
        day = part["time"].dt.floor("D")
        scaled = (part["error"].abs() / part["scale"]).groupby(day).mean()
        above.plot(scaled.index, scaled, marker=".", label=label, color=colour)
        if pair := bands(part).get(SHARE):
            inside = part["value"].between(part[pair[0]], part[pair[1]]).groupby(day).mean()
            below.plot(inside.index, 100 * inside, marker=".", label=label, color=colour)
    if expected is not None:
        above.axhline(expected, color="0.5", linestyle="--", label="test split")
    above.set_ylabel("absolute error, in\nstandard deviations")
    above.set_ylim(bottom=0)
    above.legend()
    if below.lines:
        below.axhline(100 * SHARE, color="0.5", linestyle="--", label="promised")
        below.legend()
    below.set_ylim(0, 105)
    below.set_ylabel(f"in the {100 * SHARE:g} % band, %")
    picture.autofmt_xdate()
    return picture


def plain(table: pd.DataFrame) -> list[dict[Any, Any]]:
    return table.astype(object).where(table.notna(), None).to_dict("records")
