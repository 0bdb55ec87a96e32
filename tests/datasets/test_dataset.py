import dataclasses
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.dataset import Dataset, Items, Series
from forecaster.datasets.reading import Reading

TIMES = pd.date_range("2020", periods=3, unit="us")
SERIES = Series(np.arange(6.0).reshape(3, 2), TIMES, ("a", "b"), "D", "x")


def test_the_digest_is_of_all_columns_whichever_are_used():
    used = SERIES.select(["a"])
    dataset = Dataset("x", Reading(time="day"), used, ("a",), "S", "a", (), {}, whole=SERIES)
    assert dataset.digest == SERIES.digest != used.digest
    assert replace(dataset, whole=None).digest == used.digest


def test_parts_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="2 names, 2 bounds and 1 places"):
        Items(("a", "b"), np.array([0, 3]), np.array([0]))


VALUES = np.array([[row, row + 0.5] for row in range(6)])
TIMES = pd.date_range("2020-01-01", periods=6, freq="h", unit="us")


def base_series():
    return Series(VALUES.copy(), TIMES, ("a", "b"), "h", "the history")


def test_the_digest_tells_values_stamps_and_names_apart():
    base = base_series()
    others = [
        dataclasses.replace(base, values=VALUES + 1e-9 * np.eye(6, 2, -4)),
        dataclasses.replace(base, times=base.times + pd.Timedelta(hours=1)),
        dataclasses.replace(base, columns=("a", "c")),
        base.select(["a"]),
        base.select(["b", "a"]),
    ]
    assert len({base.digest, *(series.digest for series in others)}) == 1 + len(others)
    assert dataclasses.replace(base, source="elsewhere").digest == base.digest
    assert base.digest.startswith("sha256:")


def test_select_takes_columns_by_name():
    series = base_series().select(["b"])
    assert series.columns == ("b",)
    assert (series.values == VALUES[:, 1:]).all()
    with pytest.raises(DataError, match=r"column 'c' not found\. Expected 'a', 'c'; got 'a', 'b'"):
        base_series().select(["a", "c"])


def test_a_covariate_known_ahead_is_complete():
    series = base_series()
    chosen = series.with_known(["a"], ["b"])
    assert (chosen.columns, chosen.known_columns) == (("a",), ("b",))
    series.values[2, 1] = np.nan
    with pytest.raises(DataError, match="the history, row 3, column 'b': no value, but what is"):
        series.with_known(["a"], ["b"])


def test_the_rows_before_a_step_and_the_items_that_have_any():
    times = pd.date_range("2026-01-01", periods=6, freq="D")
    items = Items(("a", "b", "c"), np.array([0, 4, 6, 8]), np.array([0, 2, 4]))
    values = np.arange(8.0)[:, None]
    static = {"size": np.array([1, 2, 3])}
    panel = Series(values, times, ("y",), "D", "x", items, values, ("k",), static)
    found = panel.before(4)
    assert found.values[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.known.tolist() == found.values.tolist()
    places = (["a", "b"], [0, 4, 6], [0, 2])
    assert ([*found.items.names], *map(list, (found.items.bounds, found.items.places))) == places
    assert found.static["size"].tolist() == [1, 2]
    assert len(found.times) == 4
    assert panel.before(3).values[:, 0].tolist() == [0, 1, 2, 4]
    single = Series(values, times, ("y",), "D", "x").before(2)
    assert (len(single.values), len(single.times)) == (2, 2)
