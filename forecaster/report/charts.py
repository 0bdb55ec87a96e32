"""Charts as inline SVG, without scripts or colours (the page's style sheet has the colours).

Each function returns SVG text. The XML writer escapes names and labels. `kind` is a class of the
style sheet: s0 to s7 differ by hue, `muted` is thin and grey, `dashed` is a reference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree as ET

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator
from numpy.typing import NDArray

WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 26, 40
BAR = 42
"""The height of a bar of shares, including its name."""
KINDS = 8


@dataclass(frozen=True)
class Line:
    """A curve: x and y of one length."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    kind: str


@dataclass(frozen=True)
class Point:
    """A named dot; `size` is an area in square units of the drawing."""

    name: str
    x: float
    y: float
    kind: str
    size: float = 30.0


@dataclass(frozen=True)
class Axis:
    """A direction of the drawing: its label, the values that it must show, and how.

    If `steps`, the values are whole numbers.
    """

    label: str
    low: float
    high: float
    log: bool = False
    steps: bool = False

    def ticks(self) -> list[float]:
        plain = MaxNLocator(5, integer=self.steps)
        decades = LogLocator(subs=(1.0, 2.0, 5.0), numticks=6)
        slack = 1e-9 * (self.high - self.low)
        ticks: list[float] = []
        for locator in (decades, plain) if self.log else (plain,):  # there may be no decades
            found = locator.tick_values(self.low, self.high)
            ticks = [float(t) for t in found if self.low - slack <= t <= self.high + slack]
            if len(ticks) > 1:
                break
        return ticks

    def place(self, value: float, start: float, end: float) -> float:
        """The position of a value between the pixels `start` and `end`."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return start + (end - start) * (value - low) / ((high - low) or 1)


def line_chart(
    curves: Sequence[Line],
    title: str,
    x: str,
    y: str,
    *,
    from_zero: bool = False,
    marks: Sequence[float] = (),
    band: tuple[Line, Line] | None = None,
) -> str:
    """Curves over whole numbers, the last drawn on top; `marks` are faint vertical lines.

    A curve has a gap where a value is missing (nan or None). `band` is filled between its lower and
    upper end, which are over the same numbers and known everywhere.
    """
    ends = band or ()
    xs = np.concatenate([np.asarray(curve.x, float) for curve in curves])
    ys = np.concatenate([np.asarray(curve.y, float) for curve in (*curves, *ends)])
    across = Axis(x, float(xs.min()), float(xs.max()), steps=True)
    there = ys[~np.isnan(ys)]
    up = _roomy(y, there if len(there) else np.zeros(1), from_zero=from_zero)
    svg = _frame(title, across, up)
    for mark in marks:
        if across.low <= mark <= across.high:
            place = _x(across, mark)
            _add(svg, "line", "mark", x1=place, x2=place, y1=TOP, y2=HEIGHT - BOTTOM)
    if band is not None:
        low, high = (zip(end.x, np.asarray(end.y, float).tolist(), strict=True) for end in band)
        around = " ".join(f"{_x(across, a)},{_y(up, b)}" for a, b in [*low, *reversed([*high])])
        drawn = _add(svg, "polygon", f"band {band[0].kind}", points=around)
        _add(drawn, "title", text=band[0].name)
    for curve in curves:
        pairs = zip(curve.x, np.asarray(curve.y, float).tolist(), strict=True)
        for missing, piece in groupby(pairs, key=lambda pair: math.isnan(pair[1])):
            if not missing:
                points = " ".join(f"{_x(across, a)},{_y(up, b)}" for a, b in piece)
                drawn = _add(svg, "polyline", f"curve {curve.kind}", points=points)
                _add(drawn, "title", text=curve.name)
    return _text(svg)


def scatter_chart(points: Sequence[Point], title: str, x: str, y: str) -> str:
    """Named dots on a logarithmic x; a name is drawn beside its dot if there is room."""
    xs, ys = np.array([p.x for p in points]), np.array([p.y for p in points])
    spread = math.log(xs.max() / xs.min()) or 1.0
    across = Axis(
        x,
        float(xs.min() * math.exp(-0.06 * spread)),
        float(xs.max() * math.exp(0.2 * spread)),
        True,
    )
    up = _roomy(y, ys)
    svg = _frame(title, across, up)
    taken: list[tuple[float, float, float]] = []
    for point in points:
        at, height = _x(across, point.x), _y(up, point.y)
        radius = round(math.sqrt(point.size / math.pi), 1)
        dot = _add(svg, "circle", f"dot {point.kind}", cx=at, cy=height, r=radius)
        _add(dot, "title", text=f"{point.name}: {x} {point.x:.4g}, {y} {point.y:.4g}")
        name = _free_place(point.name, at, height, radius, taken)
        if name is not None:
            _add(svg, "text", "name", text=point.name, x=name[0], y=name[1])
    return _text(svg)


def _free_place(
    name: str, x: float, y: float, radius: float, taken: list[tuple[float, float, float]]
) -> tuple[float, float] | None:
    """The start of a dot's name: right, left, below or above the dot; None without room.

    `taken` holds the positions of names, (left, right, height), and gets this one.
    """
    wide = 6.0 * len(name)
    beside, middle = radius + 3, x - wide / 2
    for left, height in (
        (x + beside, y + 3.5),
        (x - beside - wide, y + 3.5),
        (middle, y + beside + 8),
        (middle, y - beside - 1),
    ):
        inside = left >= LEFT and left + wide <= WIDTH and TOP < height < HEIGHT - BOTTOM
        if inside and all(
            abs(height - other) > 10 or left > end or left + wide < begin
            for begin, end, other in taken
        ):
            taken.append((left, left + wide, height))
            return round(left, 1), round(height, 1)
    return None


def share_chart(
    bars: Sequence[tuple[str, Sequence[tuple[str, float]]]], title: str, kinds: Mapping[str, str]
) -> str:
    """Bars by name, one below the other, each made of named shares that sum to 1, in their order.

    `kinds` has the kinds of shares by name; the others are `muted`. A share of 5 % or more shows
    its percentage.
    """
    svg = ET.Element(
        "svg",
        {"viewBox": f"0 0 {WIDTH} {BAR * len(bars) + 6}", "role": "img", "aria-label": title},
    )
    for row, (bar, shares) in enumerate(bars):
        top, left = BAR * row + 16, 2.0
        _add(svg, "text", "name", text=bar, x=left, y=top - 4)
        for name, share in shares:
            wide = share * (WIDTH - 4)
            kind = kinds.get(name, "muted")
            box = _add(svg, "rect", f"share {kind}", x=round(left, 1), y=top,
                       width=round(wide, 1), height=BAR - 22)  # fmt: skip
            _add(box, "title", text=f"{name}: {share:.1%}")
            if share >= 0.05:
                _add(svg, "text", "inside middle", text=f"{100 * share:.0f} %",
                     x=round(left + wide / 2, 1), y=top + BAR / 2 - 7)  # fmt: skip
            left += wide
    return _text(svg)


def _roomy(label: str, values: NDArray[np.float64], from_zero: bool = False) -> Axis:
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return Axis(label, 0.0 if from_zero else low - room, high + room)


def _frame(title: str, across: Axis, up: Axis) -> ET.Element:
    svg = ET.Element(
        "svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": title}
    )
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for tick in up.ticks():
        place = _y(up, tick)
        _add(svg, "line", "grid", x1=LEFT, x2=right, y1=place, y2=place)
        _add(svg, "text", "tick end", text=f"{tick:.6g}", x=LEFT - 6, y=round(place + 4, 1))
    for tick in across.ticks():
        place = _x(across, tick)
        _add(svg, "line", "grid", x1=place, x2=place, y1=bottom, y2=bottom + 4)
        _add(svg, "text", "tick middle", text=f"{tick:.6g}", x=place, y=bottom + 17)
    _add(svg, "text", "label middle", text=across.label, x=(LEFT + right) / 2, y=HEIGHT - 6)
    _add(svg, "text", "label", text=up.label, x=2, y=12)
    return svg


def _x(axis: Axis, value: float) -> float:
    return round(axis.place(value, LEFT, WIDTH - RIGHT), 1)


def _y(axis: Axis, value: float) -> float:
    return round(axis.place(value, HEIGHT - BOTTOM, TOP), 1)


def _add(
    parent: ET.Element, name: str, kind: str = "", text: str | None = None, **attributes: object
) -> ET.Element:
    own = {"class": kind} if kind else {}
    child = ET.SubElement(parent, name, own | {k: str(v) for k, v in attributes.items()})
    child.text = text
    return child


def _text(svg: ET.Element) -> str:
    return ET.tostring(svg, encoding="unicode", short_empty_elements=True)
