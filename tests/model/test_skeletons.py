"""The contract of every skeleton with every attention."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, AttentionPlan
from forecaster.model import SKELETONS, ForecastModel, Task

from .small import draw, scrambled

TASK = Task(
    columns=3, targets=(0, 1, 2), past=36, start=7, horizon=11, calendar=2, season=6,
    phase=(3.0, 0.0),
)  # fmt: skip
SMALL: dict[str, Any] = {"width": 8, "heads": 2, "feed_forward": 9}
POINT: dict[str, Any] = {"tokens": "point", "output": "written", "decoder_layers": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "informer": {"encoder_layers": 2},
    "tokens": {"parts": 6},
    "tokens, written": POINT,
    "tokens, mixed": {**POINT, "channels": "mixed"},
    "tokens, patches": {**POINT, "tokens": "patch", "patch": 5, "calendar": True},
    "tokens, both": {"output": "both", "decoder_layers": 2, "tokens": "patch", "patch": 3},
    "tokens, calendar": {"output": "both", "decoder_layers": 1, "calendar": True},
    "tokens, no place": {"tokens": "point", "output": "last", "positions": False},
    "tokens, last": {"tokens": "patch", "patch": 5, "output": "last", "channels": "mixed"},
    "tokens, causal": {"tokens": "point", "output": "last", "causal": True},
    "tokens, prior": {"calendar": True, "prior": True},
    "tokens, series": {"tokens": "series", "output": "written"},
    "tokens, decoded": {**POINT, "tokens": "series", "normalise": "none"},
    "tokens, asked": {"tokens": "series", "output": "written", "queries": "temporal"},
}
# so that it is not full attention at these lengths
ATTENTION_OPTIONS: dict[str, dict[str, Any]] = {"prob": {"factor": 1}}

every_pair = pytest.mark.parametrize(
    ("variant", "attention"),
    [(name, "full") for name in VARIANTS]
    + [(name, kind) for name in SKELETONS for kind in ATTENTIONS if kind != "full"],
)


def build(variant: str, attention: str, task: Task = TASK, seed: int = 0) -> ForecastModel:
    torch.manual_seed(seed)
    choice = AttentionChoice(attention, ATTENTION_OPTIONS.get(attention, {}))
    skeleton = SKELETONS[variant.split(",")[0]]
    model = skeleton(task, AttentionPlan(choice, choice), **SMALL, **VARIANTS[variant])
    return scrambled(model, 0.3).eval()


@every_pair
def test_forecasts_the_targets_over_the_horizon(variant: str, attention: str) -> None:
    for columns, targets in ((3, (0, 1, 2)), (3, (2, 0)), (1, (0,))):
        task = replace(TASK, columns=columns, targets=targets)
        forecast = build(variant, attention, task)(*draw(task, 8))
        assert forecast.shape == (8, 11, len(targets))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_calendar_is_read_where_it_was_asked_for(variant: str) -> None:
    options = VARIANTS[variant]
    if "queries" in options or "prior" in options:
        return  # test_tokens.py: they read the place in the season
    model, (past, past_known, future) = build(variant, "full"), draw(TASK, 8)
    changed = [model(past, past_known + 1, future), model(past, past_known, future + 1)]
    same = [torch.equal(other, model(past, past_known, future)) for other in changed]
    assert same == [not options.get("calendar", variant == "informer")] * 2


@every_pair
def test_the_same_request_the_same_forecast(variant: str, attention: str) -> None:
    model, inputs = build(variant, attention), draw(TASK, 8)
    first = model(*inputs)
    assert torch.equal(model(*inputs), first)
    assert torch.equal(build(variant, attention)(*inputs), first)
    other = build(variant, attention, seed=7)
    assert not torch.equal(other(*inputs), first)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(*inputs), first), "the weights are all there is"


@every_pair
def test_the_rest_of_a_batch_changes_nothing(variant: str, attention: str) -> None:
    model, inputs = build(variant, attention), draw(TASK, 8)
    together = model(*inputs)
    for b in range(8):
        alone = model(*(x[b : b + 1] for x in inputs))
        torch.testing.assert_close(alone, together[b : b + 1], atol=1e-5, rtol=1e-5)
    others = tuple(torch.cat([x[:1], 100 * x[1:]]) for x in inputs)
    torch.testing.assert_close(model(*others)[:1], together[:1], atol=1e-5, rtol=1e-5)


@every_pair
def test_what_was_not_observed_changes_nothing(variant: str, attention: str) -> None:
    model, (past, *known) = build(variant, attention), draw(TASK, 8)
    observed = torch.rand(past.shape, generator=torch.Generator().manual_seed(2)) < 0.7
    observed[0] = False
    observed[1, -20:] = False
    observed[2, :, 0] = False
    observed[3, 8:20] = False
    observed[4] = True
    forecast = model(past, *known, observed)
    assert forecast.isfinite().all()
    for other in (1e6, torch.nan):
        changed = model(past.where(observed, other), *known, observed)
        assert torch.equal(changed, forecast)
    whole = model(past, *known)
    torch.testing.assert_close(
        model(past, *known, torch.ones_like(observed)), whole, atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(forecast[4], whole[4], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(forecast[5], whole[5], atol=1e-3)
    model.train()(past.requires_grad_(), *known, observed).square().sum().backward()
    assert not past.grad[~observed].any()
    for gradient in (past.grad, *(p.grad for p in model.parameters() if p.grad is not None)):
        assert gradient.isfinite().all()


@every_pair
def test_training_reaches_the_weights(variant: str, attention: str) -> None:
    model, inputs = build(variant, attention).train(), draw(TASK, 8)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        optimiser.zero_grad()
        loss = (model(*inputs) - 3).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    if attention == "full":
        still = "key_projection.bias"  # adding the same to all keys changes no softmax
        for name, parameter in model.named_parameters():
            assert name.endswith(still) or parameter.grad.abs().max() > 0, name
