"""The memory of a training is known before it, and options that make it fit change no gradient."""

import copy
import math
import sys

import pytest
import torch
from torch import nn

from forecaster.attention import AttentionChoice, AttentionPlan
from forecaster.base import machine
from forecaster.base.errors import UnavailableError
from forecaster.config.run_config import TrainConfig
from forecaster.datasets.windows import Batch
from forecaster.model import Informer
from forecaster.train.memory import (
    _Alive,
    _peak,
    bounded,
    checkpointed,
    ensure_it_fits,
    estimate,
    gib,
)
from forecaster.train.module import ForecastModule, parts_of
from tests.train.small import PROB, TASK, TRAIN, cycle, train

FULL = AttentionPlan(AttentionChoice("full"), AttentionChoice("full"))
BATCH = TRAIN.batch(torch.arange(10))


def informer(plan: AttentionPlan = PROB, dropout: float = 0.3) -> Informer:
    torch.manual_seed(0)
    return Informer(TASK, plan, width=8, heads=2, feed_forward=8, dropout=dropout, distil=False)


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


class TestCheckpointing:
    @pytest.mark.parametrize("plan", [PROB, FULL], ids=["prob", "full"])
    def test_the_same_gradient_with_dropout_on(self, plan: AttentionPlan) -> None:
        plain = informer(plan).train()
        again = copy.deepcopy(plain)
        for _ in range(2):  # prob draws other keys in the second step
            torch.manual_seed(1)
            ForecastModule(plain, TrainConfig()).loss(BATCH).backward()
            torch.manual_seed(1)
            with checkpointed(again):
                ForecastModule(again, TrainConfig()).loss(BATCH).backward()
            torch.testing.assert_close(gradients(again), gradients(plain), rtol=0, atol=0)

    def test_it_leaves_the_model_as_it_was(self) -> None:
        model = informer()
        with checkpointed(model), torch.no_grad():
            assert model(*BATCH.inputs).isfinite().all()
        assert not any("forward" in vars(module) for module in model.modules())

    def test_less_is_alive(self) -> None:
        model, config = informer(), TrainConfig()
        again = config.model_copy(update={"checkpointing": True})
        assert _peak(model, TRAIN, again, 1, False) < _peak(model, TRAIN, config, 1, False)

    def test_a_training_is_the_same(self) -> None:
        assert train(informer(), checkpointing=True, epochs=1).validation_mse == pytest.approx(
            train(informer(), epochs=1).validation_mse
        )


class TestAccumulation:
    @pytest.mark.parametrize("gaps", [False, True])
    @pytest.mark.parametrize("count", [1, 3, 10, 99])
    def test_the_same_mean_gradient(self, count: int, gaps: bool) -> None:
        batch = BATCH
        if gaps:
            seen = torch.rand(batch.target.shape, generator=torch.Generator().manual_seed(0)) < 0.4
            batch = batch._replace(target_observed=seen)
        whole, parts = cycle(dropout=0.0).eval(), cycle(dropout=0.0).eval()
        ForecastModule(whole, TrainConfig()).loss(batch).backward()
        module = ForecastModule(parts, TrainConfig())
        for share, part in parts_of(batch, count):
            (share * module.loss(part)).backward()
        torch.testing.assert_close(gradients(parts), gradients(whole))

    def test_every_window_once(self) -> None:
        parts = parts_of(BATCH, 3)
        assert sum(float(share) for share, _ in parts) == pytest.approx(1)
        again = Batch._make(
            None if each[0] is None else torch.cat(list(each))
            for each in zip(*(part for _, part in parts), strict=True)
        )
        torch.testing.assert_close(again.past, BATCH.past)
        torch.testing.assert_close(again.target, BATCH.target)

    def test_a_training_is_the_same(self) -> None:
        reports: dict[int, list[dict[str, float]]] = {1: [], 4: []}
        for count, told in reports.items():
            train(
                cycle(dropout=0.0), epochs=1, accumulate=count,
                report=lambda figures, epoch, told=told: told.append(figures),
            )  # fmt: skip
        for name in ("train_loss", "validation_mse"):
            assert reports[4][-1][name] == pytest.approx(reports[1][-1][name], rel=1e-3)

    def test_a_loss_that_is_not_finite_in_a_later_part(self) -> None:
        with pytest.raises(Exception, match="not finite at step 1"):
            train(cycle(), TRAIN_TO_BREAK, accumulate=16, batch=16, epochs=1)


TRAIN_TO_BREAK = copy.copy(TRAIN)
object.__setattr__(TRAIN_TO_BREAK, "values", TRAIN.values.clone())
TRAIN_TO_BREAK.values[120:] = 3e38


class TestEstimate:
    def test_what_is_alive(self) -> None:
        with _Alive() as alive:
            first = torch.zeros(1000)
            second = first + 1
            view = second[10:]
            del first
            third = torch.cat([view, view])
        assert alive.now == 4 * (1000 + 1980)
        assert alive.peak == 4 * (1000 + 1980)
        del second, view, third
        assert alive.now == 0

    def test_a_line_in_the_windows_and_copies_of_the_weights(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "forecaster.train.memory._peak", lambda m, t, c, windows, bf16: 100 + 200 * windows
        )
        monkeypatch.setattr(machine, "resident", lambda: 1000)
        model = informer()
        weights = 4 * sum(weight.numel() for weight in model.parameters())
        found = estimate(model, TRAIN, TrainConfig(), "cpu")
        assert found.first == 1000 + 30 * 2**20 + 5 * weights + int(300 * 1.85)
        assert found.bytes(9) - found.bytes(8) == found.more == pytest.approx(200 * 1.85, abs=1)

    def test_gradients_of_weights_are_counted_with_the_weights(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = informer()
        dropped = _peak(model, TRAIN, TrainConfig(), 1, False)
        monkeypatch.setattr("forecaster.train.memory._drop", lambda weight: None)
        assert dropped < _peak(model, TRAIN, TrainConfig(), 1, False)

    @pytest.mark.parametrize("windows", [4, 16])
    def test_more_windows_are_on_the_line(self, windows: int) -> None:
        model, config = informer(FULL), TrainConfig()
        one, two, many = (_peak(model, TRAIN, config, n, False) for n in (1, 2, windows))
        assert many == pytest.approx(one + (windows - 1) * (two - one), rel=0.1)


class TestFitting:
    @pytest.fixture
    def size(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """The memory of one window of the network, as if nothing else took any."""
        monkeypatch.setattr("forecaster.train.memory.STARTED", 0)
        monkeypatch.setattr(machine, "resident", lambda: 0)
        return estimate(informer(), TRAIN, TrainConfig(), "cpu").bytes(1)

    def refused(self, room: int, monkeypatch: pytest.MonkeyPatch, **config: object) -> str:
        monkeypatch.setattr(machine, "memory_left", lambda device: room)
        with pytest.raises(UnavailableError) as told:
            ensure_it_fits(
                informer(), TRAIN, TrainConfig.model_validate(config), "cpu", lambda sentence: None
            )
        return str(told.value)

    def test_it_says_how_much_of_how_much(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[str] = []
        monkeypatch.setattr(machine, "memory_left", lambda device: 3 * 2**30)
        found = ensure_it_fits(informer(), TRAIN, TrainConfig(), "cpu", said.append)
        assert said == [f"memory: about {gib(found)} of 3 GiB"]
        monkeypatch.setattr(machine, "memory_left", lambda device: None)
        ensure_it_fits(informer(), TRAIN, TrainConfig(), "cpu", said.append)
        assert said[1].startswith("memory: about ")
        assert " of " not in said[1]

    def test_parts_of_a_step(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        told = self.refused(9 * size, monkeypatch, batch=32)
        assert "--set train.accumulate=4 takes about" in told

    def test_nothing_fits(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        told = self.refused(1, monkeypatch, batch=4)
        assert "one window alone takes about" in told
        assert "Set train.checkpointing=true, a shorter window.past" in told


def test_weights_that_do_not_fit_are_refused_before_they_are_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "memory_left", lambda device: 2**20)
    with bounded():
        torch.nn.Linear(256, 256)
    filled: list[torch.Tensor] = []
    monkeypatch.setattr(torch.nn.init, "kaiming_uniform_", lambda w, **kw: filled.append(w))
    with (
        pytest.raises(UnavailableError, match=r"more than the 0.00098 GiB.*smaller model.width"),
        bounded(),
    ):
        torch.nn.Linear(1024, 1024)
    assert filled == []


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_the_peak_of_a_step_as_the_kernel_counts_it() -> None:
    """With blocks that malloc maps separately, so that the heap has no effect."""
    size = 2**26

    def step() -> torch.Tensor:
        first = torch.ones(size // 4)
        second = first * 2
        return (first * second).sum()

    step()
    with _Alive() as alive:
        step()
    _, rise = machine.memory_rise(step, "cpu")
    assert rise is not None
    assert math.isclose(alive.peak, rise, rel_tol=0.1)
