from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecaster.datasets.items import Items
from forecaster.datasets.seasons import candidates, infer_seasons, mean_correlation
from forecaster.datasets.series import Series


def test_the_natural_cycles_of_a_step():
    cycles = {
        "s": (60, 3600, 86_400), "15min": (96, 672), "5h": (), "D": (7, 365), "B": (5, 261),
        "W-SUN": (52,), "2W-SUN": (26,), "2MS": (6,), "QS-JAN": (4,), "YE-DEC": (),
    }  # fmt: skip
    assert {freq: candidates(freq) for freq in cycles} == cycles


def series(values, freq="h", items=None):
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    times = pd.date_range("2020", periods=len(values), freq=freq)
    names = tuple(str(column) for column in range(values.shape[1]))
    return Series(values, times, names, freq, "here", items)


STEPS = np.arange(2000)
NOISE = np.random.default_rng(0).normal(size=2000)
DAY, WEEK = np.sin(STEPS * np.pi / 12), 2 * (STEPS // 24 % 7 > 4)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (DAY + 0.5 * NOISE, (24,)),
        (DAY + WEEK + 0.5 * NOISE, (24, 168)),
        (WEEK + 0.5 * NOISE, (168,)),
        (NOISE, (1,)),
        (STEPS, (1,)),
        (np.ones(2000), (1,)),
        (STEPS / 10 + DAY, (24,)),
        (1e-310 * (3 + DAY + 0.5 * NOISE), (24,)),
        (np.where(STEPS == 700, 1e300, DAY), (1,)),
        (np.where(np.arange(2000) % 5 == 0, np.nan, DAY + 0.5 * NOISE), (24,)),
        (DAY[:68], (1,)),
        (DAY[:69], (24,)),
    ],
)
def test_cycles_are_kept_where_they_show(values, expected):
    assert infer_seasons(series(values), 1) == expected


def test_only_the_first_part_and_the_targets_count():
    late = np.where(STEPS < 1400, NOISE, 9 * DAY)
    assert infer_seasons(series(np.stack([late, DAY], axis=1)), 1) == (1,)


def test_a_panel_is_sampled_and_its_series_are_cut_at_the_same_time():
    items = Items(tuple("abcd"), np.arange(5) * 500, np.zeros(4, int))
    assert infer_seasons(series(DAY + NOISE, items=items), 1) == (24,)
    values = np.concatenate([NOISE[:1000], DAY[:299], [1.0]])
    items = Items(("a", "late", "last"), np.array([0, 1000, 1299, 1300]), np.array([0, 701, 999]))
    late = series(values, items=items)
    assert infer_seasons(replace(late, times=late.times[:1000]), 1) == (1,)


def draw(share):
    """Two columns with one season, whose deviations from it are shared to this degree."""
    generator = np.random.default_rng(0)
    common, own = generator.normal(size=(2000, 1)), generator.normal(size=(2000, 2))
    return 10 * DAY[:, None] + np.sqrt(share) * common + np.sqrt(1 - share) * own


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_columns_hang_together_beyond_the_season_that_all_share(share):
    values = draw(share)
    assert mean_correlation(values, (24, 168)) == pytest.approx(share, abs=0.08)
    values = values * [1, -1]
    values[:900, 0] = np.nan
    assert mean_correlation(values, (24,)) == pytest.approx(share, abs=0.08)
    for other in ((), (1999,)):  # of the latter no four cycles fit in
        assert mean_correlation(draw(0.0), other) > 0.9


def test_columns_that_are_constant_or_alone_do_not_hang_together():
    values = np.concatenate([draw(0.5), np.full((2000, 1), 3.0)], axis=1)
    assert mean_correlation(values, (24,)) == mean_correlation(values[:, :2], (24,))
    assert mean_correlation(values[:, 1:], (24,)) is None
    values[1000:, 0] = values[:1000, 1] = np.nan
    assert mean_correlation(values, (24,)) is None
