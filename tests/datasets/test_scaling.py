import json

import numpy as np
import pytest
import torch

from forecaster.base.errors import DataError
from forecaster.datasets import Items, Scaler, scaling


@pytest.fixture
def values():
    return np.random.default_rng(0).normal([5, -300, 1e6], [2, 0.1, 1e5], (101, 3))


def test_mean_and_population_deviation(values):
    scaler = Scaler.fit(values)
    assert scaler.mean == pytest.approx(values.mean(0), rel=1e-12)
    assert scaler.std == pytest.approx(values.std(0, ddof=0), rel=1e-12)
    scaled = scaler.transform(values)
    assert scaled.mean(0) == pytest.approx(0, abs=1e-10)
    assert scaled.std(0) == pytest.approx(1, rel=1e-12)


def test_the_rows_after_the_training_part_change_nothing(values):
    spoilt = values.copy()
    spoilt[70:] = 1e9
    assert Scaler.fit(spoilt[:70]) == Scaler.fit(values[:70])


@pytest.mark.parametrize("constant", [0.0, 7.25, 0.1, 1e30, 1e-30, 5e-324])
def test_a_constant_column_gets_deviation_one(constant):
    values = np.full((50, 1), constant)
    scaler = Scaler.fit(values)
    assert scaler.std.tolist() == [1.0]
    assert scaler.transform(values) == pytest.approx(0, abs=1e-12 * abs(constant))


def test_tiny_deviations_divide_without_overflow():
    values = np.array([[1e-30, 1e-310], [3e-30, 3e-310]])
    assert np.isfinite(Scaler.fit(values).transform(values)).all()


def test_too_large_values_are_named():
    values = np.ones((4, 2))
    values[2, 1] = 1e300
    with pytest.raises(DataError, match=r"column 2 .*1e\+300"):
        Scaler.fit(values)
    with pytest.raises(DataError, match="column 'load' cannot be standardised"):
        Scaler.fit(values, ("day", "load"))


def test_inverse_undoes_numpy_and_torch_alike(values):
    scaler = Scaler.fit(values)
    assert scaler.inverse(scaler.transform(values)) == pytest.approx(values, rel=1e-12)
    tensor = torch.from_numpy(values).reshape(1, 101, 3)
    scaled = scaler.transform(tensor)
    assert torch.equal(scaled[0], torch.from_numpy(scaler.transform(values)))
    assert torch.allclose(scaler.inverse(scaled), tensor, rtol=1e-12)
    assert scaler.transform(tensor.float()).dtype == torch.float32


def test_select_takes_columns_in_the_order_asked(values):
    scaled = Scaler.fit(values).select([2, 0]).transform(values[:, [2, 0]])
    assert (scaled == Scaler.fit(values).transform(values)[:, [2, 0]]).all()


def test_json_keeps_every_bit(values):
    scaler = Scaler.fit(values)
    assert Scaler.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler


def test_missing_values_are_left_out_and_stay_missing(values):
    holed = values.copy()
    holed[::3, 1] = np.nan
    scaler = Scaler.fit(holed)
    assert scaler.mean[1] == pytest.approx(np.nanmean(holed[:, 1]), rel=1e-12)
    assert scaler.std[1] == pytest.approx(np.nanstd(holed[:, 1]), rel=1e-9)
    assert (np.isnan(scaler.transform(holed)) == np.isnan(holed)).all()
    holed[:, 2] = np.nan
    with pytest.raises(DataError, match="column 3 has no value in the 101 training rows"):
        Scaler.fit(holed)


@pytest.mark.parametrize("rows", [2, 7, 1000])
def test_the_items_of_a_panel_are_standardised_each_by_itself(monkeypatch, rows):
    monkeypatch.setattr(scaling, "ROWS", rows)
    lengths, places, last, past = [9, 4, 30, 1, 6, 5], [0, 8, 3, 11, 12, 2], 12, 3
    items = Items(tuple("abcdef"), np.cumsum([0, *lengths]), np.array(places))
    values = np.random.default_rng(0).normal(50, 3, (sum(lengths), 2))
    values[[2, 20], [0, 1]] = np.nan
    values[43] = np.nan  # the only row of item d
    values[50:, 1] = 7.25
    scaler = Scaler.fit_items(values, items, last, past)
    for item, (length, place) in enumerate(zip(lengths, places, strict=True)):
        own = values[items.bounds[item] : items.bounds[item] + length]
        known = own[: max(0, last - place)]
        known = known if len(known) > 1 else own[:past]
        for column in range(2):
            seen = known[:, column][~np.isnan(known[:, column])]
            mean, std = (seen.mean(), seen.std()) if len(seen) else (0.0, 1.0)
            assert scaler.mean[item, column] == pytest.approx(mean, rel=1e-12)
            assert scaler.std[item, column] == pytest.approx(std or 1, rel=1e-9)


def test_a_batch_takes_the_scalers_of_its_items():
    scaler = Scaler([[0, 10], [1, 20], [2, 30]], [[1, 2], [3, 4], [5, 6]])
    batch = torch.zeros(2, 7, 2)
    here = scaler.at(torch.tensor([2, 0]), 3)
    assert here.inverse(batch)[:, 3].tolist() == [[2, 30], [0, 10]]
    assert here.select([1]).std.shape == (2, 1, 1)
    assert scaler.at(np.array([1]), 4).mean.shape == (1, 1, 1, 2)
    one = Scaler([1.0], [2.0])
    assert one.at(None, 3) is one
