"""`fit`: train a model on windows, keep the weights that validate best."""

import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, EarlyStopping, RichProgressBar
from torch import Tensor

from forecaster.config import TrainConfig
from forecaster.datasets import Windows
from forecaster.errors import DivergedError
from forecaster.model import ForecastModel
from forecaster.train.loaders import EpochOrder, InOrder, loader
from forecaster.train.module import ForecastModule

Report = Callable[[dict[str, float], int], None]
"""Takes the figures of an epoch and its number, counted from 1."""


@dataclass(frozen=True)
class Fit:
    """What a training came to.

    `best_epoch` is the point on the path whose weights the model now has, as a fraction of
    epochs (0: as it was before training); `validation_mse` was measured there, on the windows
    used for checks.
    """

    validation_mse: float | None
    best_epoch: float
    epochs: int
    steps: int
    seconds: float
    windows_per_second: float


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
) -> Fit:
    """Train `model` in place.

    With `validation` the best weights are restored at the end, those before the first step
    included; without it training runs for exactly `epochs` (a fraction is allowed) and keeps the
    last ones. Raises DivergedError when the loss is not finite.
    """
    # Lightning's hints about workers and loggers do not fit loaders that live in memory
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    pl.seed_everything(seed, verbose=False)
    order = EpochOrder(len(train), config.batch, config.stride, seed)
    module = ForecastModule(model, config)
    keep = KeepBest()
    speed = EpochReport(report, order)
    callbacks: list[Callback] = [speed]
    limits: dict[str, Any] = {"max_epochs": config.epochs}
    checks = None
    if validation is not None:
        stop = EarlyStopping(
            "validation_mse", patience=config.patience, check_finite=True, min_delta=0.0
        )
        callbacks += [keep, stop]
        checks = loader(validation, InOrder(len(validation), 256, config.validation_stride))
        limits["val_check_interval"] = min(1.0, max(1, len(order) // config.checks) / len(order))
    else:
        limits = {"max_epochs": -1, "max_steps": round((epochs or config.epochs) * len(order))}
    if sys.stderr.isatty():
        callbacks.append(RichProgressBar(console_kwargs={"stderr": True}))
    bf16 = (device == "cuda" and config.precision != "32") or config.precision == "bf16"
    with warnings.catch_warnings():
        for hint in (".*does not have many workers.*", ".*is smaller than the logging interval.*"):
            warnings.filterwarnings("ignore", hint)
        trainer = pl.Trainer(
            accelerator="gpu" if device == "cuda" else "cpu",
            devices=1,
            precision="bf16-mixed" if bf16 else "32-true",
            gradient_clip_val=config.clip,
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=sys.stderr.isatty(),
            num_sanity_val_steps=0,
            **limits,
        )
        begun = time.monotonic()
        if checks is not None:
            trainer.validate(module, checks, verbose=False)
        trainer.fit(module, loader(train, order, seed), checks)
    if validation is not None:
        if keep.state is None:
            raise DivergedError("no validation gave a finite figure, not even before training")
        model.load_state_dict(keep.state)
    return Fit(
        validation_mse=keep.best if validation is not None else None,
        best_epoch=(keep.step if validation is not None else trainer.global_step) / len(order),
        epochs=trainer.current_epoch,
        steps=trainer.global_step,
        seconds=time.monotonic() - begun,
        windows_per_second=speed.windows / max(speed.seconds, 1e-9),
    )


class KeepBest(Callback):
    """Remember the weights of the best validation; a figure that is not finite never wins."""

    def __init__(self) -> None:
        self.best = float("inf")
        self.step = 0
        self.state: dict[str, Tensor] | None = None

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        value = float(trainer.callback_metrics["validation_mse"])
        if value < self.best:
            assert isinstance(module, ForecastModule)
            self.best, self.step = value, trainer.global_step
            self.state = {k: v.clone() for k, v in module.model.state_dict().items()}


class EpochReport(Callback):
    """One report, and off a terminal one line on stderr, for every epoch."""

    def __init__(self, report: Report, order: EpochOrder) -> None:
        self.report, self.order = report, order
        self.windows, self.seconds = 0, 0.0
        self.begun = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.begun = time.monotonic()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, ForecastModule)
        seconds = time.monotonic() - self.begun
        windows = self.order.windows // self.order.stride
        self.windows += windows
        self.seconds += seconds
        figures = {
            "train_loss": module.mean_loss(),
            "windows_per_second": windows / max(seconds, 1e-9),
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
        }
        if "validation_mse" in trainer.callback_metrics:
            figures["validation_mse"] = float(trainer.callback_metrics["validation_mse"])
        epoch = trainer.current_epoch + 1
        self.report(figures, epoch)
        if not sys.stderr.isatty():
            shown = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
            print(f"epoch {epoch}  {shown}  {seconds:.1f} s", file=sys.stderr, flush=True)
