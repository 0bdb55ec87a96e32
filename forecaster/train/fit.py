"""`fit`: train a model on windows and keep the weights that validate best."""

import logging
import math
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping

from forecaster.attention import Attention
from forecaster.base import machine, signals
from forecaster.base.progress import Bar, time_left
from forecaster.base.spelling import spelled
from forecaster.config.run_config import TrainConfig
from forecaster.datasets.windows import Windows
from forecaster.model import ForecastModel
from forecaster.train.checkpoint import Checkpoints
from forecaster.train.graphs import GraphedStep, suits_graphs
from forecaster.train.loaders import EpochOrder, in_order, loader
from forecaster.train.memory import checkpointed
from forecaster.train.module import ForecastModule
from forecaster.train.resume import Checkpointing, finished, load_weights, set_random

Report = Callable[[dict[str, float], int], None]
"""Takes the metrics of an epoch and its number, counted from 1; 0 is before training."""

HINTS = (
    r".*does not have many workers",  # the windows are in memory
    r".*have no `val_dataloader`",  # a refit has nothing left to validate on
    r"GPU available but not used",  # device=cpu is a choice
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning 2.6 and torch 2.13
)
"""Warnings of Lightning that are of no use to a user."""

WIDE = 128
"""The smallest width of a network at which products in bf16 are taken to be faster on a GPU."""
SOON = 3.0
"""Seconds of training after which the first line says how long it lasts at most."""
CHECKS = 50
"""The most validations within the optimiser steps of `train.updates`: a round number; more would
cost time, fewer miss the best weights."""


@dataclass(frozen=True)
class Fit:
    """The result of a training.

    `best_epoch` is the time of the weights that the model now has, in epochs (a fraction; 0: before
    training); `validation_mse` was measured there, on the windows used for checks.
    `windows_per_second` counts training windows by the time of training, without the checks.
    `limit` is the number of epochs allowed, `late` whether `train.time_limit` ended the training,
    `still_falling` whether the last check was the best one.
    """

    validation_mse: float | None
    best_epoch: float
    epochs: int
    steps: int
    seconds: float
    windows_per_second: float
    limit: int
    late: bool
    still_falling: bool

    @property
    def sentences(self) -> list[str]:
        """Sentences about the end of training for the user."""
        sentences = []
        if self.late:
            sentences.append(
                f"{spelled('time_limit')} ended training in epoch {self.epochs} of {self.limit}; "
                "the best weights so far are kept. Closed forms follow, and an evaluation on about "
                "a thousand windows"
            )
        if self.still_falling:
            epochs = f"more epochs, {spelled('epochs', 2 * self.limit)}"
            more = f"a longer {spelled('time_limit')}" if self.late else epochs
            sentences.append(f"validation was still falling at the end: give it {more}")
        return sentences


@signals.interruptible()
@machine.keeping_memory()
def fit(
    model: ForecastModel,
    train: Windows,
    validation: Windows | None,
    config: TrainConfig,
    *,
    device: str,
    seed: int,
    report: Report = lambda figures, epoch: None,
    epochs: float | None = None,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """Train `model` in place and leave it on `device`, in eval mode.

    Training lasts at most `epochs` (a fraction is allowed), by default `train.epochs` or,
    if that is more, as many as `train.updates` takes. With `validation` it stops early, or after
    `train.time_limit`, and the weights that `KeepEarliest` chose are restored; without it the last
    weights stay. With `checkpoints` it continues from the newest one, if there is any, and ends
    with the weights of an uninterrupted training. Raises DivergedError when a loss, a validation
    error or the final weights are not finite.
    """
    state = checkpoints.read() if checkpoints else None
    if state is not None and "fit" in state.facts:
        load_weights(model, state)
        set_random(state)
        model.to(device).eval()
        if checkpoints:
            checkpoints.tell("the end of its training")
        return Fit(**state.facts["fit"])
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    pl.seed_everything(seed, verbose=False)
    order = EpochOrder(len(train), config.batch, config.stride, seed, config.windows)
    most = max(config.epochs, math.ceil((config.updates or 0) / len(order)))
    steps = round((most if epochs is None else epochs) * len(order))
    last_epoch = math.ceil(steps / len(order))
    between = max(1, len(order) // config.checks, (config.updates or 0) // CHECKS)
    model.to(train.values.device).prepare(train.rows())
    rise = max(1.0, (config.few_steps or 0) / len(order))
    module = ForecastModule(model.train(), config, most, rise)
    keep = KeepEarliest(config.tolerance)
    late = TimeLimit(config.time_limit)
    stop = EarlyStopping("validation_mse", min_delta=0.0, patience=config.patience)
    windows = steps * order.windows / order.stride / len(order)
    bar = Bar("training", windows)
    progress = EpochReport(report, last_epoch, steps, between, bar, keep, late)
    callbacks: list[Callback] = [progress]
    checks = None
    limits: dict[str, Any] = {}
    if validation is not None:
        callbacks += [keep, stop, late]
        checked = (config.validation_stride, config.validation_windows)
        order_of_checks = in_order(len(validation), validation.evaluation_batch, *checked)
        checks = loader(validation, order_of_checks)
        limits["val_check_interval"] = between
        if between > len(order):
            limits["check_val_every_n_epoch"] = None
    checkpointing = Checkpointing(checkpoints, state)
    callbacks.append(checkpointing)
    if state is not None:
        load_weights(model, state)
        late.end -= state.facts["seconds"]
        if checkpoints is not None:
            checkpoints.tell(f"epoch {state.facts['epoch'] + 1}, step {state.step} of {steps}")
    with warnings.catch_warnings():
        for hint in HINTS:
            warnings.filterwarnings("ignore", hint)
        trainer = pl.Trainer(
            accelerator="gpu" if device == "cuda" else "cpu",
            devices=1,
            precision="bf16-mixed" if takes_bf16(config, model, device) else "32-true",
            max_epochs=last_epoch,
            max_steps=steps,
            gradient_clip_val=config.clip,
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            num_sanity_val_steps=0,
            **limits,
        )
        # forecaster/base/signals.py handles signals; Lightning would exit with status 0 at SIGTERM
        vars(trainer._signal_connector)["register_signal_handlers"] = lambda: None
        if checks is not None and state is None:
            trainer.validate(module, checks, verbose=False)
            stop.best_score = torch.tensor(keep.best)  # a model may be best before training
            report({"validation_mse": keep.near[0]["mse"]}, 0)
        graphed = None
        if suits_graphs(config, model, device):
            graphed = module.graphed = GraphedStep(
                lambda batch: module.whole_step(trainer.optimizers[0], batch), model, bar.line
            )
        if steps:
            try:
                with bar, checkpointed(model) if config.checkpointing else nullcontext():
                    trainer.fit(module, loader(train, order, seed), checks)
            finally:
                if graphed is not None:
                    graphed.end()
    best_step = trainer.global_step
    best = keep.near[0] if keep.near else None
    if best is not None:
        best_step = best["step"]
        model.load_state_dict(best["state"])
    elif not all(torch.isfinite(p).all() for p in model.parameters()):
        raise module.diverged(f"the weights are not finite after step {trainer.global_step}")
    model.to(device).eval()  # Lightning leaves it on the CPU
    fitted = Fit(
        validation_mse=best["mse"] if best is not None else None,
        best_epoch=best_step / len(order),
        epochs=trainer.current_epoch,
        steps=trainer.global_step,
        seconds=time.monotonic() - checkpointing.begun,
        windows_per_second=progress.windows / max(progress.seconds, 1e-9),
        limit=last_epoch,
        late=late.struck,
        still_falling=0 < keep.best_step == keep.last_step,
    )
    if checkpoints is not None:
        finished(checkpoints, trainer.global_step, model.state_dict(), asdict(fitted))
    return fitted


def takes_bf16(config: TrainConfig, model: ForecastModel, device: str) -> bool:
    """Whether to train in mixed precision: if requested, or with `auto` for a wide network on a
    GPU that computes in bf16."""
    if config.precision != "auto" or device == "cpu":
        return config.precision == "bf16"
    widths = (m.place.width for m in model.modules() if isinstance(m, Attention))
    return max(widths, default=0) >= WIDE and torch.cuda.is_bf16_supported(False)


class KeepEarliest(Callback):
    """Remember the earliest weights whose validation is within a tolerance of the best.

    The weights before the first step count too. To choose the simplest candidate that is nearly as
    good as the best is the idea of the one-standard-error rule (Hastie, Tibshirani and Friedman,
    The Elements of Statistical Learning, sec. 7.10); here the simplest is the one trained least.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.best = math.inf
        self.best_step = self.last_step = 0
        self.last: float | None = None
        self.near: list[dict[str, Any]] = []
        """Validations: the MSE, the step before it, and the weights as `state`."""

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, ForecastModule)
        mse = float(trainer.callback_metrics["validation_mse"])
        self.last_step, self.last = trainer.global_step, mse
        if mse < self.best:  # a check that is not better than an earlier one is never chosen
            self.best, self.best_step = mse, self.last_step
            limit = self.best * (1 + self.tolerance)
            state = {k: v.clone() for k, v in module.model.state_dict().items()}
            self.near = [check for check in self.near if check["mse"] <= limit]
            self.near.append({"mse": mse, "step": trainer.global_step, "state": state})

    def state_dict(self) -> dict[str, Any]:
        names = ("best", "best_step", "last", "last_step", "near")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class TimeLimit(Callback):
    """Ends training at the first check after `seconds`."""

    def __init__(self, seconds: float | None) -> None:
        self.end = math.inf if seconds is None else time.monotonic() + seconds
        self.struck = False

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        late = time.monotonic() >= self.end
        if self.end < math.inf and trainer.global_step and not trainer.should_stop:
            self.struck = trainer.should_stop = late


class EpochReport(Callback):
    """Gives a report and a line for every epoch, and a bar that moves with every batch.

    Epochs shorter than `between` optimiser steps are reported together, once they have that many
    steps; the last epoch is always reported.
    """

    def __init__(
        self,
        report: Report,
        last_epoch: int,
        steps: int,
        between: int,
        bar: Bar,
        checks: KeepEarliest,
        late: TimeLimit,
    ) -> None:
        self.report, self.last_epoch, self.bar, self.checks = report, last_epoch, bar, checks
        self.late = late
        self.steps, self.between, self.reported = steps, between, 0
        self.windows, self.seconds, self.checking = 0, 0.0, 0.0
        self.opened: tuple[float, int] | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.opened = time.monotonic(), trainer.global_step

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.checking -= time.monotonic()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.checking += time.monotonic()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, ForecastModule)
        if trainer.global_step > self.reported:
            return
        module.forget_losses(trainer.global_step)
        self.begun, self.before, self.checking = time.monotonic(), self.windows, 0.0
        self.rate = float(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        assert isinstance(module, ForecastModule)
        self.windows += module.windows
        self.bar.advance("", module.windows)
        if self.opened and (spent := time.monotonic() - self.opened[0]) > SOON:
            step = spent / max(1, trainer.global_step - self.opened[1])
            left = min((self.steps - trainer.global_step) * step, self.late.end - time.monotonic())
            self.opened = None
            self.bar.line(f"training: {time_left(left)}")

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, ForecastModule)
        module.raise_if_diverged()
        done = trainer.global_step
        last = trainer.should_stop or done >= self.steps
        if not last and done - self.reported < self.between:
            return
        seconds = time.monotonic() - self.begun
        step = seconds / max(1, done - self.reported)
        left = min((self.steps - done) * step, self.late.end - time.monotonic())
        self.reported = done
        training = max(seconds - self.checking, 1e-9)
        self.seconds += training
        speed = (self.windows - self.before) / training
        loss = module.mean_loss()
        figures = {"train_loss": loss, "windows_per_second": speed, "learning_rate": self.rate}
        shown = f"train {loss:.4g}"
        if self.checks.last is not None:
            figures["validation_mse"] = self.checks.last
            shown += f"  validation {self.checks.last:.4g}"
        epoch = trainer.current_epoch + 1
        line = f"epoch {epoch}/{self.last_epoch}  {shown}  {speed:.0f} windows/s  {seconds:.1f} s"
        self.bar.line(line if last else f"{line}  {time_left(left)}", seldom=True)
        self.report(figures, epoch)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("windows", "seconds", "reported")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.bar.advance("", self.windows)
