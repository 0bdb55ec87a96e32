"""The contract of a part: fitted once, a module from then on, with all it knows in its tensors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from forecaster.datasets import Windows
from forecaster.model import Task

FEW = 100
"""Of fewer windows that choose, the later training rows help."""


@dataclass(frozen=True, eq=False)
class Fold:
    """What a part is fitted to.

    `train` are the windows of the training rows, `choose` those that every choice is made on: the
    part of validation that stops training, never the one that calibrates intervals. Both look back
    `task.past` steps, the most that a part may read. `seasons` in steps, the main one first, with
    the weights that tell a step's place in each from its calendar (see `Task.phase`; () where the
    calendar does not know it). Of the known features behind the calendar the first `moving` change
    from step to step: holidays and future covariates.
    """

    task: Task
    train: Windows
    choose: Windows
    seasons: tuple[int, ...] = (1,)
    phases: tuple[tuple[float, ...], ...] = ((),)
    moving: int = 0

    @property
    def rehearsal(self) -> "Fold | None":
        """Where few windows choose: the earlier half of the training windows fits, and the later
        half chooses too.

        None where there are enough, of a panel, and where training has a window alone.
        """
        train, half = self.train, len(self.train) // 2
        enough = len(self.choose) >= FEW or half == 0
        if enough or train.items is not None or not isinstance(train.last, int):
            return None
        cut = train.last - half
        earlier, later = replace(train, last=cut), replace(self.choose, first=cut)
        return replace(self, train=earlier, choose=later)


class Part(nn.Module, ABC):
    """A forecast that can stand alone, be weighed against others, and be saved.

    `kind` is its name in the table of kinds, `name` tells it from the others of a model. `past` is
    how many of the newest steps of a window it reads, `chosen` says in words what was chosen and
    on what. What it needs besides `settings` lies in its parameters and buffers.
    """

    kind: ClassVar[str]
    weighed: ClassVar[bool] = True
    """Whether it may have a share in a blend; else it is there to be compared with."""

    def __init__(self, task: Task, name: str, past: int, chosen: str = "") -> None:
        super().__init__()
        if not 1 <= past <= task.past:
            raise ValueError(f"{name} looks back {past} steps, but the task has {task.past}")
        self.task, self.name, self.past, self.chosen = task, name, past, chosen
        self.register_buffer("targets", torch.tensor(task.targets), persistent=False)

    targets: Tensor

    @classmethod
    @abstractmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        """The parts of this kind for a fold: one, several, or none where it has nothing to say."""

    def refit(self, fold: Fold) -> "Part":
        """The same part, what was chosen of it unchanged, for other training windows.

        What has learned nothing from them but a choice stays as it is.
        """
        return self

    @classmethod
    def build(cls, task: Task, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """A part from what `settings` and `state_dict` gave.

        Raises TypeError, ValueError or RuntimeError for what does not fit.
        """
        part = cls(task, **settings)
        part.load_state_dict(dict(tensors), strict=True)
        return part

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the class but for the task, in plain JSON types."""
        return {"name": self.name, "past": self.past, "chosen": self.chosen}

    @property
    def family(self) -> str:
        """Parts of one family err alike, and share one vote when weights are found."""
        return self.kind

    @property
    def needs(self) -> int:
        """How many steps of history there must be for it to make sense."""
        return self.past

    @abstractmethod
    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        """Scaled values (B, T, K), as `ForecastModel.forward`; `past` holds `task.past` steps."""

    def linear(self) -> Tensor | None:
        """The map (maps, past, T) of a complete window's newest values to its forecast.

        One map serves all targets, or each has its own. None where there is no such map.
        """
        return None

    def own(self, past: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The targets' newest `self.past` values (B, K, P), and which of them are observed."""
        every = self.task.targets == tuple(range(self.task.columns))  # spares a copy
        of: Any = slice(None) if every else self.targets
        values = past[:, -self.past :, of].transpose(1, 2)
        seen = None if observed is None else observed[:, -self.past :, of]
        return values, None if seen is None else seen.transpose(1, 2)


def filled(values: Tensor, observed: Tensor | None, season: int) -> Tensor:
    """Values (..., P) whose gaps are as far from the mean cycle as the last value before them.

    The mean cycle holds the mean of what was seen at each place of it; a gap at a place where
    nothing was seen, or without a season, holds the value before it. Gaps that open the window
    go by the first value in it; they are 0 where there is none. What is missing must be 0.
    """
    if observed is None:
        return values
    steps = values.shape[-1]
    season = min(season, steps)
    lead = -steps % season
    cycles = nn.functional.pad(values, (lead, 0)).unflatten(-1, (-1, season))
    seen = nn.functional.pad(observed.to(values.dtype), (lead, 0)).unflatten(-1, (-1, season))
    counts = seen.sum(dim=-2)
    times = (*(1,) * (values.ndim - 1), cycles.shape[-2])
    cycle = (cycles.sum(dim=-2) / counts.clamp(min=1)).repeat(times)[..., lead:]
    known = (counts > 0).repeat(times)[..., lead:]
    places = torch.arange(steps, device=values.device)
    first = torch.where(observed, places, steps - 1).amin(dim=-1, keepdim=True)
    before = torch.maximum(_highest(observed * places), first)
    change = torch.where(known, cycle - cycle.gather(-1, before), 0.0)
    return torch.where(observed, values, values.gather(-1, before) + change)


def _highest(places: Tensor) -> Tensor:
    """The largest up to each of places (..., P) >= 0."""
    if not torch.compiler.is_exporting():
        return places.cummax(dim=-1).values
    shift = 1  # by doubling, as ONNX has no running maximum
    while shift < places.shape[-1]:
        earlier = nn.functional.pad(places[..., :-shift], (shift, 0))
        places, shift = torch.maximum(places, earlier), 2 * shift
    return places
