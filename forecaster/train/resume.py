"""The contents of the checkpoint of a training in progress, and how to continue from it.

A checkpoint is taken before an optimiser step, when everything that belongs to earlier steps is
done: the validation after them, the decision to stop, the report of their epoch. Restoring it makes
every later step the same, bit for bit, on the same machine with the same threads.
"""

import time
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils._pytree import tree_map

from forecaster.base import signals
from forecaster.base.errors import DataError
from forecaster.train.checkpoint import Checkpoints, State
from forecaster.train.loaders import EpochOrder
from forecaster.train.module import ForecastModule

PATIENT = 4.0
"""The seconds that a signal waits for the end of a validation, so that a checkpoint can follow."""
SPARED = 50
"""Training between two checkpoints takes at least this many times as long as writing one."""


class Checkpointing(Callback):
    """Writes checkpoints at the start of an epoch and every few minutes; continues from `state`.

    After a signal it writes one more and raises Stopped. Without `checkpoints` it does nothing.
    A checkpoint holds the state of every callback.
    """

    def __init__(
        self, checkpoints: Checkpoints | None, state: State | None, order: EpochOrder
    ) -> None:
        self.checkpoints, self.state, self.order = checkpoints, state, order
        self.begun = time.monotonic()
        if state is not None:
            self.begun -= state.facts["seconds"]
        self.last, self.cost = time.monotonic(), 0.0

    def set_back(self, trainer: pl.Trainer) -> None:
        """Make the loops of Lightning begin where the state was taken."""
        if self.state is None:
            return
        step, batch = self.state.step, self.state.facts["batch"]
        epoch = self.state.facts["epoch"]
        self.order.begin = epoch, batch
        self.order.set_epoch(epoch)
        epochs = trainer.fit_loop
        batches = epochs.epoch_loop
        counted: Any
        for counted in (epochs.epoch_progress.total, epochs.epoch_progress.current):
            counted.ready = counted.started = epoch + (batch > 0)
            counted.processed = counted.completed = epoch
        for counted, count in (
            (batches.batch_progress.total, step),
            (batches.batch_progress.current, batch),
        ):
            counted.ready = counted.started = counted.processed = counted.completed = count
        batches.automatic_optimization.optim_progress.optimizer.step.total.completed = step
        epochs.restarting = batch > 0  # after a whole epoch, the next one simply starts

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, ForecastModule)
        if self.state is None:
            return
        own = self.state.facts
        module.forget_losses(own["before"])
        module.losses += own["losses"].to(module.device).unbind()
        moments = {int(place): each for place, each in own["optimiser"].pop("state").items()}
        optimiser = trainer.optimizers[0]
        rates = [group["lr"] for group in optimiser.param_groups]
        optimiser.load_state_dict({**own["optimiser"], "state": moments})
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            if isinstance(rate, Tensor):  # for graphs, which read its memory
                group["lr"] = rate.fill_(group["lr"])
        trainer.lr_scheduler_configs[0].scheduler.load_state_dict(own["schedule"])
        for each in _callbacks(trainer):
            each.load_state_dict(own["callbacks"][each.state_key])

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int
    ) -> None:
        assert isinstance(module, ForecastModule)
        now = time.monotonic()
        if self.state is not None:
            set_random(self.state)  # last of all, so that nothing draws in between
            self.state, self.last = None, now
            if self.checkpoints is not None:
                signals.check()
            return
        if self.checkpoints is None:
            return
        if signals.waiting():
            self.write(trainer, module, index)
            signals.check()
        due = index == 0 or now - self.last >= 60 * self.checkpoints.minutes
        if due and trainer.global_step and now - self.last >= SPARED * self.cost:
            self.write(trainer, module, index)

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self.checkpoints is not None and signals.waiting() > PATIENT:
            signals.check()

    def write(self, trainer: pl.Trainer, module: ForecastModule, index: int) -> None:
        assert self.checkpoints is not None
        now, optimiser = time.monotonic(), trainer.optimizers[0].state_dict()
        facts = {
            "epoch": trainer.current_epoch,
            "batch": index,
            "seconds": now - self.begun,
            "model": module.model.state_dict(),
            "optimiser": {**optimiser, "param_groups": _plain(optimiser["param_groups"])},
            "schedule": _plain(trainer.lr_scheduler_configs[0].scheduler.state_dict()),
            "callbacks": {each.state_key: each.state_dict() for each in _callbacks(trainer)},
            "losses": torch.stack(module.losses) if module.losses else torch.zeros(0),
            "before": module.before,
            "random": _random(),
        }
        self.checkpoints.write(State(trainer.global_step, facts))
        self.last = time.monotonic()
        self.cost = self.last - now


def _plain(values: Any) -> Any:
    """The same with numbers for tensors, such as learning rates of graphs."""
    return tree_map(lambda x: float(x) if isinstance(x, Tensor) else x, values)


def _callbacks(trainer: pl.Trainer) -> list[Callback]:
    return trainer.callbacks  # type: ignore[attr-defined, no-any-return]


def finished(checkpoints: Checkpoints, step: int, weights: dict[str, Tensor], fit: Any) -> None:
    """Write the state after the last step: the weights that were kept, and the `Fit`."""
    checkpoints.write(State(step, {"fit": fit, "model": weights, "random": _random()}))


def load_weights(model: torch.nn.Module, state: State) -> None:
    try:
        model.load_state_dict(state.facts["model"])
    except RuntimeError as error:
        raise DataError(
            f"the checkpoint does not fit the network of this version of forecaster: {error}. "
            "Train again, or continue with the version that started the training."
        ) from None


def _random() -> dict[str, Tensor]:
    """The states of torch's random number generators, by device."""
    found = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def set_random(state: State) -> None:
    """Restore the states of torch's random number generators."""
    found = state.facts["random"]
    torch.set_rng_state(found["cpu"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
