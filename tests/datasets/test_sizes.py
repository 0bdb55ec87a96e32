import pytest

from forecaster.datasets import Borders
from forecaster.datasets.sizes import FEWEST, sizes
from forecaster.errors import DataError


def test_a_long_series_is_split_as_the_benchmarks_do():
    found = sizes(26304, 96, (24, 168), None, "x.csv")
    assert found.borders == Borders(18412, 21044, 26304)
    assert found.past == 336  # two weeks, more than twice the horizon


@pytest.mark.parametrize(
    ("steps", "horizon", "seasons", "past"),
    [
        (700, 30, (7,), 56),  # twice the horizon, in whole weeks
        (36, 3, (12,), 12),  # three years of months
        (1000, 5, (1,), 10),
        (120, 12, (12,), 24),
    ],
)
def test_the_look_back_is_whole_cycles_that_fit(steps, horizon, seasons, past):
    found = sizes(steps, horizon, seasons, None, "x.csv")
    assert found.past == past
    assert found.borders.train - found.past - horizon + 1 >= FEWEST
    assert found.borders.validation - found.borders.train >= horizon
    assert found.borders.test - found.borders.validation >= horizon


@pytest.mark.parametrize("past", [None, 5])
def test_the_longest_horizon_that_fits_is_named_and_fits(past):
    with pytest.raises(DataError, match=r"36 steps are too few .* horizon of 12") as caught:
        sizes(36, 12, (12,), past, "x.csv")
    longest = int(str(caught.value).split("--horizon ")[1].rstrip("."))
    assert sizes(36, longest, (12,), past, "x.csv").past >= 5
    with pytest.raises(DataError):
        sizes(36, longest + 1, (12,), past, "x.csv")


def test_hopeless_lengths_get_a_plain_no():
    with pytest.raises(DataError, match=r"No horizon fits a look-back of 50; .* --lookback"):
        sizes(30, 3, (1,), 50, "x.csv")


def test_a_horizon_beyond_all_bounds_is_refused_at_once():
    with pytest.raises(DataError, match="longest horizon that fits is 123"):
        sizes(400, 10**12, (24,), None, "x.csv")
