import numpy as np
import pytest
import torch

from forecaster.attention import CATALOGUE, AttentionChoice, AttentionPlan
from forecaster.attention.base import SelfAttention
from forecaster.evaluate.lags import LagProfile, lag_profile
from forecaster.model import TokenInformer
from tests.train import small


def plan(name):
    cross = "full" if issubclass(CATALOGUE[name], SelfAttention) else name
    return AttentionPlan(AttentionChoice(name), AttentionChoice(name), AttentionChoice(cross))


def by_definition(model, windows, numbers):
    """One window, one step and one lag at a time, from the whole Jacobian."""
    task = model.task
    matrix = np.zeros((task.horizon, task.past + task.horizon - 1))
    for turn, number in enumerate(numbers):
        batch = windows.batch(torch.tensor([number]))

        def forecast(past, batch=batch):
            return model(past, batch.past_known, batch.future_known)

        jacobian = torch.autograd.functional.jacobian(forecast, batch.past)[0, :, :, 0]
        column = turn % len(task.targets)
        for h in range(1, task.horizon + 1):
            for back in range(task.past):  # steps before the newest known one
                one = jacobian[h - 1, column, task.past - 1 - back]
                matrix[h - 1, h + back - 1] += float(one.abs().mean())
    return matrix / matrix.sum()


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_attention_has_the_profile_of_the_definition(name):
    torch.manual_seed(0)
    model = TokenInformer(
        small.TASK, plan(name), channels="mixed", tokens="patch", patch=3, output="both",
        decoder_layers=1, width=8, heads=2, feed_forward=8,
    ).eval()  # fmt: skip
    torch.nn.init.normal_(model.write.weight)  # it starts at zero
    got = lag_profile(model, small.VALIDATION, count=3)
    want = by_definition(model, small.VALIDATION, [0, 22, 44])
    np.testing.assert_allclose(got.matrix, want, rtol=1e-3, atol=1e-7)
    assert got.matrix.sum() == pytest.approx(1)
    assert got.by_lag.shape == (24 + 6 - 1,)


def test_the_informer_has_one_too_and_is_left_as_it_was():
    model = small.informer()
    told = []
    got = lag_profile(model, small.VALIDATION, count=2, report=told.append)
    want = by_definition(model, small.VALIDATION, [0, 44])
    np.testing.assert_allclose(got.matrix, want, rtol=1e-3, atol=1e-7)
    assert told == [1] * 6
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_looks_at_nothing():
    got = lag_profile(small.Constant(1.0), small.VALIDATION)
    assert not got.matrix.any()
    assert got.peak == 0


def test_a_lag_counts_where_it_is_within_reach():
    """Two steps ahead, three back: lags 1 and 4 are within reach for one step only."""
    matrix = np.array([[0.1, 0.3, 0.1, 0.0], [0.0, 0.1, 0.3, 0.1]])
    profile = LagProfile(matrix, 1)
    np.testing.assert_allclose(profile.by_lag, np.array([0.1, 0.2, 0.2, 0.1]) / 0.6)
    assert profile.peak == 2, "lags count from 1"
