"""The LightningModule: a model, its loss and its optimiser."""

import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.base import machine
from forecaster.base.errors import ConfigError, DataError, DivergedError
from forecaster.config.run_config import TrainConfig
from forecaster.datasets.windows import Batch
from forecaster.model import ForecastModel
from forecaster.train.graphs import GraphedStep, suits_graphs

Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "constant": lambda epoch, epochs: 1.0,
    "halve": lambda epoch, epochs: 0.5**epoch,
    "type1": lambda epoch, epochs: 0.5 ** max(0, epoch - 1),
    "cosine": lambda epoch, epochs: (1 + math.cos(math.pi * epoch / epochs)) / 2,
}
"""The factor of the learning rate by the epoch, counted from 0, and the number of epochs."""


class ForecastModule(pl.LightningModule):
    """Trains a ForecastModel on batches of windows.

    The losses of all steps after step `before` stay on the device, without waiting for it; one that
    is not finite ends the run at the next validation or end of epoch. Losses are computed
    in 32 bits, whatever precision the model trains in. Schedules run over `epochs`, by default
    those of `config`; `rise` multiplies the rates of `lr_of`.

    `windows` is the number of windows of the last batch.
    """

    sums: Tensor
    model: ForecastModel
    graphed: GraphedStep | None = None

    def __init__(
        self,
        model: ForecastModel,
        config: TrainConfig,
        epochs: int | None = None,
        rise: float = 1.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.epochs = epochs or config.epochs
        self.windows = 0
        self.lr_of = {name: rate * rise for name, rate in config.lr_of.items()}
        self.forget_losses(0)
        self.register_buffer("sums", torch.zeros(2, dtype=torch.float64), persistent=False)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """The loss of the last part of a step, after the gradients of the parts before it."""
        self.windows = len(batch.target)
        if self.graphed is not None:
            self.losses.append(self.graphed(batch))
            return self.losses[-1]
        self.zero_grad()
        *earlier, (share, last) = parts_of(batch, self.config.accumulate)
        losses = []
        for weight, part in earlier:
            loss = weight * self.loss(part)
            losses.append(loss.detach())
            with torch.autocast(self.device.type, enabled=False):
                loss.backward()
        loss = self.loss(last)
        if earlier:
            loss = share * loss
        losses.append(loss.detach())
        self.losses.append(torch.stack(losses).sum() if earlier else losses[0])
        return loss

    def optimizer_zero_grad(self, *arguments: Any) -> None:
        """Keep the gradients of the parts before the last one."""

    def whole_step(self, optimiser: torch.optim.Optimizer, batch: Batch) -> Tensor:
        """A step with all that Lightning calls otherwise; returns the loss."""
        self.zero_grad()
        kind = self.device.type
        half = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        with torch.autocast(kind, *half, cache_enabled=False):  # a cache outlives a graph
            loss = self.loss(batch)
        with torch.autocast(kind, enabled=False):
            loss.backward()
            self.configure_gradient_clipping(optimiser, self.config.clip)
            optimiser.step()
        return loss.detach()

    def backward(self, loss: Tensor, *arguments: Any) -> None:
        if self.graphed is None:
            loss.backward()

    def optimizer_step(
        self, epoch: int, index: int, optimizer: Any, closure: Callable[[], Any] | None = None
    ) -> None:
        if self.graphed is None:
            super().optimizer_step(epoch, index, optimizer, closure)
        elif closure is not None:
            closure()  # it calls training_step, which has done the rest

    def loss(self, batch: Batch) -> Tensor:
        loss, forecast = LOSSES[self.config.loss], self.model(*batch.inputs)
        return over_observed(loss, forecast, batch.target, batch.target_observed)

    def forget_losses(self, before: int) -> None:
        self.losses: list[Tensor] = []
        self.before = before

    def mean_loss(self) -> float:
        losses = torch.stack(self.losses).double().cpu()
        return float(losses.sum() / len(losses))

    def raise_if_diverged(self) -> None:
        """Raises DivergedError naming the first step, counted from 1, whose loss is not finite."""
        if not self.losses:
            return
        bad = (~torch.stack(self.losses).cpu().isfinite()).nonzero().flatten()
        if len(bad):
            step = self.before + 1 + int(bad[0])
            raise self.diverged(f"the training loss is not finite at step {step}")

    def diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"{what} (epoch {self.current_epoch + 1}). Lower train.lr (now {self.config.lr:g}), "
            f"set train.clip (now {self.config.clip}), or look for extreme values in the data."
        )

    def on_validation_epoch_start(self) -> None:
        self.raise_if_diverged()
        self.sums.zero_()

    def validation_step(self, batch: Batch, index: int) -> None:
        with torch.autocast(self.device.type, enabled=False), machine.exact():
            error = (self.model(*batch.inputs) - batch.target).double()
            seen = batch.target_observed
            if seen is not None:
                error = error.masked_fill(~seen, 0.0)
            self.sums[0] += error.square().sum()
            self.sums[1] += batch.target.numel() if seen is None else seen.sum()

    def on_validation_epoch_end(self) -> None:
        if not self.sums[1]:
            raise DataError(
                "the validation windows that stop training hold no observed target value; "
                "raise train.validation_windows, or give a file with values there"
            )
        mse = self.sums[0] / self.sums[1]
        if not torch.isfinite(mse):
            raise self.diverged(f"the validation error is not finite after step {self.global_step}")
        self.log("validation_mse", mse.float(), prog_bar=True)

    def configure_optimizers(self) -> Any:
        config = self.config
        kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
        groups = parameter_groups(self.model, self.lr_of, config.lr, config.weight_decay)
        graphs = suits_graphs(config, self.model, self.device.type)
        if graphs:  # a graph would repeat a number
            groups = [
                {**group, "lr": torch.tensor(group["lr"]).to(self.device)} for group in groups
            ]
        # one pass over the weights, on a CPU and on CUDA
        optimiser = kind(groups, fused=True, capturable=graphs)
        schedule = SCHEDULES[config.schedule]
        factor = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda epoch: schedule(epoch, self.epochs)
        )
        return [optimiser], [factor]

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Lightning refuses to clip for a fused optimiser in mixed precision, because losses may be
        # scaled; in bf16 they are not
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)


def parts_of(batch: Batch, count: int) -> list[tuple[Tensor | float, Batch]]:
    """Split a batch into `count` parts, at most one per window, each with its weight in the mean.

    The weight is the share of the windows or, if targets are missing, of the observed values.
    """
    if count == 1:
        return [(1.0, batch)]
    windows = len(batch.target)
    parts = []
    for index in torch.arange(windows).tensor_split(min(count, windows)):
        rows = slice(int(index[0]), int(index[-1]) + 1)
        part = batch.map(itemgetter(rows))
        share: Tensor | float = len(index) / windows
        if batch.target_observed is not None and part.target_observed is not None:
            share = part.target_observed.sum() / batch.target_observed.sum().clamp(min=1)
        parts.append((share, part))
    return parts


def over_observed(loss: Loss, forecast: Tensor, target: Tensor, observed: Tensor | None) -> Tensor:
    """Apply a loss that is a mean, taking the mean over observed targets only; 0 without any.

    All are (B, T, K); observed is None if nothing is missing.
    """
    if observed is None:
        return loss(forecast, target)
    without = loss(torch.where(observed, forecast, target), target)  # no error at missing targets
    return without * (observed.numel() / observed.sum().clamp(min=1))


def parameter_groups(
    model: torch.nn.Module, lr_of: Mapping[str, float], lr: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Parameters grouped by the longest key of `lr_of` that their name begins with.

    Raises ConfigError for a key with which no parameter's name begins, unless it is the name of a
    path of the model that is switched off.
    """
    groups: dict[str | None, list[Tensor]] = {key: [] for key in [None, *lr_of]}
    for name, parameter in model.named_parameters():
        keys = [key for key in lr_of if name.startswith(key)]
        groups[max(keys, key=len) if keys else None].append(parameter)
    off = {key for key in lr_of if isinstance(getattr(model, key, ""), torch.nn.Module | None)}
    empty = [key for key in lr_of if not groups[key] and key not in off]
    if empty:
        raise ConfigError(
            f"train.lr_of.{empty[0]}: no parameter of this model begins with '{empty[0]}'; use "
            "one of "
            f"{', '.join(dict.fromkeys(n.split('.')[0] for n, _ in model.named_parameters()))}"
        )
    rest = {"params": groups.pop(None), "lr": lr, "weight_decay": weight_decay}
    others = [
        {"params": parameters, "lr": lr_of[str(key)], "weight_decay": 0.0}
        for key, parameters in groups.items()
    ]
    return [rest, *others]
