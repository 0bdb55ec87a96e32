"""The memory of a training is known before it, and options that make it fit change no gradient."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from forecaster.attention import AttentionPlan
from forecaster.base import machine
from forecaster.base.errors import DivergedError, UnavailableError
from forecaster.config.run_config import TrainConfig
from forecaster.train import memory
from forecaster.train.memory import checkpointed, ensure_it_fits, gib
from forecaster.train.module import ForecastModule, parts_of
from tests.train.small import FULL, PROB, TRAIN, cycle, informer, train

BATCH = TRAIN.batch(torch.arange(10))
Fits = Callable[..., tuple[int, list[str]]]


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("plan", [PROB, FULL], ids=["prob", "full"])
def test_computing_again_gives_the_same_gradient_with_dropout_on(plan: AttentionPlan) -> None:
    plain = informer(plan, 0.3).train()
    again = copy.deepcopy(plain)
    for _ in range(2):  # prob draws other keys in the second step
        torch.manual_seed(1)
        ForecastModule(plain, TrainConfig()).loss(BATCH).backward()
        torch.manual_seed(1)
        with checkpointed(again):
            ForecastModule(again, TrainConfig()).loss(BATCH).backward()
        torch.testing.assert_close(gradients(again), gradients(plain), rtol=0, atol=0)
    assert not any("forward" in vars(module) for module in again.modules())


@pytest.mark.parametrize(("count", "share"), [(3, 1.0), (1, 0.4), (3, 0.4), (99, 0.4)])
def test_parts_of_a_step_have_its_mean_gradient(count: int, share: float) -> None:
    seen = torch.rand(BATCH.target.shape, generator=torch.Generator().manual_seed(0)) < share
    batch = BATCH if share == 1 else BATCH._replace(target_observed=seen)
    whole, parts = cycle(dropout=0.0).eval(), cycle(dropout=0.0).eval()
    ForecastModule(whole, TrainConfig()).loss(batch).backward()
    module = ForecastModule(parts, TrainConfig())
    for share, part in parts_of(batch, count):
        (share * module.loss(part)).backward()
    torch.testing.assert_close(gradients(parts), gradients(whole))


def test_a_loss_that_is_not_finite_in_a_later_part() -> None:
    values = TRAIN.values.clone()
    values[120:] = 3e38
    with pytest.raises(DivergedError, match="step 1"):
        train(cycle(), replace(TRAIN, values=values), accumulate=16, epochs=1)


def test_bytes_are_counted_while_they_are_alive() -> None:
    with memory.Alive() as alive:
        first = torch.zeros(1000)
        second = first + 1
        view = second[10:]
        del first
        third = torch.cat([view, view])
    assert alive.now == alive.peak == 4 * (1000 + 1980)
    del second, view, third
    assert alive.now == 0


def test_more_windows_are_on_the_line_and_computing_again_takes_less() -> None:
    model, config = informer(FULL), TrainConfig()
    one, two, many = (memory._peak(model, TRAIN, config, n, False) for n in (1, 2, 16))
    assert many == pytest.approx(one + 15 * (two - one), rel=0.1)
    assert memory._peak(model, TRAIN, TrainConfig(checkpointing=True), 1, False) < one


class TestFitting:
    """A network whose step takes a kilobyte, and another one for each window."""

    @pytest.fixture
    def fits(self, monkeypatch: pytest.MonkeyPatch) -> Fits:
        def call(room: int | None, **config: int) -> tuple[int, list[str]]:
            said: list[str] = []
            monkeypatch.setattr(machine, "memory_left", lambda device: room)
            own = TrainConfig.model_validate(config)
            return ensure_it_fits(nn.Linear(9, 1), TRAIN, own, "cpu", said.append), said

        monkeypatch.setattr(memory, "_peak", lambda m, t, c, windows, bf16: 1000 + 1000 * windows)
        monkeypatch.setattr(memory, "STARTED", {"cpu": 30})
        monkeypatch.setattr(machine, "resident", lambda: 7)
        return call

    def test_what_it_takes_is_said_and_returned(self, fits: Fits) -> None:
        wanted = 7 + 30 + 5 * 40 + 1.85 * (1000 + 8 * 1000)
        assert fits(2**30, batch=8) == (wanted, [f"memory: about {gib(wanted)} of 1 GiB"])
        assert fits(None, batch=8, accumulate=4)[0] == pytest.approx(wanted - 1.85 * 6 * 1000)
        assert " of " not in fits(None)[1][0]

    def test_the_fewest_parts_that_fit_are_named(self, fits: Fits) -> None:
        with pytest.raises(UnavailableError, match=r"train\.accumulate=4 "):
            fits(20_000, batch=32)
        with pytest.raises(UnavailableError, match=r"train\.checkpointing=true"):
            fits(1, batch=32)


def test_weights_that_do_not_fit_are_refused_before_they_are_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "memory_left", lambda device: 2**20)
    with memory.Alive(2**20):
        nn.Linear(256, 256)
    filled: list[torch.Tensor] = []
    monkeypatch.setattr(nn.init, "kaiming_uniform_", lambda w, **kw: filled.append(w))
    with pytest.raises(UnavailableError, match=r"model\.width"), memory.Alive(2**20):
        nn.Linear(1024, 1024)
    assert filled == []
