"""What a file of one's own holds and what training would make of it, before any training."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.datasets.card import Borders
from forecaster.datasets.dataset import Dataset
from forecaster.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 6
"""Series or columns in the picture."""

POINTS = 1500
"""Places along the time axis of the picture; what shares one is drawn from least to most."""

PARTS = ("train", "validation", "test")


def report(dataset: Dataset, horizon: int, past: int, borders: Borders) -> dict[str, Any]:
    """Plain JSON about a file that is read: columns and roles, times, gaps, windows, memory.

    `borders` are steps of the time grid. The bytes are those of the values as read and of the
    scaled copies that training makes of them; the model and its batches come on top.
    """
    series, counts = dataset.series, dataset.counts
    times = [str(stamp) for stamp in series.times[[0, -1]]]
    lengths = [len(series.times)] if series.items is None else series.items.lengths
    windows = {
        part: _windows(dataset, horizon, past, first, last)
        for part, first, last in zip(PARTS, (0, borders.train, borders.validation),
                                     (borders.train, borders.validation, borders.test), strict=True)
    }  # fmt: skip
    ends = (borders.train, borders.validation, borders.test)
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
            "count": len(lengths), "shortest": int(min(lengths)), "longest": int(max(lengths)),
        },
        "irregular": {
            kind: counts[kind]
            for kind in ("unsorted", "duplicates", "differing", "snapped", "off", "gaps")
        },
        "parts": {
            part: {"last": str(series.times[end - 1]), "windows": windows[part]}
            for part, end in zip(PARTS, ends, strict=True)
        },
        "look_back": past,
        "horizon": horizon,
        "bytes": _bytes(dataset, borders),
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
        lines.append(f"column      {name}: {', '.join([column['role'], *remarks])}")
    irregular = [f"{kind} {count:,}" for kind, count in found["irregular"].items() if count]
    lines.append(f"irregular   {', '.join(irregular) or 'nothing'}")
    for part, facts in parts.items():
        lines.append(f"{part:<11} to {facts['last']}: {facts['windows']:,} windows")
    lines.append(f"windows     {found['look_back']} steps back, {found['horizon']} ahead")
    sizes = {key: f"{size / 2**20:,.0f} MiB" for key, size in found["bytes"].items()}
    lines.append(
        f"memory      {sizes['memory']} of values, {sizes['scaled']} of scaled copies"
        + (f", {sizes['mapped']} in a mapped file" if found["bytes"]["mapped"] else "")
        + "; the libraries take some 600 MiB, the batches come on top"
    )
    return "\n".join(lines)


def _columns(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Role by name; of the values how many are missing, and whether they are all one."""
    columns: dict[str, dict[str, Any]] = {dataset.time: {"role": "time"}}
    columns |= {name: {"role": "id"} for name in dataset.id}
    for name in dataset.columns:
        columns[name] = {
            "role": "target" if name in dataset.targets else "past covariate",
            "missing": dataset.counts["missing"][name],
            "constant": name in dataset.counts["constant"],
        }
    roles = {
        "future covariate": dataset.series.known_columns,
        "static": tuple(dataset.series.static),
    }
    return columns | {name: {"role": role} for role, names in roles.items() for name in names}


def _windows(dataset: Dataset, horizon: int, past: int, first: int, last: int) -> int:
    """The windows whose targets lie in steps [first, last), 0 where none fits."""
    import torch

    from forecaster.datasets.windows import Windows

    nothing = torch.zeros(1, 1)
    try:
        return len(
            Windows(
                values=nothing.expand(len(dataset.series.values), 1),
                calendar=nothing.expand(len(dataset.series.times), 1),
                past=past, horizon=horizon, first=first, last=last, targets=(0,),
                items=dataset.series.items,
            )
        )  # fmt: skip
    except DataError:
        return 0


def _bytes(dataset: Dataset, borders: Borders) -> dict[str, int]:
    """Of the values as read, those in a mapped file apart, and of the scaled copies in 32 bits."""
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


def figure(dataset: Dataset, borders: Borders) -> "Figure":
    """The series over time, with the borders of the parts: some targets, or some of a panel."""
    from matplotlib.figure import Figure

    series = dataset.series
    if series.items is None:
        chosen = _spread(len(dataset.targets))
        curves = [(dataset.targets[c], 0, series.values[:, c]) for c in chosen]
        left_out = len(dataset.targets) - len(chosen)
    else:
        items = series.items
        chosen = _spread(len(items))
        curves = [
            (items.names[i], int(items.places[i]),
             series.values[items.bounds[i] : items.bounds[i + 1], 0])
            for i in chosen
        ]  # fmt: skip
        left_out = len(items) - len(chosen)
    picture = Figure(figsize=(9, 1 + 1.5 * len(curves)), layout="constrained")
    axes = picture.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, place, values) in zip(axes, curves, strict=True):
        at, low, high = _envelope(np.asarray(values, dtype=np.float64))
        stamps = series.times[place + at]
        axis.fill_between(stamps, low, high, linewidth=0.8, color="C0")
        for end in (borders.train, borders.validation):
            axis.axvline(series.times[end], color="0.4", linestyle="--", linewidth=0.8)
        axis.set_title(name, loc="left", fontsize="small")
    axes[0].set_xlim(series.times[0], series.times[-1])
    for part, begin in zip(PARTS, (0, borders.train, borders.validation), strict=True):
        axes[0].annotate(
            part, (series.times[begin], 0), xycoords=("data", "axes fraction"), xytext=(3, 3),
            textcoords="offset points", fontsize="x-small", color="0.4",
        )  # fmt: skip
    more = f", and {left_out:,} more" if left_out else ""
    picture.suptitle(f"{dataset.name}: {len(curves)} series{more}", fontsize="medium")
    return picture


def _spread(count: int) -> list[int]:
    """At most SHOWN places of so many, evenly spread."""
    return sorted({int(place) for place in np.linspace(0, count - 1, min(count, SHOWN))})


def _envelope(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """At most POINTS places along the values (N,), and the least and the most around each."""
    width = -(-len(values) // POINTS)
    places = np.arange(len(values))
    bins = pd.Series(values).groupby(places // width)
    return places[::width], np.asarray(bins.min()), np.asarray(bins.max())
