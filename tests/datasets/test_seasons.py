import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from forecaster.datasets.dataset import Dataset, Items, Series
from forecaster.datasets.reading import Reading
from forecaster.datasets.seasons import candidates, infer_seasons, mean_correlation, measure


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


LONG = np.random.default_rng(0).normal(size=6000)
DAYS = np.sin(2 * np.pi * np.arange(6000) / 24)


def dataset(values, known=None, items=None, seasons=(1,), freq="h"):
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    steps = len(values) if items is None else int(max(items.places + items.lengths))
    columns = tuple(f"c{place}" for place in range(values.shape[1]))
    ahead = np.stack([*known.values()], axis=1).astype(float) if known else None
    times = pd.date_range("2021", periods=steps, freq=freq)
    panel = Series(values, times, columns, freq, "here", items, ahead, tuple(known or ()))
    reading = Reading(freq=freq, seasons=seasons, targets=columns)
    return Dataset("mine", reading, panel, columns, "M", columns[0], (), {})


def test_one_series():
    values = np.stack([DAYS, 2 * DAYS + 0.5 * LONG, LONG[::-1]], axis=1)
    facts = measure(dataset(values, {"load": LONG}))
    assert (facts.name, facts.freq, facts.steps, facts.rows) == ("mine", "h", 6000, 4200)
    assert (facts.seasons[0], facts.cycles) == (24, 175)
    assert (facts.series, facts.targets, facts.known) == (1, 3, ("load",))
    assert 0 < facts.together < 0.1
    assert facts.events == ()
    assert json.loads(json.dumps(asdict(facts)))["known"] == ["load"]


def test_the_last_rows_are_not_looked_at():
    values, known = DAYS.copy(), np.zeros(6000)
    before = measure(dataset(values, {"promo": known}))
    values[4200:], known[4200:4300] = 1e3 * LONG[4200:], 1
    assert measure(dataset(values, {"promo": known})) == before


def test_a_season_that_somebody_named_counts_if_it_shows():
    wave = (np.arange(6000) % 10 == 0) + 0.1 * LONG
    for values, named, found in ((wave, (1,), ()), (wave, (10,), (10,)), (LONG, (10,), ())):
        assert measure(dataset(values, seasons=named)).seasons == found


def test_rare_events_and_holidays():
    promo, often = np.zeros(6000), np.zeros(6000)
    promo[[7, 8, 9, 500, 4199]] = 1, 2, 1, -3, 1
    often[::10] = 1
    facts = measure(dataset(DAYS, {"promo": promo, "often": often, "never": 0 * promo}))
    assert facts.events == ({"name": "promo", "share": 5 / 4200, "count": 3},)
    facts = measure(dataset(DAYS[:2000], freq="D"), "DE")
    (event,) = facts.events
    assert (facts.rows, event["name"]) == (1400, "public holidays of DE")
    assert 0.02 < event["share"] < 0.03
    assert event["count"] < event["share"] * 1400, "days in a row are one event"


def test_a_panel():
    items = Items(("a", "b", "c"), np.array([0, 1000, 1500, 2000]), np.array([0, 200, 900]))
    promo = np.zeros(2000)
    promo[[699, 1000, 1499, 1500]] = 1
    values = np.concatenate([DAYS[:1000], DAYS[:500], DAYS[:500]])
    facts = measure(dataset(values, {"promo": promo}, items))
    assert (facts.steps, facts.rows, facts.series) == (1400, 979, 3)
    assert (facts.targets, facts.together) == (1, None)
    assert facts.events == ({"name": "promo", "share": 4 / (979 + 500 + 79), "count": 4},)


def test_a_few_rows():
    facts = measure(dataset(LONG[:5], {"promo": np.zeros(5)}))
    assert (facts.rows, facts.seasons, facts.events) == (3, (), ())
    assert measure(replace(dataset(LONG[:1]))).rows == 0
