import numpy as np
import pytest
import torch

from forecaster.forecast.served import ServedModel
from tests.bundles import unsaved


@pytest.fixture(scope="module")
def bundle():
    return unsaved(calibrated=True)


def inputs(bundle, count=3):
    draw, columns = np.random.default_rng(0), len(bundle.schema.columns)
    task = bundle.build().task
    history = torch.from_numpy(draw.normal(size=(count, task.past, columns)))
    return history, torch.zeros(count, task.past + task.horizon, task.calendar + task.covariates)


def test_a_complete_history_needs_no_mask_and_quantiles_come_where_they_are_asked(bundle):
    model = ServedModel(bundle.build(), bundle.schema, bundle.intervals).eval()
    given = inputs(bundle)
    with torch.no_grad():
        (alone,) = model(*given, complete=True)
        masked, quantiles = model(*given, banded=True)
        at = torch.tensor(bundle.intervals.levels, dtype=torch.float64)
        _, same = model(*given, at)
    torch.testing.assert_close(alone, masked, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(quantiles, same)
    middle = bundle.intervals.levels.index(0.5)
    torch.testing.assert_close(quantiles[..., middle], masked)


def test_without_intervals_there_is_the_forecast_alone(bundle):
    model = ServedModel(bundle.build(), bundle.schema, None).eval()
    assert len(model(*inputs(bundle), banded=True)) == 1
