import numpy as np
import pandas as pd
import pytest

from forecaster.datasets.card import Borders
from forecaster.datasets.dataset import Items, Series
from forecaster.datasets.oddities import MOST_ITEMS, MOST_SAID, Oddity, find_oddities, sentences

ROWS = 3000
HOURS = np.arange(ROWS)
TIMES = pd.date_range("2020-01-01", periods=ROWS, freq="h")
DRAW = np.random.default_rng(0)
LOAD = 50 + 10 * np.sin(HOURS * np.pi / 12) + DRAW.normal(0, 1, ROWS)


def find(values, train=2100, validation=2400):
    rows, steps = np.asarray(values, float)[:, None], TIMES[: len(values)]
    series = Series(rows, steps, ("load",), "h", "here")
    return find_oddities(series, Borders(train, validation, len(values)))


def panel(values, steps, borders):
    """The oddities of series of so many steps each."""
    count = len(values) // steps
    items = Items([*map(str, range(count))], np.arange(count + 1) * steps, np.zeros(count, int))
    values = np.asarray(values, float)[:, None]
    return find_oddities(Series(values, TIMES[:steps], ("y",), "h", "here", items), borders)


def changed(rows, to, values=LOAD):
    values = values.copy()
    values[rows] = to
    return values


@pytest.mark.parametrize(
    "values",
    [
        LOAD,
        LOAD.round(),
        LOAD + HOURS * 0.002,
        np.full(ROWS, np.nan),
        np.maximum(0, np.sin(HOURS * np.pi / 12)) * DRAW.uniform(0.2, 1, ROWS),  # dark at night
        np.where(HOURS // 24 % 7 == 6, 0, DRAW.gamma(3, 10, ROWS)),  # closed on one day a week
        np.where(DRAW.random(ROWS) < 0.05, DRAW.exponential(3, ROWS), 0),  # it rarely rains
        np.repeat(DRAW.random(ROWS // 50) < 0.5, 50) * 100 + DRAW.normal(size=ROWS),  # on and off
        DRAW.poisson(0.1, ROWS),
        HOURS // 100 % 30 == 7,  # true or false
        DRAW.poisson(3, ROWS) * 33,  # 99 is an ordinary value
        LOAD[:90],
    ],
)
def test_usual_data_are_no_reason_to_speak(values):
    assert find(values) == ()


def test_a_mark_of_missing_values_hides_nothing_else():
    (mark, outlier) = find(changed(2000, 500, changed([7, 8, 1500, 2999], -9999)))
    assert (mark.kind, mark.count, mark.column) == ("sentinel", 4, "load")
    assert mark.text == (
        "Column 'load': -9999 occurs 4 times, first at 2020-01-01 07:00:00, far from all "
        "other values; --missing -9999 reads it as a missing value."
    )
    assert (outlier.kind, outlier.count, outlier.where) == ("outlier", 1, str(TIMES[2000]))


def test_one_mark_is_enough_where_it_is_very_far():
    for rows, mark, kind in (
        (9, -9999, "sentinel"),
        (9, -99, "outlier"),
        ([9, 99], -99, "sentinel"),
    ):
        assert [found.kind for found in find(changed(rows, mark))] == [kind]


def test_outliers_are_single_values_and_a_new_level_is_none():
    (outlier,) = find(changed([500, 900], [200, -100]))
    assert (outlier.kind, outlier.count, outlier.where) == ("outlier", 2, str(TIMES[500]))
    assert find(LOAD + 90 * (HOURS >= 1995)) == ()


def test_a_level_that_shifts_at_a_border_is_told_with_the_part():
    drifted = LOAD + 40 * np.clip((HOURS - 2390) / 20, 0, 1)
    (shift,) = find(drifted)
    assert (shift.kind, shift.where) == ("shift", str(TIMES[2400]))
    assert "the level shifts: 100 % of the test values lie outside 38." in shift.text


def test_the_series_of_a_panel_are_looked_at_one_by_one():
    values = np.r_[LOAD, 100 * LOAD, changed([50], 500) - 1000]
    (outlier,) = panel(values, ROWS, Borders(2100, 2400, ROWS))
    assert outlier.where == f"{TIMES[50]} of '2'"
    values[2 * ROWS - 500 : 2 * ROWS] += 9999
    each = ((2100, 2400, ROWS), (2500, 2900, ROWS), (2100, 2400, ROWS))
    found = panel(values, ROWS, Borders(2500, 2900, ROWS, each))
    assert [each.kind for each in found] == ["outlier", "shift", "shift"]
    assert "in 1 of 3 series most validation values lie outside" in found[1].text
    assert found[1].where == f"{TIMES[2500]} of '1'"


def test_of_a_large_panel_some_series_are_looked_at():
    values = np.arange(30.0 * MOST_ITEMS)
    values[:10], values[10:20] = -99999, -999999  # the second is left out
    (mark,) = panel(values, 10, Borders(7, 8, 10))
    assert mark.count == 10


def test_a_part_without_values():
    (empty,) = find(changed(slice(2400, None), np.nan))
    assert (empty.kind, empty.where) == ("empty", str(TIMES[2400]))
    assert empty.text == "Column 'load': it has no value in the test steps."
    ended, begun = changed(slice(2100, None), np.nan), changed(slice(0, 2100), np.nan)
    assert panel(np.r_[ended, begun], ROWS, Borders(2100, 2400, ROWS)) == ()


def test_the_first_few_are_said_and_the_rest_counted():
    one = Oddity("outlier", "a", 1, "2020", "Column 'a': text.")
    assert sentences([one] * MOST_SAID) == [one.text] * MOST_SAID
    (rest,) = sentences([one] * 7)[MOST_SAID:]
    assert rest == "2 more such sentences: forecaster data check shows all."
