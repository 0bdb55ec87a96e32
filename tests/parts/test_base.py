"""How parts handle gaps."""

import pytest
import torch
from torch import nan

from forecaster.parts.base import filled


@pytest.mark.parametrize(
    ("values", "season", "found"),
    [
        ([1, 2, 3, nan, 5], 1, [1, 2, 3, 3, 5]),  # not the mean
        ([10, 20, 30, nan], 1, [10, 20, 30, 30]),
        ([nan, nan, 3, 4], 1, [3, 3, 3, 4]),
        ([nan, nan], 1, [0, 0]),
        ([0, 5, 10, 15, 20, nan], 2, [0, 5, 10, 15, 20, 20]),  # 20 and the mean change from 10
        ([0, 5, 0, 5, 0, nan], 2, [0, 5, 0, 5, 0, 5]),
        ([100, 105, 0, 5, 0, nan], 2, [100, 105, 0, 5, 0, 0 + 55 - 100 / 3]),
        ([0, nan, 2, nan], 2, [0, 0, 2, 2]),  # no value was seen at that place
        ([7, nan], 5, [7, 7]),
    ],
)
def test_a_gap_follows_the_value_before_it(values, season, found):
    given = torch.tensor(values)
    got = filled(given.nan_to_num(), ~given.isnan(), season)
    torch.testing.assert_close(got, torch.tensor(found, dtype=given.dtype))
