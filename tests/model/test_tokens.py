from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from forecaster.attention import ATTENTIONS, AttentionChoice, AttentionPlan
from forecaster.model import Task, TokenInformer

from . import naive
from .small import draw, scrambled

TASK = Task(columns=3, targets=(0, 1, 2), past=26, start=1, horizon=14, calendar=2, season=6)
SMALL: dict[str, Any] = {"parts": 2, "width": 6, "heads": 2, "feed_forward": 5}


def build(task: Task = TASK, attention: str = "full", **options: Any) -> TokenInformer:
    torch.manual_seed(0)
    choice = AttentionChoice(attention)
    return TokenInformer(task, AttentionPlan(choice, choice), **{**SMALL, **options}).eval()


@pytest.mark.parametrize(
    ("season", "past", "horizon", "options"),
    [
        (6, 24, 6, {"parts": 1, "centre": "last"}),
        (6, 6, 1, {"parts": 6, "centre": "window"}),
        (1, 5, 3, {"parts": 1}),
        (24, 72, 40, {"parts": 4, "centre": "window"}),
        (6, 26, 14, {"tokens": "point"}),
        (6, 26, 14, {"tokens": "patch", "patch": 3}),
        (6, 26, 14, {"output": "both", "decoder_layers": 2, "channels": "mixed"}),
        (6, 26, 14, {"calendar": True, "decoder_layers": 1}),
        (6, 26, 14, {"normalise": "none"}),
    ],
)
@pytest.mark.parametrize("targets", [(0, 1, 2), (2, 0)])
@pytest.mark.usefixtures("float64")
def test_untrained_it_is_the_mean_of_the_past_cycles(
    season: int, past: int, horizon: int, options: dict[str, Any], targets: tuple[int, ...]
) -> None:
    task = replace(TASK, season=season, past=past, horizon=horizon, targets=targets)
    model, inputs = build(task, shrink=False, **options), draw(task)
    whole = inputs[0][:, past % season :, list(targets)]
    phases = [whole[:, t % season :: season].mean(dim=1) for t in range(horizon)]
    wanted = torch.stack(phases, dim=1)
    torch.testing.assert_close(model(*inputs), wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("centre", ["cycle", "last"])
@pytest.mark.parametrize("options", [{}, {"channels": "mixed"}, {"tokens": "point"}], ids=str)
@pytest.mark.usefixtures("float64")
def test_growth_goes_on_where_changes_are_averaged(options: dict[str, Any], centre: str) -> None:
    steps = torch.arange(TASK.past + TASK.season).double()
    season = torch.tensor([1.0, -2, 0, 4, 1, -1]).double()[steps.long() % 6]
    rows = torch.stack([season + slope * steps for slope in (0.5, -3.0, 0.0)], dim=1)[None]
    past, ahead = rows[:, : TASK.past], rows[:, TASK.past :]
    model = build(centre=centre, changes=True, shrink=False, **options)
    _, *calendar = draw(TASK, 1)
    for observed in (None, torch.ones_like(past, dtype=torch.bool)):
        got = model(past, *calendar, observed)[:, : TASK.season]
        torch.testing.assert_close(got, ahead, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("centre", ["cycle", "last", "window"])
@pytest.mark.parametrize("options", [{}, {"parts": 3, "linear": False}, {"parts": 6, "heads": 1}])
@pytest.mark.parametrize("missing", ["nothing", "some", "the last cycle", "a phase", "all"])
@pytest.mark.usefixtures("float64")
def test_equals_the_loops(options: dict[str, Any], centre: str, missing: str) -> None:
    model, (past, *known) = scrambled(build(shrink=False, centre=centre, **options)), draw(TASK)
    observed = torch.rand(past.shape) < (0.7 if missing == "some" else 1)
    observed[:, 8:14] &= missing != "some"
    gone = {"the last cycle": slice(20, 26), "a phase": slice(4, 26, 6), "all": slice(None)}
    observed[:, gone.get(missing, slice(0))] = False
    forecast = model(past, *known, None if missing == "nothing" else observed)
    shape = {"parts": options.get("parts", 2), "heads": options.get("heads", 2)}
    weights = naive.weights(model)
    for b, column in product(range(2), range(3)):
        given = past[b, :, column], observed[b, :, column]
        wanted = naive.cycle(weights, *given, season=6, horizon=14, centre=centre, **shape)
        torch.testing.assert_close(forecast[b, :, column], wanted, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"changes": True},
        {"calendar": True, "decoder_layers": 1, "output": "both"},
        {"tokens": "series", "output": "written"},
        {"decoder_layers": 1, "output": "written", "channels": "mixed"},
    ],
)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.usefixtures("float64")
def test_the_linear_path_alone_is_what_tokens_are_added_to(
    options: dict[str, Any], missing: bool
) -> None:
    """Only this path and the level learn, and it starts where the whole model does."""
    alone, whole = build(alone=True, **options), build(**options)
    learned = {name for name, p in alone.named_parameters() if p.requires_grad}
    assert learned == {"linear.weight", "window.shrink"}
    assert not alone.effective()
    if options.get("output") == "written":  # it starts with nothing, not with the average
        for parameter in whole.write.parameters():
            nn.init.zeros_(parameter)
    for model in (alone, whole):
        generator = torch.Generator().manual_seed(3)
        nn.init.normal_(model.linear.weight, std=0.1, generator=generator)
    observed = torch.rand(2, 26, 3, generator=torch.Generator().manual_seed(4)) > 0.2 * missing
    forecast = alone(*draw(TASK), observed)
    torch.testing.assert_close(forecast, whole(*draw(TASK), observed))
    forecast.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in alone.parameters() if p.requires_grad)


ONE: dict[str, Any] = {"calendar": True, "decoder_layers": 1}


@pytest.mark.parametrize(
    ("past", "options"), [(6, {}), (6, ONE), (6, {**ONE, "output": "both"}), (12, {})]
)
def test_no_attention_reaches_the_average_of_one_cycle(past: int, options: dict[str, Any]) -> None:
    """And `effective` says so exactly then."""
    task, reaches = replace(TASK, past=past), past > 6 or "output" in options
    model = scrambled(build(task, **options))
    model(*draw(task)).square().sum().backward()
    used = [p.grad for n, p in model.named_parameters() if "attention" in n and p.grad is not None]
    assert any(bool((each.abs() > 1e-6).any()) for each in used) == reaches
    assert any(text.startswith("nothing") for text in model.effective().values()) != reaches


def test_the_level_falls_back_by_its_share_in_each_column() -> None:
    still, shrunk = build(shrink=False), build(shrink=True)
    inputs = draw(TASK)
    level = inputs[0][:, -6:].mean(dim=1, keepdim=True)
    shrunk.window.shrink.data = torch.tensor([-100.0, 0.0, 100.0])
    wanted = still(*inputs) - torch.tensor([0.0, 0.5, 1.0]) * level
    torch.testing.assert_close(shrunk(*inputs), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("season", "parts"), [(24, 4), (6, 3), (7, 1), (1, 1)])
def test_a_token_is_a_quarter_of_a_cycle_or_the_next_larger_part(season: int, parts: int) -> None:
    assert build(replace(TASK, past=96, season=season), parts=None).cut.parts == parts


def test_other_columns_are_seen_unless_all_are_targets_or_separate_is_said() -> None:
    task = replace(TASK, targets=(1,))
    (past, *known) = draw(task)
    other = past + torch.tensor([1.0, 0.0, 2.0]) * torch.arange(26.0)[:, None]
    other[:, :2] = torch.nan  # before the last four cycles
    for channels, sees in ((None, True), ("mixed", True), ("separate", False)):
        model = scrambled(build(task, channels=channels))
        assert torch.equal(model(past, *known), model(other, *known)) != sees
    assert build().cut.separate


TOLD = replace(TASK, covariates=2)
KNOWN: list[dict[str, Any]] = [
    {},
    {"tokens": "point", "calendar": True, "channels": "mixed"},
    {"tokens": "patch", "patch": 3, "decoder_layers": 1, "output": "both"},
]


def told(known: bool = True, **options: Any) -> TokenInformer:
    """Without the effect of covariates that bypasses the tokens."""
    model = scrambled(build(TOLD, known=known, **options))
    for parameter in model.effect.parameters():
        nn.init.zeros_(parameter)
    return model


@pytest.mark.parametrize("options", KNOWN, ids=str)
def test_tokens_carry_the_covariates_of_their_steps_if_told(options: dict[str, Any]) -> None:
    for known in (True, False):
        model, (past, *features) = told(known, **options), draw(TOLD)
        before = model(past, *features)
        for part in features:
            part[..., 2:] += 1
            after = model(past, *features)
            assert (after != before).any(dim=(1, 2)).tolist() == [known] * 2
            before = after


@pytest.mark.parametrize("tokens", ["point", "patch", "cycle", "written"])
def test_a_future_token_knows_its_own_steps_and_a_written_one_those_before(tokens: str) -> None:
    options: dict[str, Any] = {"tokens": tokens, "patch": 3, "linear": False}
    if tokens == "written":
        options = {"tokens": "point", "output": "written", "decoder_layers": 1}
    model, (past, *known) = told(**options), draw(TOLD)
    before = model(past, *known)
    known[1][:, 7, 2:] += 1
    changed = (model(past, *known) != before).any(dim=2).all(dim=0)
    token = torch.arange(14) // model.cut.steps
    wanted = token >= token[7] if tokens == "written" else token == token[7]
    assert torch.equal(changed, wanted)


TEMPORAL = {"tokens": "series", "output": "written", "queries": "temporal", "linear": False}
PHASED = replace(TASK, phase=(6.0, 0.0))


def temporal_draw() -> tuple[Tensor, Tensor, Tensor]:
    """Windows whose first forecast step has the place 2 and 5 in a season of 6."""
    past, past_known, future = draw(PHASED)
    future[:, 0, 0] = torch.tensor([2, 5]) / 6 - 0.5
    return past, past_known, future


def test_learned_queries_ask_by_column_and_place_in_the_season() -> None:
    model = scrambled(build(PHASED, **TEMPORAL))
    inputs = temporal_draw()
    before = model(*inputs)
    model.temporal.table.data[2, 1] += torch.randn(6)
    changed = (model(*inputs) != before).any(dim=1)
    assert changed.tolist() == [[False, True, False], [False, False, False]]
    before.square().sum().backward()
    gradient = model.temporal.table.grad
    assert gradient.abs().sum(dim=(1, 2)).nonzero().flatten().tolist() == [2, 5]


@pytest.mark.parametrize("queries", ["temporal", "own"])
def test_what_tokens_of_series_see_comes_from_those_of_the_window(queries: str) -> None:
    """One layer by hand: x + attention(queries, x), then the feed-forward."""
    model = scrambled(build(PHASED, **{**TEMPORAL, "queries": queries}))
    (past, *known), layer = temporal_draw(), model.encoder[0]
    tokens, centre, scale = model.window(past.transpose(1, 2), None)
    x = model.embed(tokens)
    normal = layer.norm_attention(x)
    x = x + layer.attention(normal if queries == "own" else model.temporal.table[[2, 5]], normal)
    x = x + layer.feed_forward(layer.norm_feed_forward(x))
    wanted = model.window.restore(model.write(model.norm(x)), centre, scale).transpose(1, 2)
    torch.testing.assert_close(model(past, *known), wanted)


def test_learned_queries_are_a_cross_attention() -> None:
    torch.manual_seed(0)
    plan = AttentionPlan(AttentionChoice("lsh"), AttentionChoice("lsh"), AttentionChoice("topk"))
    model = TokenInformer(PHASED, plan, **{**SMALL, **TEMPORAL}, encoder_layers=2)
    found = [(layer.attention.place.role, type(layer.attention)) for layer in model.encoder]
    assert found == [("cross", ATTENTIONS["topk"]), ("encoder", ATTENTIONS["lsh"])]


def test_the_decoder_sees_the_known_tokens_that_open_it() -> None:
    options = {"tokens": "point", "output": "written", "decoder_layers": 1, "normalise": "none"}
    task = replace(TASK, start=5)
    model, (past, *calendar) = scrambled(build(task, **options, linear=False)), draw(task)
    for layer in model.decoder:
        nn.init.zeros_(layer.cross.key_projection.weight)
        nn.init.zeros_(layer.cross.value_projection.weight)
    model(past.requires_grad_(), *calendar).sum().backward()
    seen = past.grad.abs().sum(dim=(0, 2)) > 0
    assert seen.nonzero().flatten().tolist() == [21, 22, 23, 24, 25]


@pytest.mark.usefixtures("float64")
def test_the_prior_is_taken_away_and_given_back() -> None:
    """Values beyond the mean cycle of the training rows pass through the average of one cycle."""
    model = build(
        replace(TASK, past=7, phase=(6.0, 0.0)), prior=True, normalise="none", linear=False
    )
    phase = torch.arange(40) % 6
    cycle = torch.randn(6, 3)[phase]
    calendar = torch.stack([phase / 6 - 0.5, torch.randn(40)], dim=1)
    model.prepare([(cycle, calendar)])
    values = cycle + torch.arange(40.0)[:, None]
    ahead = model(values[None, 4:11], calendar[None, 4:11], calendar[None, 11:25])
    rest = torch.arange(5.0, 11.0).repeat(3)[:14, None]
    torch.testing.assert_close(ahead[0], cycle[11:25] + rest)


STRICT = [name for name, kind in ATTENTIONS.items() if kind.about.causal.startswith("strict")]


@pytest.mark.parametrize("attention", STRICT)
def test_a_causal_encoder_reads_only_earlier_tokens(attention: str) -> None:
    wide: dict[str, Any] = {"tokens": "point", "output": "last", "normalise": "none", "width": 8}
    (past, *known) = draw(TASK)
    changed = torch.cat([past[:, :20], past[:, 20:] + 5], dim=1)
    before = slice(0, 20 - (TASK.past - TASK.horizon))  # written by tokens before the change
    for causal in (True, False):
        model = scrambled(
            build(attention=attention, encoder_layers=2, linear=False, causal=causal, **wide)
        )
        gap = (model(past, *known) - model(changed, *known))[:, before].abs().max()
        assert (gap < 1e-4) == (causal or attention == "none"), gap
        later = (model(past, *known) - model(changed, *known))[:, before.stop :].abs().max()
        assert later > 0.01


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("parts=4, season=6", {"parts": 4}),
    ("parts=0", {"parts": 0}),
    ("window.past=5, season=6", {"task": replace(TASK, past=5)}),
    ("encoder_layers=0", {"encoder_layers": 0}),
    ("decoder_layers=-1", {"decoder_layers": -1}),
    ("feed_forward=0", {"feed_forward": 0}),
    ("width=6, heads=4", {"heads": 4}),
    ("patch=0", {"tokens": "patch", "patch": 0}),
    ("patch=4, season=6", {"tokens": "patch", "patch": 4}),
    ("model.output=written needs decoder_layers >= 1", {"output": "written"}),
    ("model.tokens=series needs .*model.output=written", {"tokens": "series"}),
    ("channels=mixed", {**TEMPORAL, "channels": "separate"}),
    ("model.calendar", {**TEMPORAL, "calendar": True}),
    ("causal", {**TEMPORAL, "causal": True}),
    ("season=6 steps", {"prior": True}),
    ("model.queries=temporal needs", {**TEMPORAL, "decoder_layers": 1}),
    ("season=6 steps", TEMPORAL),
    ("model.known=true needs", {"known": True}),
    ("model.changes=true needs", {"changes": True, "centre": "window"}),
    ("model.output=last needs", {"output": "last", "decoder_layers": 1}),
    ("model.output=last needs", {"output": "last", "task": replace(TASK, horizon=30)}),
    ("model.alone=true needs linear=true", {"alone": True, "linear": False}),
]


@pytest.mark.parametrize(("words", "options"), REFUSED)
def test_what_cannot_be_built_is_refused(words: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=words):
        build(**options)
