"""The contents of the checkpoint of a training in progress, and how to continue from it.

A checkpoint is taken between two epochs, when everything that belongs to earlier steps is done: the
validation after them, the decision to stop, the report of their epoch. Restoring it makes every
later step the same, bit for bit, on the same machine with the same threads.
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
from forecaster.train.module import ForecastModule

SPARED = 50
"""Training between two checkpoints takes at least this many times as long as writing one, so that
they cost 2 % of the time at most."""


class Checkpointing(Callback):
    """Writes a checkpoint after each epoch that was reported, if `checkpoints` are kept, and
    continues from `state`, if there is one. A signal ends training before its next step.

    A checkpoint holds the state of every callback. This one comes last.
    """

    def __init__(self, checkpoints: Checkpoints | None, state: State | None) -> None:
        self.checkpoints, self.state = checkpoints, state
        self.begun = self.last = time.monotonic()
        if state is not None:
            self.begun -= state.facts["seconds"]
        self.cost = 0.0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.state is None:
            return
        facts, epochs = self.state.facts, trainer.fit_loop
        batches = epochs.epoch_loop
        counted: Any
        for counted, count in (
            (epochs.epoch_progress.total, facts["epoch"]),
            (epochs.epoch_progress.current, facts["epoch"]),
            (batches.batch_progress.total, self.state.step),
        ):
            counted.ready = counted.started = counted.processed = counted.completed = count
        steps = batches.automatic_optimization.optim_progress.optimizer.step
        steps.total.completed = self.state.step
        moments = {int(place): moment for place, moment in facts["optimiser"].pop("state").items()}
        optimiser = trainer.optimizers[0]
        rates = [group["lr"] for group in optimiser.param_groups]
        optimiser.load_state_dict({**facts["optimiser"], "state": moments})
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            if isinstance(rate, Tensor):  # for graphs, which read its memory
                group["lr"] = rate.fill_(group["lr"])
        trainer.lr_scheduler_configs[0].scheduler.load_state_dict(facts["schedule"])
        for callback in _callbacks(trainer):
            callback.load_state_dict(facts["callbacks"][callback.state_key])
        set_random(self.state)  # last of all, so that nothing draws in between
        self.state = None

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, ForecastModule)
        done = trainer.global_step > 0 and not module.losses  # there is none to be reported
        spared = time.monotonic() - self.last >= SPARED * self.cost
        if self.checkpoints is not None and done and spared:
            self.write(self.checkpoints, trainer, module)

    def on_train_batch_start(self, *arguments: Any) -> None:
        signals.check()

    def on_validation_batch_start(self, *arguments: Any) -> None:
        signals.check()

    def write(self, checkpoints: Checkpoints, trainer: pl.Trainer, module: ForecastModule) -> None:
        now, optimiser = time.monotonic(), trainer.optimizers[0].state_dict()
        facts = {
            "epoch": trainer.current_epoch,
            "seconds": now - self.begun,
            "model": module.model.state_dict(),
            "optimiser": {**optimiser, "param_groups": _plain(optimiser["param_groups"])},
            "schedule": _plain(trainer.lr_scheduler_configs[0].scheduler.state_dict()),
            "callbacks": {call.state_key: call.state_dict() for call in _callbacks(trainer)},
            "random": _random(),
        }
        checkpoints.write(State(trainer.global_step, facts))
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
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random(state: State) -> None:
    states = state.facts["random"]
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
