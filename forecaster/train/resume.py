"""The contents of the checkpoint of a training in progress, and how to continue from it.

A checkpoint is taken before an optimiser step, when everything that belongs to earlier steps is
done: the validation after them, the decision to stop, the report of their epoch. Restoring it makes
every later step the same, bit for bit, on the same machine with the same threads.
"""

import random
import time
from typing import Any, Protocol

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from forecaster import signals
from forecaster.errors import DataError
from forecaster.train.checkpoint import Checkpoints, State
from forecaster.train.loaders import EpochOrder
from forecaster.train.module import ForecastModule

PATIENT = 4.0
"""The seconds that a signal waits for the end of a validation, so that a checkpoint can follow."""
SPARED = 50
"""Training between two checkpoints takes at least this many times as long as writing one."""


class Kept(Protocol):
    """A callback with a state that a checkpoint must hold."""

    def facts(self) -> dict[str, Any]: ...

    def tensors(self) -> dict[str, Tensor]: ...

    def go_on(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None: ...


class Checkpointing(Callback):
    """Writes checkpoints at the start of an epoch and every few minutes; continues from `state`.

    After a signal it writes one more and raises Stopped. Without `checkpoints`, as on any rank but
    the first, it only continues from `state`.

    `kept` are the other callbacks, each by a name; `facts` go into every checkpoint.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None,
        state: State | None,
        order: EpochOrder,
        kept: dict[str, Kept],
        facts: dict[str, Any],
    ) -> None:
        self.checkpoints, self.state, self.order, self.kept = checkpoints, state, order, kept
        self.facts, self.begun = facts, time.monotonic()
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
        own = self.state
        module.first_bad_step.copy_(own.tensors["first_bad_step"])
        module.loss_sum.copy_(own.tensors["loss_sum"])
        optimiser = trainer.optimizers[0]
        for name, parameter in module.model.named_parameters():
            if moments := own.below(f"optimiser/{name}/"):
                optimiser.state[parameter] = {
                    key: value.to(parameter.device) for key, value in moments.items()
                }
        for group, rate in zip(optimiser.param_groups, own.facts["rates"], strict=True):
            group["lr"] = rate
        trainer.lr_scheduler_configs[0].scheduler.load_state_dict(own.facts["schedule"])
        for name, each in self.kept.items():
            each.go_on(own.facts[name], own.below(f"{name}/"))

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
        now = time.monotonic()
        optimiser = trainer.optimizers[0]
        tensors = {f"model/{k}": v for k, v in module.model.state_dict().items()}
        for name, parameter in module.model.named_parameters():
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"optimiser/{name}/{key}"] = value
        for name, each in self.kept.items():
            tensors |= {f"{name}/{key}": value for key, value in each.tensors().items()}
        tensors |= {"first_bad_step": module.first_bad_step, "loss_sum": module.loss_sum}
        rng, drawn = _random()
        self.checkpoints.write(
            State(
                trainer.global_step,
                {
                    **self.facts,
                    "epoch": trainer.current_epoch,
                    "batch": index,
                    "seconds": now - self.begun,
                    "rates": [group["lr"] for group in optimiser.param_groups],
                    "schedule": trainer.lr_scheduler_configs[0].scheduler.state_dict(),
                    **{name: each.facts() for name, each in self.kept.items()},
                    **drawn,
                },
                tensors | rng,
            )
        )
        self.last = time.monotonic()
        self.cost = self.last - now


def finished(checkpoints: Checkpoints, step: int, weights: dict[str, Tensor], fit: Any) -> None:
    """Write the state after the last step: the weights that were kept, and the `Fit`."""
    rng, drawn = _random()
    tensors = {f"model/{k}": v for k, v in weights.items()}
    checkpoints.write(State(step, {"fit": fit, **drawn}, tensors | rng))


def load_weights(model: torch.nn.Module, state: State) -> None:
    try:
        model.load_state_dict(state.below("model/"))
    except RuntimeError as error:
        raise DataError(
            f"the checkpoint does not fit the network of this version of forecaster: {error}. "
            "Train again, or continue with the version that started the training."
        ) from None


def _random() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of every random number generator of the process."""
    version, words, gauss = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)
    tensors = {
        "random/torch": torch.get_rng_state(),
        "random/python": torch.tensor(words),
        "random/numpy": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        tensors["random/cuda"] = torch.cuda.get_rng_state()
    numpy = {**numpy, "state": {"pos": int(numpy["state"]["pos"])}}
    return tensors, {"random": {"python": [version, gauss], "numpy": numpy}}


def set_random(state: State) -> None:
    """Restore the state of every random number generator."""
    tensors, facts = state.below("random/"), state.facts["random"]
    version, gauss = facts["python"]
    random.setstate((version, tuple(tensors["python"].tolist()), gauss))
    numpy = facts["numpy"]
    key = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state({**numpy, "state": {**numpy["state"], "key": key}})
    torch.set_rng_state(tensors["torch"])
    if "cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["cuda"])
