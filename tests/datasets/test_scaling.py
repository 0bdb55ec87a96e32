import json

import numpy as np
import pytest
import torch

from forecaster.datasets import Scaler
from forecaster.errors import DataError


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
    assert scaler.std == (1.0,)
    assert scaler.transform(values) == pytest.approx(0, abs=1e-12 * abs(constant))


def test_tiny_deviations_divide_without_overflow():
    values = np.array([[1e-30, 1e-310], [3e-30, 3e-310]])
    assert np.isfinite(Scaler.fit(values).transform(values)).all()


def test_too_large_values_are_named():
    values = np.ones((4, 2))
    values[2, 1] = 1e300
    with pytest.raises(DataError, match=r"column 2 .*1e\+300"):
        Scaler.fit(values)


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
