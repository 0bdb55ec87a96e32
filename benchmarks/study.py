"""The table and the pictures of the study in docs/comparison.md, from benchmarks/results.

A regime is a grid of configs/grids; grids whose names continue after a dot belong to it, e.g.
known.europe to known. Its tables have one data set, horizon and place of the type, with or without
linear path. Rows of too few seeds show errors and costs, but have no verdicts and do not count in
the matrix.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from evidence import joined, judged
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from scipy.stats import ttest_1samp

from forecaster.attention import CATALOGUE
from forecaster.evaluate.display import label_points
from forecaster.evaluate.metrics import Verdict
from forecaster.study.compare.grid import LINEAR

REGIMES = {
    "recall": "recall",
    "drift": "drifting phase",
    "known": "known future",
    "columns": "many columns",
    "usual": "usual sets",
}
"""The names of the grids and their names in the tables, in the order of the page."""
Row = dict[str, Any]
Tables = dict[tuple[str, int, str, bool], list[Row]]
TYPE, CONTROL, FRONT = "#1e3a5f", "#c2410c", "#94a3b8"
CONTROLS = ("static", "mean", "none", LINEAR)
SOONER = 0.8  # of a training's time: less than this is no chance of the machine
NOTHING = "No grid's figures are kept here yet."


def tables(documents: Sequence[Row], regime: str) -> Tables:
    """The rows of each table of a regime."""
    found = joined(documents, regime)
    return {key: list(found[key].values()) for key in sorted(found, key=_order)}


def _judged(documents: Sequence[Row], regime: str) -> Tables:
    """The rows with verdicts of each table of a regime that has any."""
    found = {key: list(filter(judged, own)) for key, own in tables(documents, regime).items()}
    return {key: own for key, own in found.items() if own}


def unbeaten(documents: Sequence[Row]) -> set[str]:
    """The types that are needed in some table: there, they are measurably better than none, and
    than static and full attention where these take less than SOONER of their training time."""

    def needed(row: Row, rows: dict[str, Row]) -> bool:
        quick = (
            name
            for name in row["against"]
            if name == "none" or rows[name]["train_seconds"] < SOONER * row["train_seconds"]
        )
        return all(_verdict(row, name) == Verdict.BETTER for name in quick)

    return {
        row["attn"]
        for name in REGIMES
        for rows in _judged(documents, name).values()
        for row in rows
        if needed(row, {own["attn"]: own for own in rows})
    }


def _order(key: tuple[str, int, str, bool]) -> tuple[Any, ...]:
    """Sort key: recall-256 before recall-1024, and the tables of a place together."""
    data, horizon, place, linear = key
    return (
        place,
        [int(part) if part.isdigit() else 0 for part in data.split("-")],
        data,
        horizon,
        linear,
    )


def matrix(documents: Sequence[Row]) -> str:
    """For each type and regime, in how many tables the type is measurably better or worse than none
    and static."""
    regimes = {name: _judged(documents, name) for name in REGIMES}
    regimes = {name: found for name, found in regimes.items() if found}
    if not regimes:
        return NOTHING
    heads = [f"{REGIMES[name]} ({_count(found)})" for name, found in regimes.items()]
    lines = [f"| attention | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    for attn in [*CATALOGUE, LINEAR]:
        if attn == "none":
            continue
        cells = [_tally([_of(rows, attn) for rows in found.values()]) for found in regimes.values()]
        if any(cells):
            lines.append(f"| {attn} | {' | '.join(cells)} |")
    return "\n".join(lines)


def over_sets(documents: Sequence[Row], regime: str = "known") -> str:
    """By how much each type errs more than none over the sets of a regime: the geometric mean of
    the ratios of their MSE, with its 95 % interval by Student's t. Only types that all sets have.
    """
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (_, _, place, _), rows in _judged(documents, regime).items():
        none = _of(rows, "none")
        for row in rows if none else ():
            ratios[place][row["attn"]].append(np.log(row["mse"] / none["mse"]))
    places = sorted(ratios)
    head = "MSE less that of none, mean of the sets, 95 % interval"
    lines = [f"| {head} | {' | '.join(places)} |", f"| --- |{' --- |' * len(places)}"]
    for attn in [*CATALOGUE, LINEAR]:
        cells = []
        for place in places:
            logs, most = ratios[place][attn], len(ratios[place]["none"])
            full = attn != "none" and len(logs) == most
            cells.append(_percent(logs) if full else "")
        if any(cells):
            lines.append(f"| {attn} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(logs: Sequence[float]) -> str:
    ends = ttest_1samp(logs, 0).confidence_interval()
    mean, low, high = (100 * np.expm1(each) for each in (np.mean(logs), ends.low, ends.high))
    return f"{mean:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _count(found: dict[Any, Any]) -> str:
    return f"{len(found)} table{'s' * (len(found) > 1)}"


def _of(rows: Sequence[Row], attn: str) -> Row | None:
    return next((row for row in rows if row["attn"] == attn), None)


def _tally(rows: Sequence[Row | None]) -> str:
    """A cell of the matrix, e.g. "**better** 3 (2) of 5, **worse** 1": compared with none, in
    brackets also with static."""
    known = [row for row in rows if row is not None]
    if not known:
        return ""
    if all(row["is_full"] for row in known):
        return "(full)"
    better = [row for row in known if _verdict(row, "none") == Verdict.BETTER]
    both = sum(_verdict(row, "static") == Verdict.BETTER for row in better)
    worse = sum(_verdict(row, "none") == Verdict.WORSE for row in known)
    parts = []
    if better:
        brackets = f" ({both})" if any("static" in row["against"] for row in known) else ""
        parts.append(f"**better** {len(better)}{brackets}")
    if worse:
        parts.append(f"**worse** {worse}")
    return (", ".join(parts) or "=") + f" of {len(known)}" * (len(known) < len(rows) or bool(parts))


def _verdict(row: Row, name: str) -> str | None:
    against = row["against"].get(name)
    return None if against is None else against["verdict"]


def _seeds(rows: Sequence[Row]) -> int:
    return max(len(row["seeds"]) for row in rows)


def _mark(row: Row, seeds: int) -> str:
    return "*" if len(row["seeds"]) < seeds else ""


def figure(documents: Sequence[Row], name: str, wide: int = 3) -> Figure | None:
    """Error against training time in each table of a regime, with the front; None without results.
    For `recall` a further plot shows the error against the length."""
    found = tables(documents, name)
    if not found:
        return None
    lengths = name == "recall" and len(found) > 1
    panels = len(found) + lengths
    across = 2 if panels == 4 else min(wide, panels)
    down = -(-panels // across)
    drawn = Figure(figsize=(1 + 4.6 * across, 4.6 * down), layout="constrained")
    axes = drawn.subplots(down, across, squeeze=False).ravel()
    for axis, ((data, horizon, place, linear), rows) in zip(axes, found.items(), strict=False):
        path = (
            "" if name in ("recall", "drift") else f"{', with' if linear else ', without'} linear"
        )
        _costs(axis, rows, logarithmic=name in ("recall", "drift"))
        few = "" if any(map(judged, rows)) else f"; {_seeds(rows)} seed"
        axis.set_title(f"{data}, T = {horizon}, {place}{path}{few}", loc="left", fontsize=9)
    if lengths:
        ends = _lengths(axes[len(found)], found)
    for axis in axes[panels:]:
        axis.remove()
    drawn.draw_without_rendering()  # so that the points have positions
    for axis, rows in zip(axes, found.values(), strict=False):
        names = [row["attn"] + _mark(row, _seeds(rows)) for row in rows]
        points = [(row["train_seconds"], row["mse"]) for row in rows]
        label_points(axis, [(x, y, name) for (x, y), name in zip(points, names, strict=True)])
    if lengths:
        label_points(axes[len(found)], [(x, y, attn) for attn, (x, y) in ends.items()])
    drawn.supxlabel("training, seconds of one processor thread", fontsize=9)
    drawn.supylabel("test MSE", fontsize=9)
    return drawn


def _costs(axis: Axes, rows: Sequence[Row], logarithmic: bool) -> None:
    points = sorted((row["train_seconds"], row["mse"], row["attn"]) for row in rows)
    front: list[tuple[float, float]] = []
    for seconds, error, attn in points:
        control = attn in CONTROLS
        axis.plot(seconds, error, "s" if control else "o", ms=4, color=CONTROL if control else TYPE)
        if not front or error < front[-1][1]:
            front.append((seconds, error))
    axis.step(*zip(*front, strict=True), where="post", color=FRONT, lw=1, zorder=0)
    axis.set_xscale("log")
    if logarithmic:
        axis.set_yscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
    axis.xaxis.set_minor_formatter("{x:g}")
    axis.margins(x=0.15, y=0.1)
    axis.grid(color="#e2e8f0", lw=0.6)
    axis.tick_params(labelsize=7, which="both")
    axis.spines[["top", "right"]].set_visible(False)


def _lengths(
    axis: Axes, found: dict[tuple[str, int, str, bool], list[Row]]
) -> dict[str, tuple[float, float]]:
    """Draw the error against the length of the samples, a line for each type; returns the end of
    each line."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for (data, _, _, _), rows in found.items():
        for row in rows:
            lines[row["attn"]].append((int(data.split("-")[1]), row["mse"]))
    for attn, points in lines.items():
        control = attn in CONTROLS
        points.sort()
        axis.plot(*zip(*points, strict=True), "--" if control else "-", marker="o", ms=3, lw=1.2,
                  color=CONTROL if control else TYPE)  # fmt: skip
    lengths = sorted({length for points in lines.values() for length, _ in points})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set(xticks=lengths, xticklabels=lengths, xlabel="length L")
    axis.set_title("recall against length", loc="left", fontsize=9)
    axis.margins(x=0.3, y=0.1)
    axis.grid(color="#e2e8f0", lw=0.6)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
    return {attn: max(points) for attn, points in lines.items()}
