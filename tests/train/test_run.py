import io
import math
import re
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.base.errors import ConfigError, DivergedError
from forecaster.evaluate import score
from forecaster.model import ForecastModel
from forecaster.train import run
from tests.train.small import (
    TRAIN,
    VALIDATION,
    Constant,
    cycle,
    informer,
    level,
    train,
    windows,
)


def weights(model: ForecastModel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def validation_mse(model: ForecastModel) -> float:
    return score(lambda b: model(*b[:3]), VALIDATION).mse


@pytest.mark.parametrize("build", [cycle, informer])
def test_the_best_weights_are_kept_ready_to_forecast(build: Any) -> None:
    model = build()
    before = validation_mse(model.eval())
    fitted = train(model, epochs=3, checks=2)
    assert not model.training
    assert fitted.validation_mse is not None
    assert fitted.validation_mse < before
    assert fitted.validation_mse == pytest.approx(validation_mse(model), rel=1e-6)
    assert 0 < fitted.best_epoch <= 3
    assert (fitted.epochs, fitted.steps) == (3, 21)
    assert fitted.windows_per_second > 0
    assert fitted.seconds > 0


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


@pytest.mark.parametrize("build", [cycle, informer])
def test_the_same_seed_gives_the_same_bits(build: Any) -> None:
    one, other, third = build(), build(), build()
    fitted = train(one, checks=2)
    torch.rand(7)
    again = train(other.eval(), checks=2)  # eval mode: fit has to turn dropout on
    train(third, checks=2, seed=1)
    assert same(weights(one), weights(other))
    assert not same(weights(one), weights(third))
    assert (fitted.validation_mse, fitted.best_epoch) == (again.validation_mse, again.best_epoch)


def test_weights_that_start_at_their_best_come_back_bit_by_bit() -> None:
    model = Constant(0.0)  # validation favours 0, training 1
    fitted = train(model, level(1, 50), level(0, 20), epochs=5, patience=3)
    assert model.number.item() == 0
    assert fitted.best_epoch == 0
    assert fitted.validation_mse == 0
    assert fitted.steps == 3 * 3  # three checks without a gain


def test_training_stops_patience_checks_after_the_best() -> None:
    model = Constant(-0.305)  # on its way to 1, past 0; about 0.1 an epoch
    seen: list[float] = []
    fitted = train(
        model, level(1, 160), level(0, 20), epochs=50, patience=4,
        report=lambda figures, epoch: seen.append(figures["validation_mse"]),
    )  # fmt: skip
    best = seen.index(min(seen))  # the first is the check before training
    assert best == 3
    assert fitted.best_epoch == best
    assert fitted.validation_mse == pytest.approx(model.number.item() ** 2)
    assert fitted.epochs == len(seen) - 1 == best + 4


def test_no_change_is_no_gain() -> None:
    fitted = train(Constant(0.5), level(1, 10), level(1, 5), epochs=9, patience=2, lr=1e-30)
    assert (fitted.best_epoch, fitted.epochs) == (0, 2)


@pytest.mark.parametrize(("tolerance", "kept"), [(0, 3), (0.1, 3), (0.4, 1), (0.7, 0), (0.99, 0)])
def test_the_earliest_check_near_the_best_is_remembered(tolerance: float, kept: int) -> None:
    class Trainer:
        global_step, callback_metrics = 0, {}

    keep, trainer = run.KeepEarliest(tolerance), Trainer()
    module = run.ForecastModule(Constant(0.0), run.TrainConfig())
    for trainer.global_step, mse in enumerate([5, 4, 6, 3, 6, 3.2, 3]):
        trainer.callback_metrics = {"validation_mse": torch.tensor(9.0 + trainer.global_step)}
        trainer.callback_metrics["validation_stop"] = torch.tensor(float(mse))
        keep.on_validation_end(trainer, module)
    assert keep.best == 3
    assert (keep.near[0].step, keep.near[0].mse) == (kept, 9 + kept)


def test_a_tolerance_gives_the_earlier_weights_back() -> None:
    best, near = Constant(-0.345), Constant(-0.345)  # on their way to 1, past 0
    options: dict[str, Any] = {"epochs": 50, "patience": 4}
    fitted = train(best, level(1, 160), level(0, 20), **options)
    early = train(near, level(1, 160), level(0, 20), tolerance=0.9999, **options)
    assert early.best_epoch < fitted.best_epoch
    assert early.epochs == fitted.epochs
    assert early.validation_mse == pytest.approx(near.number.item() ** 2)


def recorded_checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps after which validation is checked, in order."""
    seen: list[int] = []

    class Recorder(run.KeepEarliest):
        def on_validation_end(self, trainer: Any, module: Any) -> None:
            seen.append(trainer.global_step)
            super().on_validation_end(trainer, module)

    monkeypatch.setattr(run, "KeepEarliest", Recorder)
    return seen


@pytest.mark.parametrize(
    ("steps", "checks", "at"),
    [
        (7, 1, [0, 7, 14]),
        (7, 2, [0, 3, 6, 10, 13]),
        (7, 7, list(range(15))),
        (7, 50, list(range(15))),
        (49, 4, [0, 12, 24, 36, 48, 61, 73, 85, 97]),
    ],
)
def test_checks_are_spread_over_an_epoch(
    steps: int, checks: int, at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = recorded_checks(monkeypatch)
    train(Constant(0.0), level(1, steps), level(1, 1), batch=1, checks=checks, patience=99)
    assert seen == at


def test_few_windows_get_more_epochs_and_checks_that_are_apart(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = recorded_checks(monkeypatch)
    reported: list[int] = []
    fitted = train(
        Constant(-9.0), level(1, 48), level(1, 1), lr=1e-3, updates=200, checks=4,
        report=lambda figures, epoch: reported.append(epoch),
    )  # fmt: skip
    assert (fitted.steps, fitted.epochs, fitted.limit) == (201, 67, 67)  # of three steps
    assert seen == list(range(0, 201, 4))
    assert reported == [0, *range(2, 67, 2), 67]
    lines = capfd.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"epoch {n}/67" for n in reported[1:]]
    losses = [float(line.split()[3]) for line in lines]
    assert losses == sorted(losses, reverse=True)


def test_many_windows_are_trained_as_without_that_floor() -> None:
    plain, floored = cycle(), cycle()
    one = train(plain, checks=2, schedule="cosine")
    other = train(floored, checks=2, schedule="cosine", updates=14, time_limit=1e9)
    assert same(weights(plain), weights(floored))
    assert replace(one, seconds=0, windows_per_second=0) == replace(
        other, seconds=0, windows_per_second=0
    )


def test_a_schedule_runs_over_the_epochs_that_are_allowed() -> None:
    rates: list[float] = []
    train(
        Constant(-9.0), level(1, 10), None, updates=50, schedule="cosine", lr=1e-3,
        report=lambda figures, epoch: rates.append(figures["learning_rate"]),
    )  # fmt: skip
    assert len(rates) == 50
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 1e-5


@pytest.mark.parametrize(("few_steps", "rate"), [(None, 1e-3), (7, 1e-3), (14, 2e-3), (5, 1e-3)])
def test_the_rates_of_parts_rise_where_an_epoch_has_few_steps(
    few_steps: int | None, rate: float
) -> None:
    risen, named = cycle(), cycle()
    train(risen, few_steps=few_steps, lr_of={"linear": 1e-3})  # seven steps an epoch
    train(named, lr_of={"linear": rate})
    assert same(weights(risen), weights(named))


def test_what_still_falls_is_told() -> None:
    falling = train(Constant(-9.0), level(1, 16), level(1, 5), epochs=5, patience=3)
    assert falling.still_falling
    assert falling.sentences == [
        "validation was still falling at the end: give it more epochs, --epochs 10"
    ]
    stopped = train(Constant(0.0), level(1, 50), level(0, 20), epochs=5, patience=3)
    assert not stopped.still_falling
    assert stopped.sentences == []
    assert not train(Constant(0.0), validation=None).still_falling


def test_time_ends_training_at_the_first_check() -> None:
    model = Constant(-9.0)
    fitted = train(model, level(1, 160), level(1, 20), epochs=5, checks=2, time_limit=1e-9)
    assert (fitted.steps, fitted.best_epoch, fitted.late) == (5, 0.5, True)
    assert model.number.item() > -9
    assert fitted.sentences == [
        "--time-limit ended training in epoch 1 of 5; the best weights so far are kept",
        "validation was still falling at the end: give it a longer --time-limit",
    ]
    worse = train(Constant(0.0), level(1, 160), level(0, 20), epochs=5, time_limit=1e-9)
    assert (worse.steps, worse.best_epoch, worse.still_falling) == (10, 0, False)
    assert len(worse.sentences) == 1


@pytest.mark.parametrize(
    ("epochs", "steps"), [(1.5, 10), (0.3, 2), (2.0, 14), (0.0, 0), (None, 21)]
)
def test_without_validation_it_runs_exactly_so_far(epochs: float | None, steps: int) -> None:
    model, config = Constant(0.0), run.TrainConfig(batch=16, epochs=3)
    fitted = run.fit(model, level(1, 112), None, config, device="cpu", seed=0, epochs=epochs)
    assert fitted.steps == steps
    assert fitted.best_epoch == steps / 7
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

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        forecast = super().forward(past, past_known, future_known)
        self.calls += self.training
        return forecast * (math.nan if self.training and self.calls >= self.at else 1)


@pytest.mark.parametrize(
    ("at", "checks", "epoch"), [(1, 1, 1), (3, 7, 1), (7, 2, 1), (9, 1, 2), (14, 2, 2)]
)
@pytest.mark.parametrize("validation", [VALIDATION, None])
def test_nan_ends_the_run_at_its_step(
    at: int, checks: int, epoch: int, validation: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model, reported = Breaks(at), []
    with pytest.raises(DivergedError, match=rf"not finite at step {at} \(epoch {epoch}\).*lr"):
        train(
            model, level(1, 112), validation, checks=checks,
            report=lambda figures, number: reported.append(number),
        )  # fmt: skip
    assert reported == list(range(1 if validation is None else 0, epoch))
    assert "nan" not in capsys.readouterr().err


def test_nan_is_no_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[run.KeepEarliest] = []

    class Recorder(run.KeepEarliest):
        def __init__(self, tolerance: float) -> None:
            super().__init__(tolerance)
            kept.append(self)

    monkeypatch.setattr(run, "KeepEarliest", Recorder)
    with pytest.raises(DivergedError):
        train(Breaks(9), level(1, 112), level(1, 20), checks=7)
    (keep,) = kept
    assert math.isfinite(keep.best)
    assert keep.near[0].step == 8
    assert all(value.isfinite().all() for value in keep.near[0].state.values())


def test_a_rate_far_too_high_is_told() -> None:
    with pytest.raises(DivergedError, match=r"not finite .*Lower train.lr \(now 1e\+30\)"):
        train(cycle(), lr=1e30)


class BlindToNan(Constant):
    """A loss that is finite, with a gradient that is not."""

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        forecast = super().forward(past, past_known, future_known)
        return forecast + (self.number - self.number).sqrt()


def test_validation_that_is_not_finite_is_told() -> None:
    with pytest.raises(DivergedError, match=r"validation error is not finite after step 1 "):
        train(BlindToNan(0.0), level(1, 112), level(1, 20), checks=7)
    broken = Constant(math.inf)
    with pytest.raises(DivergedError, match=r"validation error is not finite after step 0 "):
        train(broken, level(1, 112), level(1, 20))


def test_final_weights_that_are_not_finite_are_told() -> None:
    with pytest.raises(DivergedError, match=r"weights are not finite after step 1 "):
        run.fit(
            BlindToNan(0.0), level(1, 10), None, run.TrainConfig(), device="cpu", seed=0, epochs=1
        )


@pytest.mark.parametrize(
    ("schedule", "rates"), [("halve", [1, 1 / 2, 1 / 4]), ("type1", [1, 1, 1 / 2])]
)
def test_an_epoch_reports_the_rate_that_it_used(schedule: str, rates: list[float]) -> None:
    reported: list[dict[str, float]] = []
    train(
        Constant(0.0), level(1, 10), level(1, 5), epochs=3, schedule=schedule, lr=0.5,
        report=lambda figures, epoch: reported.append(figures),
    )  # fmt: skip
    assert [figures["learning_rate"] for figures in reported[1:]] == [0.5 * rate for rate in rates]


def test_the_rate_of_a_group_is_used() -> None:
    model = cycle()
    before = weights(model)
    run.fit(
        model, TRAIN, None, run.TrainConfig(lr=1e-2, lr_of={"encoder": 1e-12}),
        device="cpu", seed=0, epochs=1,
    )  # fmt: skip
    after = weights(model)
    assert not torch.equal(after["average.bias"], before["average.bias"])
    name = "encoder.0.feed_forward.0.weight"
    torch.testing.assert_close(after[name], before[name], atol=1e-9, rtol=0)
    with pytest.raises(ConfigError, match=r"lr_of\.nothing"):
        train(model, lr_of={"nothing": 1.0})


def test_gradients_are_clipped() -> None:
    free, clipped = Constant(0.0), Constant(0.0)
    train(free, level(1, 10), None)
    train(clipped, level(1, 10), None, clip=1e-12)  # far below the epsilon of Adam
    assert free.number.item() > 1e-2 > 1e-4 > clipped.number.item() > 0


def test_a_large_machine_makes_no_other_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning then suggests to use workers and the GPU."""
    connector = "lightning.pytorch.trainer.connectors.data_connector"
    monkeypatch.setattr(f"{connector}.suggested_max_num_workers", lambda devices: 16)
    monkeypatch.setattr("lightning.pytorch.accelerators.CUDAAccelerator.is_available", lambda: True)
    train(cycle(), epochs=1)  # a warning is an error here
    monkeypatch.setattr(run, "HINTS", ())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train(cycle(), epochs=1)
    messages = " ".join(str(warning.message) for warning in told)
    assert "does not have many workers" in messages
    assert "GPU available but not used" in messages


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_handlers_of_signals_are_those_of_the_caller(number: signal.Signals) -> None:
    seen: list[Any] = []
    before = signal.getsignal(number)
    train(
        cycle(), epochs=2, report=lambda figures, epoch: seen.append(signal.getsignal(number)),
    )  # fmt: skip
    assert seen == [before] * 3


def test_the_loss_is_the_mean_over_the_steps() -> None:
    reported: list[dict[str, float]] = []
    train(
        Constant(0.0), level(3, 64), level(3, 5), epochs=1, lr=1e-12, loss="mae",
        report=lambda figures, epoch: reported.append(figures),
    )  # fmt: skip
    before, figures = reported
    assert before == {"validation_mse": pytest.approx(9)}
    assert figures["train_loss"] == pytest.approx(3)
    assert figures["validation_mse"] == pytest.approx(9)


@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
def test_half_precision_trains_and_validates_in_full(loss: str) -> None:
    model = cycle()
    fitted = train(model, precision="bf16", loss=loss, epochs=1)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert fitted.best_epoch > 0
    assert fitted.validation_mse == pytest.approx(validation_mse(model), rel=1e-6)


def test_a_stride_uses_part_of_the_windows() -> None:
    fitted = train(cycle(), stride=4, validation_stride=3, epochs=1)
    assert fitted.steps == 1  # 30 of 121 windows in batches of 16
    assert fitted.validation_mse is not None


def test_one_line_an_epoch_and_nothing_else_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train(cycle(), epochs=3)
    out, err = capfd.readouterr()
    assert out == ""
    figure = r"\d[\d.e+-]*"
    for number, line in enumerate(err.splitlines(keepends=True), start=1):
        expected = (
            rf"epoch {number}/3  train {figure}  validation {figure}  \d+ windows/s  \d+\.\d s\n"
        )
        assert re.fullmatch(expected, line), line
    assert len(err.splitlines()) == 3
    assert list(tmp_path.iterdir()) == []
    run.fit(cycle(), TRAIN, None, run.TrainConfig(), device="cpu", seed=0, epochs=1.2)
    assert re.fullmatch(
        rf"epoch 1/2  train {figure}  \d+ .*\nepoch 2/2  train .*\n", capfd.readouterr().err
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("breaks", [False, True])
def test_a_terminal_shows_a_bar_below_the_lines(
    breaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    if breaks:
        with pytest.raises(DivergedError):
            train(Breaks(9), level(1, 112))
    else:
        train(cycle())
    assert isinstance(sys.stderr, Terminal)
    shown = sys.stderr.getvalue()
    assert re.search(
        r"training .*━.*100%.*\d:\d\d:\d\d" if not breaks else r"training .*━.*%", shown
    )
    assert "epoch 1/2  train" in shown
    assert shown.rstrip("\r\n").count("\x1b[?25h") == 1  # the cursor is back


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_windows_live_on_the_device(device: str) -> None:
    model = cycle()
    fitted = train(
        model, windows(0, 150).to(device), windows(150, 200).to(device),
        device=device, precision="32", checks=2,
    )  # fmt: skip
    on_cpu = train(cycle(), checks=2)
    assert fitted.validation_mse == pytest.approx(on_cpu.validation_mse, rel=1e-3)
    model.to(device)
    got = score(lambda b: model(*b[:3]), VALIDATION.to(device))
    assert got.mse == pytest.approx(fitted.validation_mse, rel=1e-4)


class TestPrecision:
    """Which precision is chosen, from given rates."""

    @pytest.mark.parametrize(("device", "width", "supported", "auto"), [
        ("cuda", 128, True, True),
        ("cuda", 128, False, False),
        ("cuda", 64, True, False),
        ("cpu", 128, True, False),
    ])  # fmt: skip
    def test_what_is_asked_for_or_pays(
        self, device: str, width: int, supported: bool, auto: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: supported)
        for precision, wanted in (("32", False), ("auto", auto), ("bf16", True)):
            config = run.TrainConfig.model_validate({"precision": precision})
            assert run.takes_bf16(config, cycle(width=width), device) == wanted
