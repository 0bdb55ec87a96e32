"""Check a file before training: what it holds and what training would make of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.datasets.card import Borders
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.items import Items
from forecaster.datasets.oddities import Oddity
from forecaster.datasets.series import Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 6
"""Series or columns in the figure."""

POINTS = 1500
"""Positions along the time axis of the figure; the values at one are drawn from least to most."""

MARKED = {
    "sentinel": "mark of a missing value", "outlier": "outlier", "jump": "jump",
    "stuck": "stuck value", "shift": "shifted level", "empty": "part without values",
}  # fmt: skip
"""The legend of what the figure marks."""


def report(
    dataset: Dataset, horizon: int, past: int, borders: Borders, oddities: Sequence[Oddity] = ()
) -> dict[str, Any]:
    """Plain JSON about a file: columns and roles, times, gaps, windows, memory.

    `borders` are steps of the time grid. The bytes count the values as read and the scaled copies
    that training makes of them, not the model and its batches.
    """
    series, counts = dataset.series, dataset.counts
    times = [str(stamp) for stamp in series.times[[0, -1]]]
    items = series.items or Items.single(len(series.times))
    windows = {
        part: items.windows(past, horizon, *steps)[1] for part, steps in borders.parts.items()
    }
    ends = {"train": borders.train, "validation": borders.validation, "test": borders.test}
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
        "bytes": _bytes(dataset, borders),
        "oddities": [oddity.to_dict() for oddity in oddities],
        "said": list(dataset.said),
    }  # fmt: skip


def text(found: dict[str, Any]) -> str:
    """The report in words."""
    time, series, parts = found["time"], found["series"], found["parts"]
    zone = "UTC" if time["timezone"] == "UTC" else "local, without a zone"
    lines = [
        f"file        {found['source']}",
        f"time        {time['column']}: {time['first']} to {time['last']}, "
        f"{time['steps']:,} steps of {time['freq']}, {zone}",
        f"seasons     {', '.join(map(str, found['seasons']))} steps",
        f"series      {series['count']:,}"
        + (f", of {series['shortest']:,} to {series['longest']:,} rows" * (series["count"] > 1)),
    ]
    for name, column in found["columns"].items():
        missing = column.get("missing", 0)
        remarks = [f"{missing:,} values missing"] * bool(missing)
        remarks += ["constant"] * column.get("constant", False)
        remarks += [f"one of {', '.join(column['words'])}"] if "words" in column else []
        lines.append(f"column      {name}: {', '.join([column['role'], *remarks])}")
    irregular = [f"{kind} {count:,}" for kind, count in found["irregular"].items() if count]
    lines.append(f"irregular   {', '.join(irregular) or 'nothing'}")
    lines += [f"look here   {oddity['text']}" for oddity in found["oddities"]]
    for part, facts in parts.items():
        end = "by length" if facts["last"] is None else f"to {facts['last']}"
        those = f" of {facts['series']:,} series" * (series["count"] > 1)
        lines.append(f"{part:<11} {end}: {facts['windows']:,} windows{those}")
    lines.append(f"windows     {found['look_back']} steps back, {found['horizon']} ahead")
    sizes = {key: f"{size / 2**20:,.0f} MiB" for key, size in found["bytes"].items()}
    lines.append(
        f"memory      {sizes['memory']} of values, {sizes['scaled']} of scaled copies"
        + (f", {sizes['mapped']} in a mapped file" if found["bytes"]["mapped"] else "")
        + "; add about 600 MiB for the libraries, and the batches"
    )
    return "\n".join(lines)


def _columns(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Each column's role; for values also how many are missing, and whether all are equal."""
    times = dataset.reading.time_columns or (dataset.time,)
    columns: dict[str, dict[str, Any]] = {name: {"role": "time"} for name in times}
    columns |= {name: {"role": "id"} for name in dataset.id}
    reading = dataset.reading
    for name in reading.read_from(dataset.columns):
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


def advice(found: dict[str, Any]) -> str:
    """What to do about parts without a window; "" if every part has one."""
    empty = [part for part, facts in found["parts"].items() if not facts["windows"]]
    if not empty:
        return ""
    by_series = ", --split series" * (found["series"]["count"] > 1 and found["split"] == "calendar")
    return (
        f"{found['source']}: no window of {found['look_back']} + {found['horizon']} steps fits "
        f"into {' and '.join(empty)}; use a shorter --horizon or --lookback{by_series}, or more "
        "rows."
    )


def _bytes(dataset: Dataset, borders: Borders) -> dict[str, int]:
    """Bytes of the values as read, in memory and in a mapped file, and of the 32-bit copies."""
    series = dataset.series
    arrays = [series.values, *([] if series.known is None else [series.known])]
    size = sum(array.nbytes for array in arrays)
    mapped = isinstance(series.values.base, np.memmap) or isinstance(series.values, np.memmap)
    rows = len(series.values)
    if series.items is None:  # each part has a copy of all rows up to its end
        rows = borders.train + borders.validation + borders.test
    return {
        "memory": 0 if mapped else size,
        "mapped": size if mapped else 0,
        "scaled": rows * sum(array.shape[1] for array in arrays) * 4,
    }


class _Curve(NamedTuple):
    """A column, possibly of one series of a panel: the rows [first, last) of the table, which lie
    on the grid from step `place` on, and the steps at which training and validation end."""

    name: str
    column: int
    first: int
    last: int
    place: int
    ends: tuple[int, int]


def figure(dataset: Dataset, borders: Borders, oddities: Sequence[Oddity] = ()) -> "Figure":
    """A figure of the series over time, with the borders of the parts and the oddities.

    It shows some targets, or some series of a panel, starting with those that have oddities. Odd
    values are not joined to the others; those far away are drawn at the edge.
    """
    from matplotlib.figure import Figure

    series, items = dataset.series, dataset.series.items
    targets = [o for o in oddities if o.column in dataset.targets]
    if items is None:
        count, odd = len(dataset.targets), [dataset.targets.index(o.column) for o in targets]
    else:
        count = len(items)
        rows = [first for o in targets for first, _ in o.spans]
        odd = (np.searchsorted(items.bounds, rows, side="right") - 1).tolist()
    chosen = _spread(count, odd)
    curves = []
    for number in chosen:
        ends = borders.each[number][:2] if borders.each else (borders.train, borders.validation)
        if items is None:
            column = dataset.columns.index(dataset.targets[number])
            curve = _Curve(dataset.targets[number], column, 0, len(series.values), 0, ends)
        else:
            first, last = items.bounds[number : number + 2].tolist()
            place = int(items.places[number])
            curve = _Curve(items.names[number], 0, first, last, place, ends)
        curves.append(curve)
    picture = Figure(figsize=(9, 1.3 + 1.5 * len(curves)), layout="constrained")
    axes = picture.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    marks: dict[str, Any] = {}
    for axis, curve in zip(axes, curves, strict=True):
        own = [o for o in targets if o.column == dataset.columns[curve.column]]
        marks |= _draw(axis, series, curve, own)
    axes[0].set_xlim(series.times[0], series.times[-1])
    first = curves[0]
    for part, begin in zip(borders.parts, (first.place, *first.ends), strict=True):
        axes[0].annotate(
            part, (series.times[begin], 0), xycoords=("data", "axes fraction"),
            xytext=(3, 12 if part == "validation" else 3),
            textcoords="offset points", fontsize="x-small", color="0.4",
        )  # fmt: skip
    if marks:
        picture.legend(
            [*marks.values()], [MARKED[kind] for kind in marks], loc="outside lower center",
            ncols=len(marks), fontsize="x-small", frameon=False,
        )  # fmt: skip
    more = f", and {count - len(curves):,} more" if count > len(curves) else ""
    picture.suptitle(f"{dataset.name}: {len(curves)} series{more}", fontsize="medium")
    return picture


def _draw(axis: Any, series: Series, curve: _Curve, oddities: Sequence[Oddity]) -> dict[str, Any]:
    """Draw one curve with its oddities; return the marks by kind."""
    values = np.array(series.values[curve.first : curve.last, curve.column], dtype=np.float64)
    spans = {
        oddity.kind: [
            (first - curve.first, min(last, curve.last) - curve.first)
            for each in oddities
            for first, last in each.spans
            if each.kind == oddity.kind and curve.first <= first < curve.last
        ]
        for oddity in oddities
    }
    apart = [row for kind in ("sentinel", "outlier") for row, _ in spans.get(kind, ())]
    there = values[apart]
    values[apart] = np.nan
    at, low, high = _envelope(values)
    stamps = series.times[curve.place : curve.place + len(values)]
    axis.fill_between(stamps[at], low, high, linewidth=0.8, color="C0")
    for end in curve.ends:
        axis.axvline(series.times[min(end, len(series.times) - 1)], color="0.4", linestyle="--",
                     linewidth=0.8)  # fmt: skip
    axis.set_title(curve.name, loc="left", fontsize="small")
    bottom, top = axis.get_ylim()
    marks: dict[str, Any] = {}
    for kind, own in spans.items():
        if not own:
            continue
        rows = [row for row, _ in own]
        if kind in ("sentinel", "outlier"):
            level = np.clip(there[[apart.index(row) for row in rows]], bottom, top)
            marks[kind] = axis.scatter(
                stamps[rows], level, s=18, marker={"sentinel": "x", "outlier": "+"}[kind],
                color="C3", linewidth=1, zorder=3, clip_on=False,
            )  # fmt: skip
        elif kind == "jump":
            marks[kind] = axis.vlines(stamps[rows], 0, 1, color="C3", linestyle=":", linewidth=1.2,
                                      transform=axis.get_xaxis_transform())  # fmt: skip
        else:
            color, alpha = ("C1", 0.6) if kind == "stuck" else ("C3", 0.12)
            widths = [(stamps[row], stamps[end - 1] - stamps[row]) for row, end in own]
            marks[kind] = axis.broken_barh(widths, (0, 1), color=color, alpha=alpha, linewidth=1,
                                           transform=axis.get_xaxis_transform())  # fmt: skip
    return marks


def _spread(count: int, first: Sequence[int] = ()) -> list[int]:
    """At most SHOWN of `count` positions: `first`, then others evenly spread."""
    others = np.linspace(0, count - 1, min(count, SHOWN)).astype(int).tolist()
    return sorted([*dict.fromkeys([*first, *others])][: min(count, SHOWN)])


def _envelope(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """At most POINTS positions along the values (N,), and the least and greatest value at each."""
    width = -(-len(values) // POINTS)
    places = np.arange(len(values))
    bins = pd.Series(values).groupby(places // width)
    return places[::width], np.asarray(bins.min()), np.asarray(bins.max())
