"""Charts and captions that the report of runs and the report of a grid share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster import shares, tables
from forecaster.bundle import Bundle
from forecaster.datasets import Windows
from forecaster.evaluate.examples import Example
from forecaster.evaluate.lags import LagProfile
from forecaster.problem import Problem
from forecaster.report.charts import (
    KINDS,
    Line,
    Point,
    line_chart,
    scatter_chart,
    share_chart,
)
from forecaster.report.page import Chart, Section, Table

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Entry:
    """A model's error and the cost of its forecasts; `mib` is None if unknown."""

    name: str
    mse: float
    milliseconds: float
    mib: float | None

    def beaten_by(self, other: "Entry") -> bool:
        """Whether the other is worse in nothing and better in something."""
        own = (self.mse, self.milliseconds, self.mib or 0.0)
        its = (other.mse, other.milliseconds, other.mib or 0.0)
        return all(b <= a for a, b in zip(own, its, strict=True)) and own != its


@dataclass(frozen=True)
class Band:
    """An interval of a window: its name, and its ends (T, K, 2) in units.

    `covered` is the part of the test values of each column that such intervals held, None if not
    measured.
    """

    name: str
    ends: Array
    covered: Mapping[str, float | None]

    def said(self, column: str) -> str:
        """A sentence on what it covered of a column."""
        part = self.covered.get(column)
        found = "was not measured" if part is None else f"is {part:.1%}"
        return f" The coverage of the {self.name} band of {column} on the test split {found}."


def frontier(entries: Sequence[Entry]) -> list[str]:
    """The names of the models that no other beats in speed, memory and error at once."""
    return [e.name for e in entries if not any(e.beaten_by(other) for other in entries)]


def frontier_chart(title: str, entries: Sequence[Entry]) -> Chart:
    """A chart of error against time; a dot's area is memory, and the frontier has a colour."""
    on = frontier(entries)
    most = max((entry.mib or 0.0) for entry in entries) or 1.0
    points = [
        Point(
            entry.name,
            entry.milliseconds,
            entry.mse,
            "s0" if entry.name in on else "muted",
            40 + 260 * (entry.mib or 0.0) / most,
        )
        for entry in sorted(entries, key=lambda entry: entry.name not in on)
    ]
    svg = scatter_chart(points, title, "milliseconds for one forecast", "test MSE")
    known = any(entry.mib is not None for entry in entries)
    area = f" The area of a dot is memory, the largest {most:.3g} MiB." if known else ""
    what = "speed, memory and error" if known else "speed and error"
    best = f"those that no other beats in {what} at once"
    caption = f"{title}.{area} In colour, {best}: {', '.join(on)}."
    legend = [("s0", "on the frontier"), ("muted", "another is at least as good in all")]
    return Chart(svg, caption, legend if len(on) < len(entries) else legend[:1])


def share_section(runs: Sequence[tuple[str, Bundle]], notes: Sequence[str]) -> Section:
    """The parts of models by name: their weights as bars, and a table of all that were tried."""
    bars = [
        (name, [(part.name, part.weight) for part in shares.made_of(bundle)])
        for name, bundle in runs
    ]
    whole: dict[str, float] = {}
    for _, parts in bars:
        for part, weight in parts:
            whole[part] = whole.get(part, 0.0) + weight
    heaviest = sorted(whole, key=lambda part: -whole[part])
    kinds = {part: f"s{place}" for place, part in enumerate(heaviest[:KINDS])}
    legend = [(kind, part) for part, kind in kinds.items()]
    if len(heaviest) > KINDS:
        legend.append(("muted", "the others"))
    caption = "The weights of the parts, which sum to one: their mean over the steps ahead."
    return Section(
        "parts",
        "What the forecast is made of",
        notes,
        [
            Table(*tables.made_of(bundle.record, bundle.config.attn.name), name)
            for name, bundle in runs
        ],
        [Chart(share_chart(bars, "The weights of the parts", kinds), caption, legend)],
    )


def step_chart(
    title: str,
    models: Mapping[str, Sequence[float | None]],
    floor: tuple[str, Sequence[float | None]] | None,
    bold: Sequence[str],
    y: str = "MSE (scaled)",
) -> Chart:
    """A chart by step of the horizon; only the names in `bold` (at most 8) have a colour."""
    kinds = {name: f"s{place}" for place, name in enumerate(bold[:KINDS])}
    order = sorted(models, key=lambda name: name in kinds)
    curves = [
        Line(name, range(1, len(models[name]) + 1), models[name], kinds.get(name, "muted"))
        for name in order
    ]
    legend = [(kind, name) for name, kind in kinds.items()]
    if len(kinds) < len(models):
        legend.append(("muted", "the others"))
    if floor is not None:
        name, values = floor
        curves.append(Line(name, range(1, len(values) + 1), values, "dashed"))
        legend.append(("dashed", name))
    svg = line_chart(curves, title, "step of the horizon", y)
    return Chart(svg, title, legend)


def example_chart(
    title: str,
    caption: str,
    past: Array,
    truth: Array,
    forecast: Array,
    y: str,
    band: tuple[str, Array] | None = None,
) -> Chart:
    """A chart of one window of one column: past (h,), truth and forecast (T,), 0 is the last known
    step; `band` has a name and the ends (T, 2)."""
    before = list(range(1 - len(past), 1))
    ahead = list(range(len(truth) + 1))
    curves = [
        Line("history", before, past.tolist(), "muted"),
        Line("truth", ahead, [past[-1], *truth], "s1"),
        Line("forecast", ahead[1:], forecast.tolist(), "s0"),
    ]
    legend = [(curve.kind, curve.name) for curve in curves]
    ends = None
    if band is not None:
        label, both = band
        low, high = (Line(label, ahead[1:], end.tolist(), "s0") for end in both.T)
        ends = low, high
        legend.append(("band s0", label))
    svg = line_chart(curves, title, "steps from the last known one", y, marks=[0], band=ends)
    return Chart(svg, caption, legend)


def window_chart(
    name: str,
    problem: Problem,
    test: Windows,
    kind: str,
    example: Example,
    errors: Array,
    column: str = "",
    band: Band | None = None,
) -> Chart:
    """A chart of a test window of one target, by default the main one, in units.

    `errors` (n,) are of all windows.
    """
    item, _, step = test.origin(example.number)
    scaler = problem.schema.target_scaler.at(np.array([item]), 2)
    column = column or problem.dataset.main_target
    place = problem.schema.targets.index(column)
    past, truth, forecast = (
        scaler.inverse(values.astype(float))[:, place]
        for values in (example.past, example.truth, example.forecast)
    )
    caption = (
        f"{name}, {kind} of {len(test)} windows: MSE {errors[example.number]:.4f} over all "
        f"columns; forecast of {column} from {problem.series.times[step]}"
    )
    if problem.series.items is not None:
        caption += f", series {problem.series.items.names[item]}"
    caption += "."
    drawn = None
    if band is not None:
        drawn = f"{band.name} band", band.ends[:, place]
        caption += band.said(column)
    history = min(test.past, max(test.horizon, 2 * problem.dataset.seasons[0]))
    return example_chart(caption, caption, past[-history:], truth, forecast, column, drawn)


def lag_section(note: str, profiles: Iterable[tuple[str, LagProfile, int]]) -> Section:
    """The lag profiles of models by name, each with the main season of its data."""
    notes, charts = [note], []
    for name, profile, season in profiles:
        if chart := lag_chart(name, profile, season):
            charts.append(chart)
        else:
            notes.append(f"{name} does not depend on its past at all.")
    return Section("lags", "What the forecast looks at", notes, charts=charts)


def lag_chart(name: str, profile: LagProfile, season: int) -> Chart | None:
    """A chart of the share of each lag; None for a model that does not depend on its past."""
    if not profile.matrix.any():
        return None
    share = profile.by_lag
    lags = range(1, len(share) + 1)
    cycles = [lag for lag in lags if lag % season == 0]
    at_cycles = sum(share[lag - 1] for lag in cycles)
    marks = cycles[:: -(-len(cycles) // 40)] if cycles else []
    caption = (
        f"{name}: the peak is at lag {profile.peak}; multiples of {season} are "
        f"{len(cycles) / len(share):.0%} of the lags and hold {at_cycles:.0%} of the whole."
    )
    svg = line_chart(
        [Line(name, lags, share.tolist(), "s0")], f"Lag profile of {name}", "lag in steps",
        "share of the gradient", from_zero=True, marks=marks,
    )  # fmt: skip
    return Chart(svg, caption)


LAGS = (
    "How much the forecast would change with an input at each lag, the number of steps before the "
    "forecast step: the absolute gradient, averaged over windows, columns and the steps that reach "
    "this lag, as shares of the whole. The definition is the same for every attention. It shows "
    "what the forecast depends on, not what helps it."
)
FRONTIER = (
    "The frontier ignores uncertainty: an error that is not measurably smaller does not justify a "
    "higher cost."
)
DRAWN = 6
"""The most targets of a run with a chart of their own."""
EXAMPLES = (
    "The windows with the smallest, the median and the largest error of each model, chosen among "
    "all test windows; the best one flatters the model, the worst one does not."
)


def figure(value: float | None, form: str) -> str:
    """A number as text, or a mark that it is unknown."""
    return "unknown" if value is None else f"{value:{form}}"
