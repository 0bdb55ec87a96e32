from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from forecaster.model import Task, TokenInformer
from forecaster.model.covariates import KnownEffect

from .small import FULL, draw, scrambled

TASK = Task(
    columns=2, targets=(1, 0), past=24, start=6, horizon=12, calendar=1, season=6, covariates=2
)


def build(task: Task, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    small = {"width": 4, "heads": 2, "feed_forward": 4, "dropout": 0.0, "shrink": False}
    return TokenInformer(task, FULL, **{**small, **options})


def test_an_effect_starts_at_zero_and_follows_step_and_last_cycle() -> None:
    effect, known = KnownEffect(1, 2, season=3, targets=2), torch.randn(4, 9, 3)
    assert not torch.cat(effect(known[:, :7], known[:, 7:]), dim=1).any()
    past, ahead = scrambled(effect)(known[:, :7], known[:, 7:])
    assert (past.shape, ahead.shape) == ((4, 7, 2), (4, 2, 2))
    for step in range(9):
        lately = known[:, max(0, step - 2) : step + 1, 1:].mean(dim=1)
        wanted = effect.layers(torch.cat([known[:, step], lately], dim=1))
        torch.testing.assert_close(torch.cat([past, ahead], dim=1)[:, step], wanted)


@pytest.mark.parametrize("options", [{}, {"calendar": True}, {"prior": True}], ids=str)
def test_what_is_known_is_taken_away_and_given_back(options: dict[str, Any]) -> None:
    """And the calendar that tokens know is the calendar alone."""
    task = replace(TASK, phase=(6.0,))
    model, (past, *known) = build(task, **options), draw(task)
    without = build(replace(task, covariates=0), **options)
    without.load_state_dict(model.state_dict(), strict=False)  # all except the effect, which is 0
    assert torch.equal(model(past, *known), without(past, *(x[..., :1] for x in known)))
    effects = [x.detach() for x in scrambled(model.effect)(*known)]
    freed = past - effects[0].flip(2)  # the targets are the columns 1 and 0
    wanted = without(freed, *(x[..., :1] for x in known)) + effects[1]
    torch.testing.assert_close(model(past, *known), wanted)
