"""The effects of inputs known ahead, on series whose effects are known."""

import json

import numpy as np
import pytest

from forecaster.datasets.effects import BEYOND, LASTING, Effects, Term, recent_mean
from forecaster.datasets.items import Items

DAY = 24


def weather(rows, seed=0):
    """A daily wave with weather that lasts for hours, standardised."""
    random = np.random.default_rng(seed)
    found = np.zeros(rows)
    for row in range(1, rows):
        found[row] = 0.8 * found[row - 1] + random.normal()
    found += 3 * np.sin(np.arange(rows) * 2 * np.pi / DAY)
    return (found - found.mean()) / found.std()


def load(rows, seed=0):
    return np.sin(np.arange(rows) * 2 * np.pi / DAY) + np.random.default_rng(seed + 1).normal(
        0, 0.1, rows
    )


def fit(target, *covariates, items=None):
    items = items or Items.single(len(target))
    table, known = target.reshape(len(target), -1), np.stack(covariates, axis=1)
    return Effects.fit(table, known, items, items.lengths, (DAY, 7 * DAY), 96)


def moved(effects, known, by, column=0):
    """The mean change of the targets when a covariate is `by` more in the last day."""
    other = known.copy()
    other[-DAY:, column] += by
    change = effects.shift(other) - effects.shift(known)
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


@pytest.mark.parametrize(("shape", "truth"), [("line", -0.8), ("bend", None), ("delay", None)])
def test_known_effects_are_found(shape, truth):
    rows = 120 * DAY
    known = weather(rows)
    if shape == "line":
        effect = -0.8 * known
    elif shape == "bend":
        effect = np.maximum(0, 0.3 - known)
    else:
        effect = -0.8 * recent_mean(known, 6.0, 30)
    found = fit(load(rows) + effect, known)
    other = known.copy()
    other[-DAY:] += 0.5
    if shape == "bend":
        truth = (np.maximum(0, 0.3 - other) - np.maximum(0, 0.3 - known))[-DAY:].mean()
    elif shape == "delay":
        truth = -0.8 * (recent_mean(other, 6.0, 30) - recent_mean(known, 6.0, 30))[-DAY:].mean()
    else:
        truth = -0.8 * 0.5
    assert moved(found, known[:, None], 0.5) == pytest.approx(truth, rel=0.1)
    (told,) = found.found
    assert told.determined
    if shape == "line":
        assert [each.knot for each in found.terms] == [None]
        assert abs(told.slope[0] + 0.8) < 3 * told.slope_error[0]
    if shape == "delay":
        assert 4 <= told.lasts <= 8


def test_what_moves_with_the_calendar_alone_is_not_determined():
    rows = 60 * DAY
    clock = np.sin(np.arange(rows) * 2 * np.pi / DAY)
    found = fit(load(rows) - 2 * clock, clock, np.zeros(rows), weather(rows))
    assert [each.determined for each in found.found] == [False, False, True]
    assert {term.covariate for term in found.terms} <= {2}


def test_an_input_without_effect_is_not_used():
    found = fit(load(60 * DAY), weather(60 * DAY))
    assert found.terms == ()
    (told,) = found.found
    assert told.determined
    assert abs(told.slope[0]) < 3 * told.slope_error[0]


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
    apart = [found.shift(part[:, None]) for part in np.split(known, [lengths[0]])]
    assert np.array_equal(found.shift_table(known[:, None], items), np.concatenate(apart))


def test_only_the_counted_rows_are_read():
    rows = 60 * DAY
    known, target = weather(rows), load(rows)
    target = target + known
    items = Items.single(rows)

    def until(table):
        return Effects.fit(table[:, None], known[:, None], items, [40 * DAY], (DAY,), 96)

    other = target.copy()
    other[40 * DAY :] = 1e6
    assert until(other) == until(target)


def test_beyond_the_training_range_the_slope_is_damped():
    effects = Effects((Term(0),), ((2.0,),), (-1.0,), (1.0,), ())
    assert effects.shift(np.array([[0.5], [3.0]]))[:, 0].tolist() == [1.0, 2 + 4 * BEYOND]


def test_few_rows_determine_nothing():
    found = fit(load(20), weather(20))
    assert found.terms == ()
    assert not found.found[0].determined


def test_json_keeps_all():
    rows = 60 * DAY
    known = weather(rows)
    found = fit(load(rows) - recent_mean(known, 6.0, int(6 * LASTING)), known)
    assert found.terms
    assert Effects.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    with pytest.raises(ValueError, match="row of weights"):
        Effects.from_dict({**found.to_dict(), "weights": []})
