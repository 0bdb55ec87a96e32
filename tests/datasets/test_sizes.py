import numpy as np
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.card import Borders
from forecaster.datasets.dataset import Items
from forecaster.datasets.sizes import panel_sizes, sizes


def test_the_look_back_is_whole_cycles_that_fit():
    for steps, horizon, seasons, past in (
        (26304, 96, (24, 168), 336),  # two weeks, more than twice the horizon
        (700, 30, (7,), 56),  # twice the horizon, in whole weeks
        (36, 3, (12,), 12),  # three years of months
        (1000, 5, (1,), 10),
    ):
        borders, found = sizes(steps, horizon, seasons, None, "x.csv")
        train, validation, test = borders.train, borders.validation, borders.test
        assert (found, test) == (past, steps)
        assert train >= found + horizon
        assert min(validation - train, test - validation) >= horizon
        assert steps <= 1000 or (train, validation) == (18412, 21044)


@pytest.mark.parametrize("past", [None, 5])
def test_the_longest_horizon_that_fits_is_named_and_fits(past):
    with pytest.raises(DataError, match=r"36 steps are too few .* horizon of 12") as caught:
        sizes(36, 12, (12,), past, "x.csv")
    longest = int(str(caught.value).split("--horizon ")[1].rstrip("."))
    assert sizes(36, longest, (12,), past, "x.csv")[1] >= 5
    with pytest.raises(DataError):
        sizes(36, longest + 1, (12,), past, "x.csv")


def test_hopeless_lengths_get_a_plain_no():
    for season, past, way in ((1, 50, "--lookback auto"), (24, None, "a shorter --season")):
        match = f"No horizon fits a look-back of {past or season}.*{way}"
        with pytest.raises(DataError, match=match):
            sizes(30, 3, (season,), past, "x.csv")
    with pytest.raises(DataError, match="longest horizon that fits is 125"):
        sizes(400, 10**12, (24,), None, "x.csv")  # at once


def panel(lengths, places):
    names = [str(number) for number in range(len(lengths))]
    return Items(names, np.r_[0, np.cumsum(lengths)], np.array(places))


def cut(items, horizon=10, split=None, past=None):
    steps = int((items.places + items.lengths).max())
    return panel_sizes(items, steps, horizon, (7,), past, split, "x.csv")


def test_series_of_different_years_are_cut_by_their_own_lengths():
    items = panel([365, 365, 366, 365], [0, 365, 730, 1096])
    found, why = cut(items)
    assert "1 of 4 series would begin after the training part: each series is cut by" in why
    assert found[0] == Borders(
        1096 + 255, 1096 + 292, 1461,
        ((255, 292, 365), (620, 657, 730), (730 + 256, 730 + 293, 1096), (1351, 1388, 1461)),
    )  # fmt: skip
    assert found[1] == 14
    assert cut(items, split="series") == (found, "")
    forced, why = cut(items, split="calendar")
    assert (forced[0].train, why) == (1022, "")


def test_a_panel_is_cut_at_one_date_where_that_gives_all_parts():
    found, why = cut(panel([200, 140, 150], [0, 60, 0]))
    assert (found, why) == (sizes(200, 10, (7,), None, "x.csv"), "")
    assert cut(panel([400, 100, 100, 100], [0, 0, 0, 0]))[1] == ""
    late = panel([100, 100, 100], [0, 0, 100])
    assert "the validation part would hold no window of 50 + 12 steps" in cut(late, 12, past=50)[1]
    common, why = cut(late, 12, past=60)
    assert (common[0].each, why) == ((), ""), "their own lengths are too short as well"


def test_the_look_back_fits_most_series_of_their_own_lengths():
    items = panel([100] * 5 + [700, 960, 20, 5], [0] * 9)
    found, _ = cut(items, horizon=20, split="series")
    assert found[1] == 21, "two thirds of what 70 of 100 steps leave beside the horizon"
    counts = [items.windows(21, 20, *steps)[1] for steps in found[0].parts.values()]
    assert [int((count > 0).sum()) for count in counts] == [7, 7, 7]
    with pytest.raises(DataError, match=r"x.csv, its longest series: 9 steps are too few"):
        cut(panel([9, 8, 7, 5], [0, 5, 5, 5]), horizon=4, split="series", past=1)
