import numpy as np
import pytest

from forecaster.datasets.items import Items


def test_lengths_are_those_of_the_runs_of_rows():
    items = Items(("a", "b"), np.array([0, 3, 10]), np.array([4, 0]))
    assert len(items) == 2
    assert items.lengths.tolist() == [3, 7]


def test_a_single_series_is_its_own_grid():
    items = Items.single(5)
    assert (items.lengths.tolist(), items.places.tolist()) == ([5], [0])


def test_parts_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="2 names, 2 bounds and 1 places"):
        Items(("a", "b"), np.array([0, 3]), np.array([0]))


def test_a_row_lies_in_an_item_at_a_step_of_the_grid():
    items = Items(("a", "b"), np.array([0, 3, 5]), np.array([2, 0]))
    assert [items.locate(row) for row in range(5)] == [(0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]
