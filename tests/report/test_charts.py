from xml.etree import ElementTree as ET

import pytest

from forecaster.report.charts import (
    LEFT,
    RIGHT,
    WIDTH,
    Axis,
    Line,
    Point,
    line_chart,
    scatter_chart,
    share_chart,
)


def texts(svg: str, kind: str) -> list[str]:
    found = ET.fromstring(svg).iter("text")
    return [each.text or "" for each in found if kind in (each.get("class") or "").split()]


def places(svg: str) -> list[list[tuple[float, float]]]:
    return [
        [tuple(map(float, pair.split(","))) for pair in (curve.get("points") or "").split()]  # type: ignore[misc]
        for curve in ET.fromstring(svg).iter("polyline")
    ]


def test_a_line_goes_through_its_points() -> None:
    svg = line_chart(
        [Line("a", [0, 5, 10], [0.0, 1.0, 2.0], "s0"), Line("b", [0, 10], [2.0, 2.0], "muted")],
        "title", "x", "y", from_zero=True, marks=[5, 99],
    )  # fmt: skip
    first, second = places(svg)
    (x0, y0), (x1, y1), (x2, y2) = first
    assert (x0, x2) == (LEFT, WIDTH - RIGHT)
    assert x1 == pytest.approx((x0 + x2) / 2)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.11)
    assert y0 > y1 > y2, "up is more"
    assert [y for _, y in second] == [y2, y2]
    assert svg.count('class="mark"') == 1, "99 lies outside"
    assert texts(svg, "label") == ["x", "y"]
    assert "<title>a</title>" in svg


def test_ticks_lie_on_the_axis_and_steps_are_whole() -> None:
    assert Axis("", 1, 5, steps=True).ticks() == [1, 2, 3, 4, 5]
    assert Axis("", 0.3, 0.42).ticks() == pytest.approx([0.3, 0.325, 0.35, 0.375, 0.4])
    assert Axis("", 0.8, 30, log=True).ticks() == [1, 2, 5, 10, 20]
    assert len(Axis("", 6, 9, log=True).ticks()) >= 3, "no decade lies there"


def test_shares_fill_a_bar_and_large_ones_are_named() -> None:
    bars = [("run <a>", [("x", 0.75), ("y", 0.21), ("z", 0.04)]), ("b", [("x", 1.0)])]
    svg = share_chart(bars, "shares", {"x": "s0", "y": "s1"})
    boxes = list(ET.fromstring(svg).iter("rect"))
    assert [box.get("class") for box in boxes] == [
        "share s0",
        "share s1",
        "share muted",
        "share s0",
    ]
    first = [float(box.get("width", "")) for box in boxes[:3]]
    assert sum(first) == pytest.approx(float(boxes[3].get("width", "")), abs=0.2)
    assert first[0] / first[1] == pytest.approx(75 / 21, rel=0.01)
    assert texts(svg, "inside") == ["75 %", "21 %", "100 %"]
    assert texts(svg, "name") == ["run <a>", "b"]
    assert "<title>z: 4.0%</title>" in svg


def test_a_flat_line_and_a_single_point_have_a_place() -> None:
    assert "nan" not in line_chart([Line("a", [3, 4], [0.0, 0.0], "s0")], "", "x", "y")
    assert "nan" not in scatter_chart([Point("a", 2.0, 0.5, "s0")], "", "x", "y")


def test_dots_lie_on_a_logarithmic_axis_and_are_named() -> None:
    svg = scatter_chart(
        [Point(name, x, y, "s0") for name, x, y in (("a", 1, 3), ("b", 10, 2), ("c", 100, 1))],
        "title", "ms", "MSE",
    )  # fmt: skip
    dots = [
        (float(d.get("cx", 0)), float(d.get("cy", 0))) for d in ET.fromstring(svg).iter("circle")
    ]
    xs, ys = zip(*dots, strict=True)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1], abs=0.2)
    assert texts(svg, "name") == ["a", "b", "c"]
    assert "<title>b: ms 10, MSE 2</title>" in svg


def test_names_do_not_lie_on_each_other() -> None:
    crowd = [Point(f"name {i}", 1.0 + 1e-6 * i, 1.0, "s0") for i in range(30)]
    around = [Point("low", 0.2, 0.0, "s0"), Point("high", 5.0, 2.0, "s0")]
    svg = scatter_chart([*crowd, *around], "", "x", "y")
    assert svg.count("<circle") == 32
    boxes = [
        (float(t.get("x", 0)), float(t.get("y", 0)), 6.0 * len(t.text or ""))
        for t in ET.fromstring(svg).iter("text")
        if t.get("class") == "name"
    ]
    assert 2 + 4 <= len(boxes) < 32, "right, left, below and above"
    for i, (x, y, wide) in enumerate(boxes):
        assert x >= LEFT
        assert x + wide <= WIDTH
        assert all(abs(y - v) > 10 or x > u + w or x + wide < u for u, v, w in boxes[:i])


def test_a_line_has_gaps_where_values_are_missing() -> None:
    nan = float("nan")
    whole = line_chart([Line("a", range(5), [0.0, 1, 2, 3, 4], "s0")], "title", "x", "y")
    (points,) = places(whole)
    broken = line_chart([Line("a", range(5), [0.0, 1, nan, 3, 4], "s0")], "title", "x", "y")
    assert places(broken) == [points[:2], points[3:]]
    assert places(line_chart([Line("a", range(2), [nan, nan], "s0")], "title", "x", "y")) == []
