import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from forecaster.base.errors import DataError
from forecaster.datasets import scaling
from forecaster.datasets.dataset import Items
from forecaster.datasets.scaling import Scaler

NUMBERS = st.one_of(st.just(np.nan), st.floats(-1e150, 1e150))


@settings(deadline=None)
@given(arrays.arrays(float, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=NUMBERS))
def test_a_scaler_standardises_and_its_inverse_undoes_it(values):
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        column = int(empty.argmax()) + 1
        with pytest.raises(DataError, match=f"column {column} has no value in the {len(values)} "):
            Scaler.fit(values)
        return
    scaler = Scaler.fit(values)
    scaled = scaler.transform(values)
    assert (np.isnan(scaled) == np.isnan(values)).all()
    largest = np.nanmax(np.abs(values), axis=0)
    assert (scaler.std > 0).all()
    assert (np.abs(np.nanmean(scaled, axis=0)) <= 1e-9 + 1e-12 * largest / scaler.std).all()
    off = np.abs(np.nan_to_num(scaler.inverse(scaled) - values))
    assert (off <= 1e-9 * largest + 1e-300).all()
    assert Scaler.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler
    order = list(range(values.shape[1]))[::-1]
    some = scaler.select(order).transform(values[:, order])
    assert np.array_equal(some, scaled[:, order], equal_nan=True)


def test_mean_and_population_deviation():
    values = np.random.default_rng(0).normal([5, -300, 1e6], [2, 0.1, 1e5], (101, 3))
    values[::3, 1] = np.nan
    scaler = Scaler.fit(values)
    assert scaler.mean == pytest.approx(np.nanmean(values, axis=0), rel=1e-12)
    assert scaler.std == pytest.approx(np.nanstd(values, axis=0), rel=1e-9)


def test_constant_columns_and_tiny_deviations_divide_without_overflow():
    constants = np.array([0.0, 7.25, 0.1, 1e30, 1e-30, 5e-324])
    assert Scaler.fit(np.tile(constants, (50, 1))).std.tolist() == [1.0] * 6
    tiny = np.array([[1e-30, 1e-310], [3e-30, 3e-310]])
    assert np.isfinite(Scaler.fit(tiny).transform(tiny)).all()


def test_too_large_values_are_named():
    values = np.ones((4, 2))
    values[2, 1] = 1e300
    with pytest.raises(DataError, match=r"column 2 .*1e\+300"):
        Scaler.fit(values)
    with pytest.raises(DataError, match="column 'load' cannot be standardised"):
        Scaler.fit(values, ("day", "load"))


@settings(max_examples=60, deadline=None)
@given(
    spans=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=6),
    last=st.integers(0, 20),
    past=st.integers(1, 4),
    chunk=st.sampled_from([2, 7, 1000]),
    seed=st.integers(0, 999),
)
def test_the_items_of_a_panel_are_standardised_each_by_itself(spans, last, past, chunk, seed):
    lengths, places = zip(*spans, strict=True)
    items = Items([*map(str, places)], np.cumsum([0, *lengths]), np.array(places))
    random = np.random.default_rng(seed)
    values = random.normal(50, 3, (sum(lengths), 2))
    values[random.random(values.shape) < 0.2] = np.nan
    values[:, 1] = np.where(random.random() < 0.3, 7.25, values[:, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "ROWS", chunk)
        scaler = Scaler.fit_items(values, items, last, past)
    for item, (length, place) in enumerate(spans):
        own = values[items.bounds[item] : items.bounds[item] + length]
        known = own[: max(0, last - place)]
        known = known if len(known) > 1 else own[:past]
        for column in range(2):
            seen = known[:, column][~np.isnan(known[:, column])]
            mean, std = (seen.mean(), seen.std()) if len(seen) else (0.0, 1.0)
            assert scaler.mean[item, column] == pytest.approx(mean, rel=1e-12)
            assert scaler.std[item, column] == pytest.approx(std if std > 1e-9 else 1, rel=1e-9)


def test_a_batch_takes_the_scalers_of_its_items():
    scaler = Scaler([[0, 10], [1, 20], [2, 30]], [[1, 2], [3, 4], [5, 6]])
    batch = np.zeros((2, 7, 2))
    here = scaler.at(torch.tensor([2, 0]), 3)
    assert here.inverse(batch)[:, 3].tolist() == [[2, 30], [0, 10]]
    assert here.select([1]).std.tolist() == [[[6]], [[2]]]
    one = Scaler([1.0], [2.0])
    assert one.at(None, 3) is one
