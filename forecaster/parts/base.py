"""The contract of a part: a module that is fitted once and keeps all it knows in its tensors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from forecaster.datasets.windows import Batch, Windows, longest, middle
from forecaster.model import Task

FEW = 100
"""With fewer windows to choose on, the later training rows help to choose (docs/recipe.md); a round
number."""
CYCLES = 2
"""The same with fewer of the longest cycle: windows of four working days know no weekend."""


@dataclass(frozen=True, eq=False)
class Fold:
    """The data that a part is fitted to.

    `train` holds the windows of the training rows, `choose` the windows on which every choice is
    made: the part of validation that stops training, never the one that calibrates intervals. They
    hold the `task.past` steps that a part may read, of which the oldest may lie before the series;
    `look_back` is the look-back of the configuration, all of which every series has. `cycle` is the
    main season or, without one, that of the calendar. `seasons` are in steps, the main one first;
    `phases` holds the weights that give a step's place in each from its calendar (see
    `Task.phase`; () if the calendar does not know it). Of the known features after the calendar,
    the first `moving` change from step to step: holidays and future covariates. `pretrained` is
    the folder of a pretrained model, if one is wanted.
    """

    task: Task
    train: Windows
    choose: Windows
    seasons: tuple[int, ...]
    phases: tuple[tuple[float, ...], ...]
    moving: int
    look_back: int
    cycle: int
    pretrained: str | None = None

    @property
    def rehearsal(self) -> "Fold | None":
        """If few windows choose, or windows of less than two of the longest cycles, a fold that
        fits to the earlier half of the training windows and chooses on the later half too.

        None if enough windows choose, and if training has a single window.
        """
        train, choose = self.train, self.choose
        cycles = longest(choose) / max(self.seasons)
        if (len(choose) >= FEW and cycles >= CYCLES) or (cut := middle(train)) is None:
            return None
        return replace(self, train=replace(train, last=cut), choose=replace(choose, first=cut))


class Part(nn.Module, ABC):
    """A forecast that can be used alone, be weighted against others, and be saved.

    `kind` is its name in the table of kinds, `name` identifies it among the parts of a model.
    `past` is the number of newest steps of a window that it reads, `chosen` describes in words what
    was chosen and on what. Everything else that it needs, beyond `settings`, is in its parameters
    and buffers.
    """

    kind: ClassVar[str]
    takes_beside = False
    """Whether `forward` also takes `Batch.beside`."""
    whole = False
    """Whether it reads values with the effects of covariates in them, which are then beside."""
    exports: ClassVar[bool] = True
    """Whether ONNX can hold it."""
    weighed: ClassVar[bool] = True
    """Whether it may have a share in a blend; otherwise it only serves for comparison."""

    def __init__(self, task: Task, name: str, past: int, chosen: str = "") -> None:
        super().__init__()
        if not 1 <= past <= task.past:
            raise ValueError(
                f"{name} looks back {past} steps, but the task has {task.past}; it must look back "
                "at least 1 step and at most the steps of the task"
            )
        self.task, self.name, self.past, self.chosen = task, name, past, chosen
        self.register_buffer("targets", torch.tensor(task.targets), persistent=False)

    targets: Tensor

    @classmethod
    @abstractmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        """The parts of this kind for a fold: one, several, or none if the kind does not apply."""

    def refit(self, fold: Fold) -> "Part":
        """The same part fitted to other training windows, with its choices unchanged.

        A part that learned nothing but a choice from them stays as it is.
        """
        return self

    @classmethod
    def build(cls, task: Task, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """A part from its `settings` and its `state_dict`.

        Raises TypeError, ValueError or RuntimeError if they do not fit.
        """
        part = cls(task, **settings)
        part.load_state_dict(dict(tensors), strict=True)
        return part

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the class except the task, in plain JSON types."""
        return {"name": self.name, "past": self.past, "chosen": self.chosen}

    @property
    def family(self) -> str:
        """The family of the part: its members err alike and share one vote in `weigh`."""
        return self.kind

    @property
    def needs(self) -> int:
        return self.past

    @abstractmethod
    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        """Scaled values (B, T, K), as `ForecastModel.forward`; `past` holds `task.past` steps."""

    def linear(self) -> Tensor | None:
        """The map (maps, past, T) from the newest values of a complete window to its forecast.

        One map serves all targets, or there is one for each. None if there is no such map.
        """
        return None

    def own(self, past: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The targets' newest `self.past` values (B, K, P), and which of them are observed."""
        every = self.task.targets == tuple(range(self.task.columns))  # avoids a copy
        of: Any = slice(None) if every else self.targets
        values = past[:, -self.past :, of].transpose(1, 2)
        seen = None if observed is None else observed[:, -self.past :, of]
        return values, None if seen is None else seen.transpose(1, 2)


def forecast_of(model: Any, batch: Batch) -> Tensor:
    """The forecast of a network or a part, or of a blend with the same shares in every series."""
    more = {"beside": batch.beside} if getattr(model, "takes_beside", False) else {}
    ahead: Tensor = model(*batch.inputs, **more)
    return ahead


def filled(values: Tensor, observed: Tensor | None, season: int) -> Tensor:
    """Fill the gaps of values (..., P): as far from the mean cycle as the last value before each.

    The mean cycle holds the mean of the observed values at each of its places; a gap at a place
    without any, or without a season, gets the value before it. Gaps at the start of the window
    follow the first value in it; they are 0 if there is none. Missing values must be 0.
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
    """The running maximum of places (..., P) >= 0."""
    if not torch.compiler.is_exporting():
        return places.cummax(dim=-1).values
    shift = 1  # by doubling, as ONNX has no running maximum
    while shift < places.shape[-1]:
        earlier = nn.functional.pad(places[..., :-shift], (shift, 0))
        places, shift = torch.maximum(places, earlier), 2 * shift
    return places
