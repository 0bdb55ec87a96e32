from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from forecaster.attention import AttentionChoice, AttentionPlan
from forecaster.model import Informer, Task

from . import naive
from .small import FULL, draw, scrambled

TASK = Task(columns=3, targets=(0, 1, 2), past=11, start=4, horizon=5, calendar=2, season=4)
SMALL: dict[str, Any] = {"width": 6, "heads": 2, "feed_forward": 7, "dropout": 0.1}


def build(task: Task = TASK, plan: AttentionPlan = FULL, **options: Any) -> Informer:
    """With every weight and statistic changed from its initial value."""
    torch.manual_seed(0)
    model = scrambled(Informer(task, plan, **{**SMALL, **options}))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model.eval()


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ({}, {"encoder_layers": 1}),
        ({}, {"encoder_layers": 3}),  # 11 -> 6 -> 3
        ({"past": 8}, {"encoder_layers": 3, "distil": False}),
        ({}, {"encoder_layers": (3, 2, 1)}),  # the last 11, 5 and 2 steps
        ({}, {"decoder_layers": 2, "activation": "relu"}),
        ({}, {"mix": True}),
        ({"targets": (2,), "covariates": 1}, {}),
        ({"columns": 1, "targets": (0,)}, {}),
        ({"start": 11, "horizon": 1}, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.usefixtures("float64")
def test_equals_the_loops(task: dict[str, Any], options: dict[str, Any], whole: bool) -> None:
    wanted_task = replace(TASK, **task)
    model, inputs = build(wanted_task, **options), draw(wanted_task)
    if not whole:
        observed = torch.rand(2, 11, wanted_task.columns) < 0.6
        observed[:, [3, 4, 5, 8, 9]] = False  # a pool and a first step of the decoder are empty
        inputs = (*inputs, observed[:, -wanted_task.past :])
    forecast, start, w = model(*inputs), wanted_task.start, naive.weights(model)
    for b in range(2):
        wanted = naive.informer(w, *(x[b] for x in inputs), start=start, heads=2, **options)
        torch.testing.assert_close(forecast[b], wanted, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("got window.start=12, window.past=11", {"task": replace(TASK, start=12)}),
        ("got window.start=0, window.past=11", {"task": replace(TASK, start=0)}),
        ("steps=0; shorten the stack", {"encoder_layers": (1, 1, 1, 1, 1)}),
        ("got layers=0", {"encoder_layers": (2, 0)}),
        ("got encoders=0", {"encoder_layers": ()}),
        ("got decoder_layers=0", {"decoder_layers": 0}),
        ("got feed_forward=0", {"feed_forward": 0}),
        ("even width, got width=9", {"width": 9, "heads": 3}),
        ("got width=8, heads=3", {"width": 8, "heads": 3}),
    ],
)
def test_what_cannot_be_built_is_refused(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_says_what_each_attention_amounts_to() -> None:
    plan = AttentionPlan(AttentionChoice("prob", {"factor": 1}), AttentionChoice("mean"))
    effective = build(replace(TASK, past=40), plan).effective()
    amounts = {
        "encoders.0.steps.0": "4 of 40 queries active",
        "encoders.0.steps.2": "3 of 20 queries active",
        "decoder.0": "Mean attention: ",
        "decoder.0.cross": "full",
    }
    assert list(effective) == list(amounts)
    assert all(text in effective[place] for place, text in amounts.items())
