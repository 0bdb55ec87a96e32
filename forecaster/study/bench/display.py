"""The display of a measurement: tables for the terminal, a figure, two files."""

import json
import re
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from forecaster.attention.base import Family
from forecaster.base.errors import StorageError
from forecaster.study.bench.cells import TIE_MIB, TIE_SHARE, Document, Measurement
from forecaster.study.bench.cores import CORES, YARDSTICK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAMILIES: tuple[Family, ...] = get_args(Family)
COLOURS = ("#c2410c", "#0369a1", "#15803d", "#7e22ce", "#84cc16", "#be185d", "#a16207")
INK, MUTED = "#0f172a", "#cbd5e1"


def tables(document: Document) -> str:
    """Tables of times and memory, with marks on dominated types, and what was not measured."""
    rows = {(row["attn"], row["length"]): row for row in document["rows"]}
    names = list(dict.fromkeys(row["attn"] for row in document["rows"]))
    lengths = sorted({row["length"] for row in document["rows"]})
    lines = [title(document), document["hardware"]]
    for heading, key in (("milliseconds", "milliseconds"), ("extra MiB", "mib")):
        lines += ["", f"{heading:<12}" + "".join(f"{length:>8} " for length in lengths).rstrip()]
        for name in names:
            cells = (rows[name, length] for length in lengths)
            line = "".join(f"{digits(row.get(key)):>8}{_mark(row)}" for row in cells)
            lines.append(f"{name:<12}{line}".rstrip())
    lines += [
        "",
        f"* dominated: another type is faster and needs less memory, each by {TIE_SHARE:.0%} and "
        f"{TIE_MIB:g} MiB at least",
        "! even full attention is. The controls and SDPA do not count; what a forecast gains from",
        "  an attention is another question.",
    ]
    for name in names:
        skipped = [row for row in document["rows"] if row["attn"] == name and "skipped" in row]
        if skipped:
            at = ", ".join(str(row["length"]) for row in skipped)
            lines.append(f"not measured: {name} at L = {at}: it {skipped[0]['skipped']}")
    return "\n".join(lines)


def title(document: Document) -> str:
    return (
        f"forward and backward{', causal' if document['causal'] else ''}, "
        f"batch {document['batch']}, {document['heads']} heads of {document['width']}, "
        f"{document['dtype']}"
    )


def figure(document: Document) -> "Figure":
    """A figure of time (above) and memory (below) against length, a column per family of types.

    The other families are grey, and SDPA is the dashed line. A memory below the resolution of a
    page, 0, has no point.
    """
    from matplotlib.figure import Figure

    result = Figure(figsize=(13, 9), layout="constrained")
    result.suptitle(f"{title(document)}\n{document['hardware']}", x=0.01, ha="left", fontsize=11)
    axes = result.subplots(2, len(FAMILIES), sharex=True, sharey="row")
    for row, (key, label) in zip(
        axes, (("milliseconds", "milliseconds"), ("mib", "extra memory, MiB")), strict=True
    ):
        row[0].set_ylabel(label)
        for axis, family in zip(row, FAMILIES, strict=True):
            _draw_family(axis, document["rows"], key, family)
    for axis, family in zip(axes[0], FAMILIES, strict=True):
        axis.set_title(family, loc="left", fontsize=11, fontweight="bold")
    for axis in axes[1]:
        axis.set_xlabel("length L")
    return result


def _draw_family(axis: "Axes", rows: list[Measurement], key: str, family: str) -> None:
    lengths = sorted({row["length"] for row in rows})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [str(length) for length in lengths], rotation=45)
    axis.grid(color="#e2e8f0", lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    colours = cycle(COLOURS)
    for name in dict.fromkeys(row["attn"] for row in rows):
        points = [(r["length"], r[key]) for r in rows if r["attn"] == name and r.get(key)]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        if name == YARDSTICK:
            axis.plot(x, y, color=INK, lw=1.6, ls=(0, (4, 2)), zorder=3, label=name)
        elif CORES[name].family == family:
            colour = next(colours)
            axis.plot(x, y, color=colour, lw=1.6, marker="o", ms=3, zorder=2, label=name)
        else:
            axis.plot(x, y, color=MUTED, lw=0.8, zorder=1)
    axis.legend(fontsize=8, frameon=False)


def save(document: Document, folder: Path) -> tuple[Path, Path]:
    """Write the document as JSON and its figure as PNG; their names state machine and shape.

    Raises StorageError when the folder cannot be written.
    """
    where = document["processor"]
    if document["device"] == "cpu":
        where += f" {document['threads']} threads"
    shape = "B{batch}-H{heads}-E{width}-{dtype}".format(**document)
    name = f"attention {where} {shape}{' causal' if document['causal'] else ''}"
    name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    files = folder / f"{name}.json", folder / f"{name}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files[0].write_text(json.dumps(document, indent=1) + "\n")
        figure(document).savefig(files[1], dpi=110)
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error}") from error
    return files


def digits(value: float | None, missing: str = "–") -> str:
    """A value with three significant digits, or `missing`."""
    if value is None:
        return missing
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _mark(row: Measurement) -> str:
    return "!" if "full" in row["dominated_by"] else "*" if row["dominated_by"] else " "
