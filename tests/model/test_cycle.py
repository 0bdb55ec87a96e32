from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from forecaster.attention import AttentionChoice, AttentionPlan
from forecaster.model import CycleInformer, Task

from . import naive

TASK = Task(columns=3, targets=(0, 1, 2), past=26, start=1, horizon=14, calendar=2, season=6)
SMALL: dict[str, Any] = {"parts": 2, "width": 6, "heads": 2, "feed_forward": 5}


def build(task: Task = TASK, attention: str = "full", **options: Any) -> CycleInformer:
    torch.manual_seed(0)
    choice = AttentionChoice(attention)
    return CycleInformer(task, AttentionPlan(choice, choice), **{**SMALL, **options}).eval()


def scrambled(model: CycleInformer) -> CycleInformer:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def draw(task: Task = TASK, batch: int = 2, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = ((task.past, task.columns), (task.past, task.calendar), (task.horizon, task.calendar))
    past, *calendar = (torch.randn(batch, *shape, generator=generator) for shape in lengths)
    return 3 * past + 2, calendar[0], calendar[1]


def cycle_mean(past: Tensor, season: int, horizon: int) -> Tensor:
    """Step t is the mean of all past steps of its phase, in loops; past is (B, P, K)."""
    length = past.shape[1]
    start = length % season
    return torch.stack(
        [
            torch.stack(
                [past[:, i] for i in range(start, length) if (i - start) % season == t % season]
            ).mean(dim=0)
            for t in range(horizon)
        ],
        dim=1,
    )


@pytest.mark.parametrize("centre", ["cycle", "last", "window"])
@pytest.mark.parametrize(
    ("season", "parts", "past", "horizon"),
    [(6, 2, 26, 14), (6, 1, 24, 6), (6, 6, 6, 1), (1, 1, 5, 3), (4, 4, 23, 9), (24, 4, 72, 40)],
)
@pytest.mark.usefixtures("float64")
def test_untrained_it_is_the_mean_of_the_past_cycles(
    season: int, parts: int, past: int, horizon: int, centre: str
) -> None:
    task = replace(TASK, season=season, past=past, horizon=horizon)
    model, inputs = build(task, parts=parts, shrink=False, centre=centre), draw(task)
    wanted = cycle_mean(inputs[0], season, horizon)
    torch.testing.assert_close(model(*inputs), wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("centre", ["cycle", "last", "window"])
@pytest.mark.parametrize("options", [{}, {"parts": 3, "linear": False}, {"parts": 6, "heads": 1}])
@pytest.mark.usefixtures("float64")
def test_equals_the_loops(options: dict[str, Any], centre: str) -> None:
    model, inputs = scrambled(build(shrink=False, centre=centre, **options)), draw()
    forecast = model(*inputs)
    for b in range(2):
        for column in range(3):
            wanted = naive.cycle(
                naive.weights(model),
                inputs[0][b, :, column],
                season=6,
                parts=options.get("parts", 2),
                horizon=14,
                heads=options.get("heads", 2),
                centre=centre,
            )
            torch.testing.assert_close(forecast[b, :, column], wanted, atol=1e-10, rtol=1e-10)


def test_only_target_columns_and_whole_cycles_are_read() -> None:
    task = replace(TASK, targets=(2, 0))
    model, (past, *calendar) = scrambled(build(task)), draw(task)
    forecast = model(past, *calendar)
    past[:, :, 1] = torch.nan  # no target
    past[:, :2] = torch.nan  # before the last four cycles
    assert torch.equal(model(past, *calendar), forecast)
    assert torch.equal(model(past, *(x + 1 for x in calendar)), forecast)


def test_columns_share_the_weights_and_nothing_else() -> None:
    model, (past, *calendar) = scrambled(build(shrink=False)), draw()
    turned = model(past[:, :, [2, 0, 1]], *calendar)
    torch.testing.assert_close(turned, model(past, *calendar)[:, :, [2, 0, 1]])


def test_the_linear_path_starts_at_zero_and_adds_to_the_average() -> None:
    with_it, without = build(linear=True, shrink=False), build(linear=False, shrink=False)
    inputs = draw()
    assert torch.equal(with_it(*inputs), without(*inputs))
    assert with_it.linear is not None
    nn.init.normal_(with_it.linear.weight)
    window = inputs[0][:, 2:].transpose(1, 2)
    spread = window.std(dim=-1, keepdim=True, correction=0) + 0.01
    centred = (window - window[..., -6:].mean(dim=-1, keepdim=True)) / spread
    added = (centred @ with_it.linear.weight.T * spread).transpose(1, 2)
    torch.testing.assert_close(with_it(*inputs), without(*inputs) + added, atol=1e-4, rtol=1e-4)


def test_the_level_falls_back_by_its_share_in_each_column() -> None:
    still, shrunk = build(shrink=False), build(shrink=True)
    inputs = draw()
    level = inputs[0][:, -6:].mean(dim=1, keepdim=True)
    assert shrunk.shrink is not None
    share = torch.full((3,), 0.018)  # sigmoid(-4): 2 % before training
    torch.testing.assert_close(
        shrunk(*inputs), still(*inputs) - share * level, atol=1e-4, rtol=1e-4
    )
    with torch.no_grad():
        shrunk.shrink.copy_(torch.tensor([-100.0, 0.0, 100.0]))
    share = torch.tensor([0.0, 0.5, 1.0])
    torch.testing.assert_close(
        shrunk(*inputs), still(*inputs) - share * level, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("centre", ["cycle", "last", "window"])
@pytest.mark.usefixtures("float64")
def test_level_and_scale_of_a_window_pass_through(centre: str) -> None:
    model, (past, *calendar) = scrambled(build(shrink=False, centre=centre)), draw()
    forecast = model(past, *calendar)
    torch.testing.assert_close(model(past + 50, *calendar), forecast + 50)
    large, larger = model(1e6 * past, *calendar), model(3e6 * past, *calendar)
    torch.testing.assert_close(
        larger, 3 * large, rtol=1e-6, atol=1
    )  # but for the 0.01 in sd + 0.01


def test_a_constant_window_stays_constant() -> None:
    model, (past, *calendar) = scrambled(build(shrink=False)), draw()
    forecast = model(torch.full_like(past, 0.7), *calendar)
    torch.testing.assert_close(forecast, torch.full_like(forecast, 0.7))
    forecast.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_every_parameter_learns_from_the_second_step_on() -> None:
    model, inputs = build().train(), draw(batch=8)
    target = draw(batch=8, seed=2)[0][:, : TASK.horizon]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):  # the keys first: zero queries pass no gradient on
        optimiser.zero_grad()
        nn.functional.mse_loss(model(*inputs), target).backward()
        optimiser.step()
    # adding the same to all keys changes no softmax
    still = {"encoder.0.attention.key_projection.bias"}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if name not in still:
            assert parameter.grad.abs().max() > 1e-7, name


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ({}, {"parts": 4}, "got parts=4, season=6"),
        ({}, {"parts": 0}, "got parts=0, season=6"),
        ({"past": 5}, {}, "got window.past=5, season=6"),
        ({}, {"encoder_layers": 0}, "got encoder_layers=0"),
        ({}, {"heads": 4}, "got width=6, heads=4"),
    ],
)
def test_what_cannot_be_built_is_refused(
    task: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(replace(TASK, **task), **options)


def test_says_what_its_attention_amounts_to() -> None:
    task = replace(TASK, past=26 * 6)
    effective = build(task, "prob", encoder_layers=2).effective()
    assert list(effective) == ["encoder.0", "encoder.1"]
    assert effective["encoder.0"] == "prob: 20 of 52 queries active, 20 of 52 keys sampled"
