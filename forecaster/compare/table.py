"""What the finished cells of a grid say: a row for each attention of a group, with verdicts."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

from forecaster.attention import CATALOGUE
from forecaster.compare.cell import Finished
from forecaster.evaluate import Verdict, is_borderline, paired_interval
from forecaster.evaluate.figures import Cost, ErrorMetric, Kind, Metric, shown, whole

Row = dict[str, Any]
GROUP = ("data", "horizon", "regime", "linear")
"""Within a group only the attention varies."""
AGAINST = ("none", "full")
LEGEND = """\
MSE and MAE: every test window, scaled values, mean ± standard deviation over seeds. params: without
the linear path; * not within 5 % of those with full attention. train s, ms (a forecast of one
window): processor time of one thread. MiB: what one training step adds. skill: 1 - MSE / MSE of the
best floor. Verdicts: the paired 95 % interval of the MSE difference (block bootstrap over windows,
widened by the spread over seeds; one seed speaks of its models only) lies below zero (better),
above (worse), or contains it (=); ~: borderline, an end is nearer to zero than 5 % of its width.
(full): amounts to full attention at these lengths, so no verdict."""


def rows(cells: Sequence[Finished]) -> list[Row]:
    """One row per group (with the linear path first) and attention, in the catalogue's order.

    Figures are means over seeds, `mse_sd` and `mae_sd` None for a single one. `against` has for
    "none" and "full" the difference of the MSE, its interval `low` to `high` (None where there are
    too few windows) and the verdict; it is empty for the reference itself, and for a type that
    amounts to full attention.
    """
    Found = dict[str, list[Finished]]
    groups: defaultdict[tuple[Any, ...], Found] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        groups[tuple(cell.facts[key] for key in GROUP)][cell.facts["attn"]].append(cell)
    place = {name: number for number, name in enumerate(CATALOGUE)}
    return [
        _row(found[attn], found)
        for _, found in sorted(groups.items(), key=lambda item: (*item[0][:-1], not item[0][-1]))
        for attn in sorted(found, key=lambda name: place.get(name, len(place)))
    ]


def _row(own: list[Finished], group: dict[str, list[Finished]]) -> Row:
    facts = [cell.facts for cell in own]
    first = facts[0]
    floor, best = min(first["floors"].items(), key=lambda item: item[1]["mse"])
    figures: dict[str, Any] = {}
    for metric in [*whole(), *shown(Cost)]:
        known = [fact[metric.name] for fact in facts if fact.get(metric.name) is not None]
        figures[metric.name] = mean(known) if known else None
        if isinstance(metric, ErrorMetric):
            figures[f"{metric.name}_sd"] = stdev(known) if len(known) > 1 else None
    same = ("tokens", "parameters", "budget_parameters", "within_budget", "effective", "is_full")
    return {
        **{key: first[key] for key in (*GROUP, "attn", *same, "steps", "windows")},
        "seeds": sorted(fact["seed"] for fact in facts),
        **figures,
        "best_floor": floor,
        "floor_mse": best["mse"],
        "skill": 1 - figures["mse"] / best["mse"] if best["mse"] > 0 else None,
        "against": {
            name: compared
            for name in AGAINST
            if name != first["attn"] and not first["is_full"]
            for compared in [compare(own, group.get(name, []))]
            if compared
        },
    }


def compare(own: Sequence[Finished], other: Sequence[Finished]) -> dict[str, Any]:
    """The paired difference over test windows, averaged over the seeds that both have.

    Empty when they share none. Blocks of the bootstrap are as long as the horizon, because windows
    nearer than that overlap. With several seeds the interval holds for seeds not tried, too: its
    arms grow by the half-width of Student's interval of the mean of the seeds' differences.
    """
    mine = {cell.facts["seed"]: cell for cell in own}
    theirs = {cell.facts["seed"]: cell for cell in other}
    seeds = sorted(set(mine) & set(theirs))
    if not seeds:
        return {}
    paired = np.array([mine[seed].by_window() - theirs[seed].by_window() for seed in seeds])
    by_seed = np.nanmean(paired, axis=1)
    difference = float(by_seed.mean())
    low, high = paired_interval(paired.mean(axis=0), own[0].facts["horizon"], own[0].steps())
    if len(seeds) > 1:
        error = by_seed.std(ddof=1) / np.sqrt(len(seeds)) * stdtrit(len(seeds) - 1, 0.975)
        low = difference - np.hypot(difference - low, error)
        high = difference + np.hypot(high - difference, error)
    finite = np.isfinite(low)
    return {
        "difference": difference,
        "low": float(low) if finite else None,
        "high": float(high) if finite else None,
        "seeds": seeds,
        "verdict": Verdict.of(low, high),
    }


def text(rows: Sequence[Row]) -> str:
    """The tables of all groups for a terminal, 110 columns wide."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in GROUP)].append(row)
    parts = [_table(found) for found in groups.values()]
    return "\n\n".join([*parts, LEGEND])


def heading(row: Row) -> str:
    return (
        f"{row['data']}, T = {row['horizon']}, {row['regime']} ({row['tokens']} tokens), "
        f"{'with' if row['linear'] else 'without'} the linear path; {row['steps']} steps, "
        f"{row['windows']} test windows"
    )


def _table(found: list[Row]) -> str:
    first = found[0]
    seeds = max(len(row["seeds"]) for row in found)
    errors, costs = known(whole("grid"), found), known(shown(Cost, "grid"), found)
    lines = [
        f"{heading(first)}, {seeds} seed{'s' if seeds > 1 else ''}",
        f"best floor: {first['best_floor']} {first['floor_mse']:.4f}",
        f"{'':<10}{_across(errors, [metric.label for metric in errors])}{'params':>9} "
        f"{_across(costs, [metric.head for metric in costs])}"
        f"{'skill':>8}  vs none  vs full",
    ]
    for row in found:
        budget = " " if row["within_budget"] else "*"
        skill = "–" if row["skill"] is None else f"{row['skill']:+.1%}"
        verdicts = "".join(f"  {verdict(row, name):<7}" for name in AGAINST)
        lines.append(
            f"{row['attn']:<10}{_across(errors, [spread(row, metric) for metric in errors])}"
            f"{row['budget_parameters']:>9,}{budget}"
            f"{_across(costs, [metric.text(row.get(metric.name)) for metric in costs])}{skill:>8}"
            f"{verdicts}".rstrip()
        )
    return "\n".join(lines)


def _across(metrics: Sequence[Metric], cells: Sequence[str]) -> str:
    return "".join(
        f"{cell:>{17 if isinstance(metric, ErrorMetric) else max(7, len(metric.head) + 2)}}"
        for metric, cell in zip(metrics, cells, strict=True)
    )


def known(metrics: Sequence[Kind], rows: Sequence[Row]) -> list[Kind]:
    """The metrics that any of the rows has: cells of an older version may lack one."""
    return [each for each in metrics if any(row.get(each.name) is not None for row in rows)]


def spread(row: Row, metric: Metric) -> str:
    """A mean, and the standard deviation over seeds where there are several."""
    deviation = row.get(f"{metric.name}_sd")
    own = metric.text(row.get(metric.name))
    return own if deviation is None else f"{own} ± {metric.text(deviation)}"


def verdict(row: Row, name: str) -> str:
    """The verdict in the space of a column."""
    if row["is_full"]:
        return "(full)"
    if name not in row["against"]:
        return "–"
    against = row["against"][name]
    word: str = "=" if against["verdict"] == Verdict.SAME else against["verdict"]
    return word + "~" * is_borderline(against["low"], against["high"])
