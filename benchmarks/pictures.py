"""Draw docs/pictures from the implementation itself, and the curves from benchmarks/results.

    python benchmarks/pictures.py             all of them
    python benchmarks/pictures.py prob lsh    only the patterns of these

The pattern of an attention shows how much of value j reaches output i: the derivative of out_i with
respect to v_j, summed over features, of the same function that the model calls, on 48 steps of a
series with a cycle of 12.
"""

import json
import math
import sys
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, get_args

import study
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from render import results
from torch import Tensor
from training import RESULTS

from forecaster.attention.base import Family
from forecaster.study import bench

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
STEPS, CYCLE, WIDTH = 48, 12, 16
Document = dict[str, Any]

# Options with which 48 steps show what happens in long series.
OPTIONS: dict[str, dict[str, int]] = {
    "prob": {"factor": 2},
    "lsh": {"bucket_size": 6},
    "strided": {"stride": CYCLE},
    "fixed": {"stride": 8},
    "topk": {"topk": 6},
    "flash": {"chunk_size": 12},
    "aft-local": {"window": 6},
    "aft-conv": {"window": 7},
    "sliding": {"window": 6, "sinks": 2},
}
# The inputs that the pattern differentiates by, where these are not only the values.
THROUGH = {"fastformer": ("k", "v")}

FAMILIES: tuple[Family, ...] = get_args(Family)
COLOURS = (
    "#c2410c", "#0369a1", "#15803d", "#7e22ce", "#84cc16", "#be185d", "#a16207", "#0891b2",
    "#f59e0b",
)  # fmt: skip
INK, MUTED = "#0f172a", "#cbd5e1"
NEGATIVE, ZERO, POSITIVE = "#c2410c", "#ffffff", "#1e3a5f"


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or bench.choose("all"):
        draw(name).savefig(PICTURES / f"{name}.png", dpi=72)
    if not sys.argv[1:]:
        for name in ("curves-1-threads", "curves-1-threads-causal"):
            first, *later = (
                json.loads(file.read_text())
                for file in (RESULTS / f"{name}.json", *sorted(RESULTS.glob(f"{name}.*.json")))
            )
            curves(joined(first, later)).savefig(PICTURES / f"{name}.png", dpi=72)
        documents = results("comparison")
        for name in study.REGIMES:
            if (drawn := study.figure(documents, name)) is not None:
                drawn.savefig(PICTURES / f"study-{name}.png", dpi=72)


def joined(first: Document, later: list[Document]) -> Document:
    """`first` with the types of later runs, whose times are multiplied by how much longer SDPA took
    in the first run, the median over lengths."""
    rows, here = list(first["rows"]), _yardstick(first)
    for document in later:
        there = _yardstick(document)
        longer = median(here[length] / there[length] for length in here.keys() & there)
        rows += [
            row | {"milliseconds": longer * row["milliseconds"]} if "milliseconds" in row else row
            for row in document["rows"]
            if row["attn"] != bench.cores.YARDSTICK
        ]
    return first | {"rows": rows}


def _yardstick(document: Document) -> dict[int, float]:
    """The milliseconds of SDPA by length."""
    own = (row for row in document["rows"] if row["attn"] == bench.cores.YARDSTICK)
    return {row["length"]: row["milliseconds"] for row in own if "milliseconds" in row}


def curves(document: Document) -> Figure:
    """A figure of time (above) and memory (below) against length, a column per family of types.

    The other families are grey, and SDPA is the dashed line. A memory below the resolution of a
    page, 0, has no point.
    """
    result = Figure(figsize=(13, 9), layout="constrained")
    result.suptitle(
        f"{bench.display.title(document)}\n{document['hardware']}", x=0.01, ha="left", fontsize=11
    )
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


def _draw_family(axis: Axes, rows: list[dict[str, Any]], key: str, family: str) -> None:
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
        if name == bench.cores.YARDSTICK:
            axis.plot(x, y, color=INK, lw=1.6, ls=(0, (4, 2)), zorder=3, label=name)
        elif bench.CORES[name].family == family:
            colour = next(colours)
            axis.plot(x, y, color=colour, lw=1.6, marker="o", ms=3, zorder=2, label=name)
        else:
            axis.plot(x, y, color=MUTED, lw=0.8, zorder=1)
    axis.legend(fontsize=8, frameon=False)


def draw(name: str) -> Figure:
    """The pattern without and with the causal rule; white is exactly zero."""
    figure = Figure(figsize=(8.2, 4.2), layout="constrained")
    colours = LinearSegmentedColormap.from_list("weights", [NEGATIVE, ZERO, POSITIVE])
    panels = zip(figure.subplots(1, 2), (False, True), ("not causal", "causal"), strict=True)
    for axis, causal, title in panels:
        weights = pattern(name, causal)
        shade = weights.sign() * weights.abs().sqrt()  # so that small weights stay visible
        high = float(shade.abs().max())
        axis.imshow(shade.numpy(), cmap=colours, vmin=-high, vmax=high, interpolation="nearest")
        axis.set_title(title, loc="left", fontsize=11)
        ticks = range(0, STEPS + 1, CYCLE)
        axis.set(xticks=ticks, yticks=ticks, xlabel="value of step j", ylabel="output of step i")
        axis.set(xlim=(-0.5, STEPS - 0.5), ylim=(STEPS - 0.5, -0.5))
        axis.tick_params(length=2, colors="#64748b")
        axis.spines[:].set_color("#cbd5e1")
    return figure


def pattern(name: str, causal: bool) -> Tensor:
    """(i, j): how much of step j reaches step i.

    Where other inputs than the values carry content, too, absolute derivatives are summed.
    """
    function, tensors = call(name)
    leaves = {key: x.detach().requires_grad_() for key, x in tensors.items()}
    out = function(**leaves, causal=causal)[0, 0]
    if name not in THROUGH:
        rows = (torch.autograd.grad(row.sum(), leaves["v"], retain_graph=True)[0] for row in out)
        return torch.stack([row[0, 0].sum(dim=1) for row in rows])
    through = [leaves[key] for key in THROUGH[name]]
    result = torch.zeros(STEPS, STEPS, dtype=out.dtype)
    for i in range(STEPS):
        for feature in out[i]:
            for gradient in torch.autograd.grad(feature, through, retain_graph=True):
                result[i] += gradient[0, 0].abs().sum(dim=1)
    return result


def call(name: str) -> tuple[Any, dict[str, Tensor]]:
    """The function and its tensors for one head on the example series."""
    generator = torch.Generator().manual_seed(0)

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    time = torch.arange(STEPS, dtype=torch.float64)
    phase = 2 * math.pi * time / CYCLE
    cycle = torch.stack([phase.cos(), phase.sin()], dim=1)
    # both halves of the width contain the cycle, the second (which diff subtracts) only weakly
    features = 0.5 * random(STEPS, WIDTH)
    features[:, :2] += 3.2 * cycle
    features[:, WIDTH // 2 : WIDTH // 2 + 2] += 0.8 * cycle
    features *= 1 + 0.4 * random(STEPS, 1).tanh()  # some steps carry more information than others
    q = k = features[None, None]
    function, tensors = bench.CORES[name].build(
        q, k, random(1, 1, STEPS, WIDTH), random, **OPTIONS.get(name, {})
    )
    return function, tensors | parameters(name, tensors, time)


def parameters(name: str, tensors: dict[str, Tensor], time: Tensor) -> dict[str, Tensor]:
    """Plausible trained parameters, where randomly initialised ones would show nothing."""
    if name == "aft-full":  # the bias u vᵀ: high between steps of the same phase
        phase = 2 * math.pi * time / CYCLE
        cycle = 1.4 * torch.stack([phase.cos(), phase.sin()], dim=1)
        return {"rows": cycle, "columns": cycle}
    if name == "static":  # high for the last steps and those of the same phase
        lag = (time[:, None] - time).abs()
        scores = -3 + 5 * torch.cos(2 * math.pi * lag / CYCLE).clamp(min=0) - 0.06 * lag
        return {"A": scores[None]}
    if name == "aft-local":  # the band: higher for nearer steps
        window = OPTIONS[name]["window"]
        distance = torch.arange(1 - window, window, dtype=time.dtype).abs()
        return {"band_bias": (2.5 - 0.4 * distance).expand(STEPS, -1)}
    if name == "aft-conv":
        return {"kernel": torch.linspace(3, 0.5, OPTIONS[name]["window"], dtype=time.dtype)[None]}
    if name == "flash":  # the linear path sees the same copies as the quadratic one
        return {"lin_q": tensors["quad_q"], "lin_k": tensors["quad_k"]}
    return {}


if __name__ == "__main__":
    main()
