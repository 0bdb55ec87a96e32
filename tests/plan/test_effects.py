"""The effects of inputs known ahead, on series whose effects are known."""

import json

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from forecaster.datasets.dataset import Items
from forecaster.datasets.known import Effects, Term
from forecaster.plan import effects as module
from forecaster.plan.effects import BEYOND, LASTING, Shift, recent_mean

DAY = 24


def weather(rows, seed=0):
    """A daily wave with weather that lasts for hours, standardised."""
    noise = np.random.default_rng(seed).normal(size=rows)
    found = lfilter([1], [1, -0.8], noise) + 3 * np.sin(np.arange(rows) * 2 * np.pi / DAY)
    return (found - found.mean()) / found.std()


def load(rows, seed=0):
    noise = np.random.default_rng(seed + 1).normal(0, 0.1, rows)
    return np.sin(np.arange(rows) * 2 * np.pi / DAY) + noise


def fit(target, *covariates, items=None):
    items = items or Items.single(len(target))
    table, known = target.reshape(len(target), -1), np.stack(covariates, axis=1)
    return module.fit(table, known, items, items.lengths, (DAY, 7 * DAY), 96)


def shift(effects, known):
    """Of one stretch of rows, as a table and as a window."""
    stretch = Shift(effects)(torch.from_numpy(known))
    window = Shift(effects, steps=len(known))(torch.from_numpy(known)[None])
    torch.testing.assert_close(window[0], stretch)
    return stretch.numpy()


def moved(effects, known, by, column=0):
    """The mean change of the targets when a covariate is `by` more in the last day."""
    other = known.copy()
    other[-DAY:, column] += by
    change = shift(effects, other) - shift(effects, known)
    assert not change[:-DAY].any()
    return np.asarray(change[-DAY:].mean(axis=0))


def test_recent_mean_is_the_weighted_mean_of_what_there_is():
    values, half, memory = weather(60), 4.0, 20
    slow = []
    for step in range(60):
        ago = np.arange(min(step + 1, memory))
        weights = 0.5 ** (ago / half)
        slow.append((weights * values[step - ago]).sum() / weights.sum())
    assert recent_mean(values, half, memory) == pytest.approx(slow, abs=1e-9)


def bent(known):
    return np.maximum(0, 0.3 - known)


def late(known):
    return -0.8 * recent_mean(known, 6.0, 30)


@pytest.mark.parametrize("effect", [lambda known: -0.8 * known, bent, late])
def test_known_effects_are_found(effect):
    known = weather(120 * DAY)
    found = fit(load(120 * DAY) + effect(known), known)
    other = known.copy()
    other[-DAY:] += 0.5
    truth = (effect(other) - effect(known))[-DAY:].mean()
    assert moved(found, known[:, None], 0.5) == pytest.approx(truth, rel=0.1)
    assert found.determined == (True,)
    if effect not in (late, bent):
        assert [each.knot for each in found.terms] == [None]


def test_the_coldest_rows_have_a_slope_where_it_depends_on_the_hour():
    random, steps = np.random.default_rng(2), np.arange(500 * DAY)
    slow = 0.05 * lfilter([1], [1, -0.99], random.normal(size=len(steps)))
    year, day = steps * 2 * np.pi / 365 / DAY, (steps - 9) * 2 * np.pi / DAY
    known = slow - 1.2 * np.cos(year) + 0.5 * np.sin(day)
    known = (known - known.mean()) / known.std()
    shape = 1 + 0.4 * np.sin(day + np.pi / 12)
    found = fit(shape * (3 + bent(known)) + random.normal(0, 0.05, len(steps)), known)
    lowest = np.full((2 * DAY, 1), found.low[0])
    slope = (shift(found, lowest + 0.2) - shift(found, lowest))[-1, 0] / 0.2
    assert slope == pytest.approx(-shape.min(), rel=0.4)


def test_inputs_without_an_effect_of_their_own_are_not_used():
    rows = 60 * DAY
    clock = np.sin(np.arange(rows) * 2 * np.pi / DAY)
    found = fit(load(rows) - 2 * clock, clock, np.zeros(rows), weather(rows))
    assert found.determined == (False, False, True)
    assert {term.covariate for term in found.terms} <= {2}
    alone = fit(load(rows), weather(rows))
    assert (alone.terms, alone.determined) == ((), (True,))
    few = fit(load(20), weather(20))
    assert (few.terms, few.determined) == ((), (False,))


def test_each_target_has_its_own_effect_and_missing_values_are_left_out():
    rows = 60 * DAY
    known = weather(rows)
    target = np.stack([load(rows) + known, load(rows, 5) - 2 * known], axis=1)
    target[::50, 0] = np.nan
    found = fit(target, known)
    assert moved(found, known[:, None], 1.0) == pytest.approx([1.0, -2.0], rel=0.1)


def test_a_panel_shares_its_effects_and_no_change_crosses_its_series():
    lengths = np.array([30 * DAY, 40 * DAY])
    items = Items(["a", "b"], np.array([0, *lengths.cumsum()]), np.zeros(2, dtype=np.int64))
    known = np.concatenate([weather(lengths[0]), 50 + weather(lengths[1], 3)])
    target = np.concatenate([load(lengths[0]), 30 + load(lengths[1])])
    target += 0.5 * np.concatenate([known[: lengths[0]], known[lengths[0] :] - 50])
    found = fit(target, known, items=items)
    assert moved(found, known[-90:, None], 1.0) == pytest.approx([0.5], rel=0.15)
    apart = [shift(found, part[:, None]) for part in np.split(known, [lengths[0]])]
    table = Shift(found).table(known[:, None], items)
    np.testing.assert_array_equal(table, np.concatenate(apart).astype(np.float32))


def test_only_the_counted_rows_are_read():
    known = weather(60 * DAY)
    target = load(60 * DAY) + known

    def effects():
        items = Items.single(60 * DAY)
        return module.fit(target[:, None], known[:, None], items, [40 * DAY], (DAY,), 96)

    before = effects()
    target[40 * DAY :] = 1e6
    assert effects() == before


def test_beyond_the_training_range_the_slope_is_damped():
    effects = Effects((Term(0),), ((2.0,),), (-1.0,), (1.0,), ())
    assert shift(effects, np.array([[0.5], [3.0]]))[:, 0].tolist() == [1.0, 2 + 4 * BEYOND]


def test_json_keeps_all():
    known = weather(60 * DAY)
    found = fit(load(60 * DAY) - recent_mean(known, 6.0, int(6 * LASTING)), known)
    assert found.terms
    assert Effects.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    with pytest.raises(ValueError, match="row of weights"):
        Effects.from_dict({**found.to_dict(), "weights": []})


def test_a_series_younger_than_the_training_rows_changes_nothing():
    known = [weather(2000, seed) for seed in range(3)]
    target = [load(2000, seed) + late(own) for seed, own in enumerate(known)]
    items = Items(("a", "b", "young"), np.array([0, 2000, 4000, 6000]), np.zeros(3, np.int64))
    table, inputs = np.concatenate(target)[:, None], np.concatenate(known)[:, None]
    found = module.fit(table, inputs, items, (2000, 2000, 0), (DAY,), 96)
    both = Items(("a", "b"), np.array([0, 2000, 4000]), np.zeros(2, np.int64))
    assert found.terms
    assert found == module.fit(table, inputs, both, (2000, 2000), (DAY,), 96)
