import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.base.errors import DivergedError
from forecaster.evaluate.metrics import score
from forecaster.model import ForecastModel
from forecaster.train import fit
from tests.train.small import TRAIN, VALIDATION, Constant, cycle, informer, level, same, train


class Reports(list[tuple[int, dict[str, float]]]):
    """The figures that a training reports, with the numbers of their epochs."""

    def __call__(self, figures: dict[str, float], epoch: int) -> None:
        self.append((epoch, figures))

    def of(self, name: str) -> list[float]:
        return [figures[name] for _, figures in self if name in figures]


def validation_mse(model: ForecastModel) -> float:
    return score(lambda b: model(*b[:3]), VALIDATION).mse


@pytest.mark.parametrize("build", [cycle, informer])
def test_the_best_weights_are_kept_ready_to_forecast(build: Any) -> None:
    model = build()
    before = validation_mse(model.eval())
    fitted = train(model, epochs=3, checks=2)
    assert not model.training
    assert fitted.validation_mse < before
    assert fitted.validation_mse == pytest.approx(validation_mse(model), rel=1e-6)
    assert 0 < fitted.best_epoch <= 3
    assert (fitted.epochs, fitted.steps) == (3, 21)
    assert fitted.seconds > 0 < fitted.windows_per_second


@pytest.mark.parametrize("build", [cycle, informer])
def test_trains_on_what_was_observed(build: Any) -> None:
    values = TRAIN.values.clone()
    values[torch.rand(values.shape, generator=torch.Generator().manual_seed(0)) < 0.2] = torch.nan
    values[40:80, 1] = torch.nan
    gaps = [replace(split, values=values) for split in (TRAIN, VALIDATION)]
    model = build()
    fitted = train(model, *gaps, epochs=4, checks=2, windows=100, validation_windows=30)
    assert fitted.steps == 4 * 3  # of 121 windows every second
    assert validation_mse(model) < validation_mse(build().eval())


def test_the_same_seed_gives_the_same_bits() -> None:
    one, other, third = informer(), informer(), informer()
    fitted = train(one)
    torch.rand(7)
    again = train(other.eval())  # eval mode: fit has to turn dropout on
    train(third, seed=1)
    assert same(one, other)
    assert not same(one, third)
    assert (fitted.validation_mse, fitted.best_epoch) == (again.validation_mse, again.best_epoch)


def test_weights_that_start_at_their_best_come_back_bit_by_bit() -> None:
    model = Constant(0.0)  # validation favours 0, training 1
    fitted = train(model, level(1, 50), level(0, 20), epochs=5, patience=3)
    assert (model.number.item(), fitted.best_epoch, fitted.validation_mse) == (0, 0, 0)
    assert fitted.steps == 3 * 3  # three checks without a gain
    still = train(Constant(0.5), level(1, 10), level(1, 1), epochs=9, patience=2, lr=1e-30)
    assert (still.best_epoch, still.epochs) == (0, 2), "no change is no gain"


def test_training_stops_patience_checks_after_the_best() -> None:
    options: dict[str, Any] = {"epochs": 50, "patience": 4}
    model, reports = Constant(-0.345), Reports()  # on its way to 1, past 0; about 0.1 an epoch
    fitted = train(model, level(1, 160), level(0, 20), report=reports, **options)
    seen = reports.of("validation_mse")
    best = seen.index(min(seen))  # the first is the check before training
    assert fitted.best_epoch == best > 1
    assert fitted.validation_mse == pytest.approx(model.number.item() ** 2)
    assert fitted.epochs == len(seen) - 1 == best + 4
    near = Constant(-0.345)
    early = train(near, level(1, 160), level(0, 20), tolerance=0.9999, **options)
    assert early.best_epoch < fitted.best_epoch, "the earliest within a tolerance"
    assert early.epochs == fitted.epochs
    assert early.validation_mse == pytest.approx(near.number.item() ** 2)


@pytest.mark.parametrize(("tolerance", "kept"), [(0, 3), (0.1, 3), (0.4, 1), (0.7, 0), (0.99, 0)])
def test_the_earliest_check_near_the_best_is_remembered(tolerance: float, kept: int) -> None:
    class Trainer:
        global_step, callback_metrics = 0, {}

    keep, trainer = fit.KeepEarliest(tolerance), Trainer()
    module = fit.ForecastModule(Constant(0.0), fit.TrainConfig())
    errors = [5, 4, 6, 3, 6, 3.2, 3]
    for trainer.global_step, mse in enumerate(errors):
        trainer.callback_metrics = {"validation_mse": torch.tensor(float(mse))}
        keep.on_validation_end(trainer, module)
    assert keep.best == 3
    assert (keep.near[0]["step"], keep.near[0]["mse"]) == (kept, errors[kept])


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps after which validation is checked, in order."""
    seen: list[int] = []

    class Recorder(fit.KeepEarliest):
        def on_validation_end(self, trainer: Any, module: Any) -> None:
            seen.append(trainer.global_step)
            super().on_validation_end(trainer, module)

    monkeypatch.setattr(fit, "KeepEarliest", Recorder)
    return seen


@pytest.mark.parametrize(
    ("checks", "at"), [(1, [0, 7, 14]), (2, [0, 3, 6, 10, 13]), (50, list(range(15)))]
)
def test_checks_are_spread_over_an_epoch(checks: int, at: list[int], checked: list[int]) -> None:
    train(Constant(0.0), level(1, 7), level(1, 1), batch=1, checks=checks, patience=99)
    assert checked == at


def test_few_windows_get_more_epochs_and_checks_that_are_apart(
    capfd: pytest.CaptureFixture[str], checked: list[int]
) -> None:
    reports, data = Reports(), (level(1, 48), level(1, 1))
    fitted = train(Constant(-9.0), *data, lr=1e-3, updates=200, checks=4, report=reports)
    assert (fitted.steps, fitted.epochs, fitted.limit) == (201, 67, 67)  # of three steps
    assert checked == list(range(0, 201, 4))
    epochs = [epoch for epoch, _ in reports]
    assert epochs == [0, *range(2, 67, 2), 67]
    lines = [line.split("  ") for line in capfd.readouterr().err.splitlines()]
    assert [line[0] for line in lines] == [f"epoch {n}/67" for n in epochs[1:]]
    assert [words.split()[0] for words in lines[-1][1:3]] == ["train", "validation"]
    losses = reports.of("train_loss")
    assert losses == sorted(losses, reverse=True)


def test_an_epoch_reports_the_rate_that_it_used_and_a_schedule_runs_over_all() -> None:
    reports, data = Reports(), (level(1, 10), level(1, 5))
    train(Constant(0.0), *data, epochs=3, schedule="halve", lr=0.5, report=reports)
    assert reports.of("learning_rate") == [0.5, 0.25, 0.125]
    reports.clear()
    train(Constant(-9.0), data[0], None, updates=50, schedule="cosine", lr=1e-3, report=reports)
    rates = reports.of("learning_rate")
    assert len(rates) == 50
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 1e-5


@pytest.mark.parametrize(("few_steps", "rate"), [(None, 1e-3), (5, 1e-3), (14, 2e-3)])
def test_the_rates_of_parts_rise_where_an_epoch_has_few_steps(few_steps: Any, rate: float) -> None:
    risen, named = cycle(), cycle()
    train(risen, few_steps=few_steps, lr_of={"linear": 1e-3})  # seven steps an epoch
    train(named, lr_of={"linear": rate})
    assert same(risen, named)


def test_what_still_falls_is_told() -> None:
    falling = train(Constant(-9.0), level(1, 16), level(1, 5), epochs=5, patience=3)
    assert falling.still_falling
    assert "--epochs 10" in falling.sentences[0]
    stopped = train(Constant(0.0), level(1, 50), level(0, 20), epochs=5, patience=3)
    assert (stopped.still_falling, stopped.sentences) == (False, [])
    assert not train(Constant(0.0), validation=None).still_falling


def test_time_ends_training_at_the_first_check() -> None:
    model = Constant(-9.0)
    fitted = train(model, level(1, 160), level(1, 20), epochs=5, checks=2, time_limit=1e-9)
    assert (fitted.steps, fitted.best_epoch, fitted.late) == (5, 0.5, True)
    assert model.number.item() > -9
    assert ["--time-limit" in told for told in fitted.sentences] == [True, True]


@pytest.mark.parametrize(("until", "steps"), [(1.5, 10), (0.3, 2), (0.0, 0), (None, 21)])
def test_without_validation_it_runs_exactly_so_far(until: float | None, steps: int) -> None:
    model = Constant(0.0)
    fitted = train(model, level(1, 112), None, epochs=3, until=until)
    assert (fitted.steps, fitted.best_epoch) == (steps, steps / 7)
    assert fitted.validation_mse is None
    assert (model.number.item() > 0) == (steps > 0)
    assert not model.training


def test_one_window_is_enough() -> None:
    assert train(Constant(0.0), level(1, 1), level(1, 1), epochs=2).steps == 2


class Breaks(Constant):
    """Gives NaN from a given training step on."""

    def __init__(self, at: int) -> None:
        super().__init__(0.0)
        self.calls, self.at = 0, at

    def forward(self, past: Tensor, *known: Tensor | None) -> Tensor:
        self.calls += self.training
        broken = self.training and self.calls >= self.at
        return super().forward(past) * (math.nan if broken else 1)


@pytest.mark.parametrize(("at", "checks", "epoch"), [(3, 7, 1), (9, 1, 2)])
@pytest.mark.parametrize("validation", [VALIDATION, None])
def test_nan_ends_the_run_at_its_step(
    at: int, checks: int, epoch: int, validation: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = Reports()
    with pytest.raises(DivergedError, match=rf"step {at} \(epoch {epoch}\).*train\.lr"):
        train(Breaks(at), level(1, 112), validation, checks=checks, report=reports)
    assert [number for number, _ in reports] == list(range(validation is None, epoch))
    assert "nan" not in capsys.readouterr().err


class BlindToNan(Constant):
    """A loss that is finite, with a gradient that is not."""

    def forward(self, past: Tensor, *known: Tensor | None) -> Tensor:
        return super().forward(past) + (self.number - self.number).sqrt()


def test_what_the_loss_does_not_show_is_told() -> None:
    for start, validation, words in (
        (0.0, level(1, 20), "validation error .* after step 1 "),
        (math.inf, level(1, 20), "validation error .* after step 0 "),
        (0.0, None, "weights .* after step 1 "),
    ):
        with pytest.raises(DivergedError, match=words):
            train(BlindToNan(start), level(1, 16), validation, epochs=1)


def test_gradients_are_clipped() -> None:
    free, clipped = Constant(0.0), Constant(0.0)
    train(free, level(1, 10), None)
    train(clipped, level(1, 10), None, clip=1e-12)  # far below the epsilon of Adam
    assert free.number.item() > 1e-2 > 1e-4 > clipped.number.item() > 0


def test_the_loss_is_the_mean_over_the_steps() -> None:
    reports, data = Reports(), (level(3, 64), level(3, 5))
    train(Constant(0.0), *data, epochs=1, lr=1e-12, loss="mae", report=reports)
    assert reports.of("validation_mse") == pytest.approx([9, 9])
    assert reports.of("train_loss") == pytest.approx([3])


def test_half_precision_trains_and_validates_in_full() -> None:
    model = cycle()
    fitted = train(model, precision="bf16", epochs=1, stride=4, validation_stride=1)
    assert fitted.steps == 1, "30 of 121 windows in batches of 16"
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert fitted.best_epoch > 0
    assert fitted.validation_mse == pytest.approx(validation_mse(model), rel=1e-6)


def test_the_precision_is_what_is_asked_for_or_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    pays = ("cuda", 128, True)
    for case in (pays, ("cuda", 128, False), ("cuda", 64, True), ("cpu", 128, True)):
        device, width, supported = case
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated, own=supported: own)
        for precision, wanted in (("32", False), ("auto", case == pays), ("bf16", True)):
            config = fit.TrainConfig.model_validate({"precision": precision})
            assert fit.takes_bf16(config, cycle(width=width), device) == wanted
