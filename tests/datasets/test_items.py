import numpy as np
import pytest

from forecaster.datasets.items import Items


def test_parts_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="2 names, 2 bounds and 1 places"):
        Items(("a", "b"), np.array([0, 3]), np.array([0]))
