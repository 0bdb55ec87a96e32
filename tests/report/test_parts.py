import numpy as np

from forecaster.evaluate.lags import LagProfile
from forecaster.report.parts import (
    Entry,
    example_chart,
    figure,
    frontier,
    frontier_chart,
    lag_chart,
    share_section,
    step_chart,
)
from tests.bundles import blended, unsaved


def test_the_frontier_is_what_no_other_beats_in_all_three() -> None:
    entries = [
        Entry("fast", 0.5, 1.0, 5.0),
        Entry("good", 0.3, 9.0, 9.0),
        Entry("lean", 0.6, 2.0, 1.0),
        Entry("beaten", 0.5, 1.5, 5.0),
        Entry("twin of fast", 0.5, 1.0, 5.0),
    ]
    assert frontier(entries) == ["fast", "good", "lean", "twin of fast"]
    chart = frontier_chart("here", entries)
    assert "at once: fast, good, lean, twin of fast." in chart.caption
    assert "the largest 9 MiB" in chart.caption
    assert chart.svg.count('class="dot s0"') == 4
    assert chart.svg.count('class="dot muted"') == 1
    assert len(chart.legend) == 2


def test_without_a_memory_the_other_two_count() -> None:
    entries = [Entry("a", 0.5, 1.0, None), Entry("b", 0.6, 2.0, None)]
    assert frontier(entries) == ["a"]
    assert "memory" not in frontier_chart("here", entries).caption


def test_steps_colour_the_bold_names_and_dash_the_floor() -> None:
    models = {"a": [1.0, 2.0], "b": [2.0, 3.0], "c": [1.5, 1.5]}
    chart = step_chart("here", models, ("naive", [3.0, 3.0]), ["c"])
    assert chart.legend == [("s0", "c"), ("muted", "the others"), ("dashed", "naive")]
    assert chart.svg.count("curve muted") == 2
    assert chart.svg.count("curve s0") == chart.svg.count("curve dashed") == 1


def test_the_heaviest_parts_of_all_models_have_a_colour() -> None:
    runs = [
        ("a", blended(unsaved(), network=0.25, cycle=0.75)),
        ("b", blended(unsaved(), cycle=0.5, last=0.5)),
    ]
    section = share_section(runs, ["a note"])
    (chart,) = section.charts
    assert chart.legend == [("s0", "cycle mean"), ("s1", "last value"), ("s2", "network")]
    assert chart.svg.count('"share ') == 4
    assert [table.caption for table in section.tables] == ["a", "b"]
    assert section.tables[0].rows[2] == (
        "network", "25.0%", "0.1250", "0.5000", "–", "attention prob"
    )  # fmt: skip


def test_an_example_joins_truth_to_its_past() -> None:
    chart = example_chart(
        "t", "c", np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([2.5, 2.6]), "°C"
    )
    assert [name for _, name in chart.legend] == ["history", "truth", "forecast"]
    curves = [part.split('"')[0] for part in chart.svg.split('points="')[1:]]
    past, truth, forecast = (curve.split() for curve in curves)
    assert truth[0] == past[-1]
    assert [point.split(",")[0] for point in forecast] == [
        point.split(",")[0] for point in truth[1:]
    ]


def test_a_lag_profile_in_words() -> None:
    matrix = np.zeros((2, 13))
    matrix[0, 5], matrix[1, 11], matrix[1, 2] = 0.5, 0.2, 0.3
    profile = LagProfile(matrix, 8)
    chart = lag_chart("a model", profile, 6)
    assert chart is not None
    assert chart.caption == (
        "a model: the peak is at lag 6; multiples of 6 are 15% of the lags and hold 70% of the "
        "whole."
    )
    assert chart.svg.count('class="mark"') == 2
    assert lag_chart("blind", LagProfile(np.zeros((2, 13)), 8), 6) is None


def test_a_season_longer_than_all_lags() -> None:
    chart = lag_chart("a model", LagProfile(np.full((1, 4), 0.25), 8), 24)
    assert chart is not None
    assert "multiples of 24 are 0% of the lags and hold 0% of the whole" in chart.caption


def test_a_number_may_be_unknown() -> None:
    assert figure(None, ".1f") == "unknown"
    assert figure(1.25, ".1f") == "1.2"
