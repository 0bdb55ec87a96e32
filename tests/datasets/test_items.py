import numpy as np
import pytest

from forecaster.datasets.items import Items


def test_parts_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="2 names, 2 bounds and 1 places"):
        Items(("a", "b"), np.array([0, 3]), np.array([0]))


def test_a_row_lies_in_an_item_at_a_step_of_the_grid():
    items = Items(("a", "b"), np.array([0, 3, 5]), np.array([2, 0]))
    assert [items.locate(row) for row in range(5)] == [(0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]
