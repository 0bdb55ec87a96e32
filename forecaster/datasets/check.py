"""Check a file before training: what it holds and what training would make of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.datasets.card import Borders
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.oddities import Oddity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 6
"""Series or columns in the figure: what a screen shows at a readable height."""
LISTED = 20
"""Lines about columns, or about oddities, that a screen holds beside the rest."""


def report(
    dataset: Dataset, horizon: int, past: int, borders: Borders, oddities: Sequence[Oddity] = ()
) -> dict[str, Any]:
    """Plain JSON about a file: columns and roles, times, gaps, windows.

    `borders` are steps of the time grid.
    """
    series, counts = dataset.series, dataset.counts
    times = [str(stamp) for stamp in series.times[[0, -1]]]
    items = series.layout
    ends = {"train": borders.train, "validation": borders.validation, "test": borders.test}
    windows = {
        part: items.windows(past, horizon, *steps)[1] for part, steps in borders.parts.items()
    }
    return {
        "name": dataset.name,
        "source": series.source,
        "columns": _columns(dataset),
        "time": {
            "column": dataset.time, "timezone": dataset.timezone, "freq": dataset.freq,
            "first": times[0], "last": times[1], "steps": len(series.times),
        },
        "seasons": list(dataset.seasons),
        "series": {
            "count": len(items), "shortest": int(min(items.lengths)),
            "longest": int(max(items.lengths)),
        },
        "irregular": {
            kind: counts[kind]
            for kind in ("unsorted", "duplicates", "differing", "snapped", "off", "gaps")
        },
        "split": "series" if borders.each else "calendar",
        "parts": {
            part: {
                "last": None if borders.each else str(series.times[ends[part] - 1]),
                "windows": int(counts.sum()),
                "series": int((counts > 0).sum()),
            }
            for part, counts in windows.items()
        },
        "look_back": past,
        "horizon": horizon,
        "oddities": [asdict(oddity) for oddity in oddities],
        "said": list(dataset.said),
    }  # fmt: skip


def text(report: dict[str, Any]) -> str:
    time, series, parts = report["time"], report["series"], report["parts"]
    zone = "UTC" if time["timezone"] == "UTC" else "local, without a zone"
    lines = [
        f"file        {report['source']}",
        f"time        {time['column']}: {time['first']} to {time['last']}, "
        f"{time['steps']:,} steps of {time['freq']}, {zone}",
        f"seasons     {', '.join(map(str, report['seasons']))} steps",
        f"series      {series['count']:,}"
        + (f", of {series['shortest']:,} to {series['longest']:,} rows" * (series["count"] > 1)),
    ]
    columns, more = list(report["columns"].items()), Counter[str]()
    if len(columns) > 2 * LISTED:
        more.update(column["role"] for _, column in columns[LISTED:])
        columns = columns[:LISTED]
    for name, column in columns:
        missing = column.get("missing", 0)
        remarks = [f"{missing:,} values missing"] * bool(missing)
        remarks += ["constant"] * column.get("constant", False)
        remarks += [f"one of {', '.join(column['words'])}"] if "words" in column else []
        lines.append(f"column      {name}: {', '.join([column['role'], *remarks])}")
    lines += [f"columns     {count:,} more: {role}" for role, count in more.items()]
    irregular = [f"{kind} {count:,}" for kind, count in report["irregular"].items() if count]
    lines.append(f"irregular   {', '.join(irregular) or 'nothing'}")
    oddities = [oddity["text"] for oddity in report["oddities"]]
    lines += [f"look here   {text}" for text in oddities[:LISTED]]
    if len(oddities) > LISTED:
        lines.append(f"look here   and {len(oddities) - LISTED:,} more such (--json lists all)")
    for part, facts in parts.items():
        end = "by length" if facts["last"] is None else f"to {facts['last']}"
        those = f" of {facts['series']:,} series" * (series["count"] > 1)
        lines.append(f"{part:<11} {end}: {facts['windows']:,} windows{those}")
    lines.append(f"windows     {report['look_back']} steps back, {report['horizon']} ahead")
    return "\n".join(lines)


def _columns(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Each column's role; for values also how many are missing, and whether all are equal."""
    reading = dataset.reading
    times = reading.time_columns or (dataset.time,)
    columns: dict[str, dict[str, Any]] = {name: {"role": "time"} for name in times}
    columns |= {name: {"role": "id"} for name in reading.id}
    for name in reading.read_from(dataset.series.columns):
        columns[name] = {
            "role": "target" if name in dataset.targets else "past covariate",
            "missing": dataset.counts["missing"][name],
            "constant": name in dataset.counts["constant"],
        }
    roles = {
        "future covariate": reading.read_from(dataset.series.known_columns),
        "static": tuple(dataset.series.static),
    }
    columns |= {name: {"role": role} for role, names in roles.items() for name in names}
    for name, words in reading.categories.items():
        columns[name]["words"] = list(words)
    return columns


def advice(report: dict[str, Any]) -> str:
    """What to do about parts without a window; "" if every part has one."""
    empty = [part for part, facts in report["parts"].items() if not facts["windows"]]
    if not empty:
        return ""
    calendar = report["split"] == "calendar" and report["series"]["count"] > 1
    by_series = ", --split series" * calendar
    return (
        f"{report['source']}: no window of {report['look_back']} + {report['horizon']} steps fits "
        f"into {' and '.join(empty)}; use a shorter --horizon or --lookback{by_series}, or more "
        "rows."
    )


def figure(dataset: Dataset, borders: Borders) -> "Figure":
    """A figure of some targets, or of some series of a panel, with the borders of the parts."""
    from matplotlib.figure import Figure

    series, items = dataset.series, dataset.series.layout
    names = dataset.targets if series.items is None else items.names
    chosen = np.linspace(0, len(names) - 1, min(len(names), SHOWN)).astype(int).tolist()
    picture = Figure(figsize=(9, 1.3 + 1.5 * len(chosen)), layout="constrained")
    axes = picture.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    for axis, number in zip(axes, chosen, strict=True):
        item, name = (0, names[number]) if series.items is None else (number, series.columns[0])
        rows = slice(*items.bounds[item : item + 2])
        stamps = series.times[items.places[item] :][: items.lengths[item]]
        axis.plot(stamps, series.values[rows, series.columns.index(name)], linewidth=0.8)
        ends = borders.each[number][:2] if borders.each else (borders.train, borders.validation)
        for end in ends:
            stamp = series.times[min(end, len(series.times) - 1)]
            axis.axvline(stamp, color="0.4", linestyle="--", linewidth=0.8)
        axis.set_title(names[number], loc="left", fontsize="small")
    axes[0].set_xlim(series.times[0], series.times[-1])
    more = f", and {len(names) - len(chosen):,} more" * (len(names) > len(chosen))
    picture.suptitle(
        f"{dataset.name}: {len(chosen)} series{more}\ndashed: the ends of training and validation",
        fontsize="medium",
    )
    return picture
