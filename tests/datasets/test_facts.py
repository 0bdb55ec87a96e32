import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd

from forecaster.datasets.dataset import Dataset
from forecaster.datasets.facts import measure
from forecaster.datasets.items import Items
from forecaster.datasets.reading import Reading
from forecaster.datasets.series import Series

STEPS = np.arange(6000)
NOISE = np.random.default_rng(0).normal(size=6000)
DAY = np.sin(2 * np.pi * STEPS / 24)


def dataset(values, known=None, items=None, seasons=(1,), freq="h"):
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    steps = len(values) if items is None else int(max(items.places + items.lengths))
    columns = tuple(f"c{place}" for place in range(values.shape[1]))
    ahead = np.stack([*known.values()], axis=1).astype(float) if known else None
    times = pd.date_range("2021", periods=steps, freq=freq)
    series = Series(values, times, columns, freq, "here", items, ahead, tuple(known or ()))
    reading = Reading(freq=freq, seasons=seasons, targets=columns)
    return Dataset("mine", reading, series, columns, "M", columns[0], (), {})


def test_one_series():
    values = np.stack([DAY, 2 * DAY + 0.5 * NOISE, NOISE[::-1]], axis=1)
    facts = measure(dataset(values, {"load": NOISE}))
    assert (facts.name, facts.freq, facts.steps, facts.rows) == ("mine", "h", 6000, 4200)
    assert (facts.seasons[0], facts.cycles) == (24, 175)
    assert (facts.series, facts.targets, facts.known) == (1, 3, ("load",))
    assert 0 < facts.together < 0.1
    assert facts.events == ()
    assert json.loads(json.dumps(asdict(facts)))["known"] == ["load"]


def test_the_last_rows_are_not_looked_at():
    values, known = DAY.copy(), np.zeros(6000)
    before = measure(dataset(values, {"promo": known}))
    values[4200:], known[4200:4300] = 1e3 * NOISE[4200:], 1
    assert measure(dataset(values, {"promo": known})) == before


def test_a_season_that_somebody_named_counts_if_it_shows():
    wave = (STEPS % 10 == 0) + 0.1 * NOISE
    for values, named, found in ((wave, (1,), ()), (wave, (10,), (10,)), (NOISE, (10,), ())):
        assert measure(dataset(values, seasons=named)).seasons == found


def test_rare_events_and_holidays():
    promo, often = np.zeros(6000), np.zeros(6000)
    promo[[7, 8, 9, 500, 4199]] = 1, 2, 1, -3, 1
    often[::10] = 1
    facts = measure(dataset(DAY, {"promo": promo, "often": often, "never": 0 * promo}))
    assert facts.events == ({"name": "promo", "share": 5 / 4200, "count": 3},)
    facts = measure(dataset(DAY[:2000], freq="D"), "DE")
    (event,) = facts.events
    assert (facts.rows, event["name"]) == (1400, "public holidays of DE")
    assert 0.02 < event["share"] < 0.03
    assert event["count"] < event["share"] * 1400, "days in a row are one event"


def test_a_panel():
    items = Items(("a", "b", "c"), np.array([0, 1000, 1500, 2000]), np.array([0, 200, 900]))
    promo = np.zeros(2000)
    promo[[699, 1000, 1499, 1500]] = 1
    values = np.concatenate([DAY[:1000], DAY[:500], DAY[:500]])
    facts = measure(dataset(values, {"promo": promo}, items))
    assert (facts.steps, facts.rows, facts.series) == (1400, 979, 3)
    assert (facts.targets, facts.together) == (1, None)
    assert facts.events == ({"name": "promo", "share": 4 / (979 + 500 + 79), "count": 4},)


def test_a_few_rows():
    facts = measure(dataset(NOISE[:5], {"promo": np.zeros(5)}))
    assert (facts.rows, facts.seasons, facts.events) == (3, (), ())
    assert measure(replace(dataset(NOISE[:1]))).rows == 0
