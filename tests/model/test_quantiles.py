from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.model import QuantileSpread, pinball_loss
from tests.train.small import TASK, cycle, informer

from .small import draw

LEVELS = (0.05, 0.3, 0.5, 0.9)


@given(seed=st.integers(0, 10**6), size=st.sampled_from([1e-3, 1.0, 30.0, 1e4]))
@settings(max_examples=30, deadline=None)
def test_they_never_cross_whatever_the_weights(seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    spread = QuantileSpread(LEVELS, 6, 2)
    with torch.no_grad():
        for weight in spread.parameters():
            weight.copy_(size * torch.randn(weight.shape, generator=generator).clamp(-3, 3))
        spread.power.clamp_(-3, 3)
    path = torch.randn(4, 6, 2, generator=generator)
    quantiles = spread(path, torch.randn(4, 24, 2, generator=generator))
    assert (quantiles.diff(dim=-1) >= 0).all()
    assert torch.equal(quantiles[..., 2], path)


def test_it_starts_normal_and_widens_with_the_window() -> None:
    spread = QuantileSpread(LEVELS, 6, 2)
    past = torch.randn(1, 5000, 2, generator=torch.Generator().manual_seed(0))
    quantiles = spread(torch.zeros(1, 6, 2), past)[0, 0, 0]
    torch.testing.assert_close(
        quantiles, torch.tensor([-1.6449, -0.5244, 0.0, 1.2816]) / 2, atol=0.02, rtol=0
    )
    wider = spread(torch.zeros(1, 6, 2), 4 * past)[0, 0, 0]
    torch.testing.assert_close(wider, 2 * quantiles, atol=0.02, rtol=0.01)


@pytest.mark.parametrize("build", [cycle, informer])
def test_every_skeleton_takes_one_and_keeps_its_path(build: Any) -> None:
    model, (past, *known) = build().eval(), draw(TASK, 3)
    path = model(past, *known)
    assert torch.equal(model.quantiles(past, *known), path[..., None])
    model.spread = QuantileSpread(LEVELS, TASK.horizon, 2)
    quantiles = model.quantiles(past, *known)
    assert quantiles.shape == (3, TASK.horizon, 2, 4)
    assert torch.equal(quantiles[..., model.middle], path)
    assert torch.equal(model(past, *known), path)
    observed = torch.rand(past.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    quantiles = model.quantiles(past.where(observed, torch.nan), *known, observed)
    assert torch.equal(quantiles[..., model.middle], model(past, *known, observed))
    assert torch.equal(quantiles, model.quantiles(past.where(observed, 7), *known, observed))


def test_the_loss_by_hand() -> None:
    quantiles = torch.tensor([1.0, 4.0]).reshape(1, 1, 1, 2)
    loss = pinball_loss(quantiles, torch.full((1, 1, 1), 2.0), (0.1, 0.9))
    assert float(loss) == pytest.approx((0.1 * 1 + 0.1 * 2) / 2)


def test_a_window_spreads_by_what_was_observed_of_it() -> None:
    spread = QuantileSpread(LEVELS, 6, 2)
    past = torch.randn(3, 24, 2, generator=torch.Generator().manual_seed(0))
    observed = torch.ones(3, 24, 2, dtype=torch.bool)
    observed[:, ::3] = False
    path = torch.zeros(3, 6, 2)
    wanted = spread(path, past[:, [step for step in range(24) if step % 3]])
    for other in (1e6, torch.nan):
        found = spread(path, past.where(observed, other), observed)
        torch.testing.assert_close(found, wanted)
    nothing = spread(path, past, torch.zeros_like(observed))
    torch.testing.assert_close(nothing, spread(path, torch.zeros_like(past)))
