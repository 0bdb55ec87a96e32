"""Ridge regression from what is known of a window to its future, in closed form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Self

import torch
from torch import Tensor

from forecaster.model import Task
from forecaster.parts.base import Fold, Part, filled
from forecaster.parts.moments import Layout, Moments, moments

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""By the mean diagonal of the products of each group of inputs."""
CENTRES = ("last", "cycle")
SHORTER = 5
"""The shorter look-back is this part of the longest one, in whole cycles."""
LONGEST = 2_520
"""The most steps that a ridge looks back, in whole cycles: what it takes to fit grows as their
cube."""
SIZE, WORK, HELD = 2**24, 2 * 10**10, 2**27
"""What a map for each column may hold, and take to fit; and how many sums of products it may need,
1 GB of training and as much of what chooses."""


class Ridge(Part):
    """A linear map from the past, what is known and the calendar to every step of the horizon.

    The past is taken about its centre: its last value (NLinear, Zeng et al., AAAI 2023), or the
    mean of its last cycle. The map minimises |Y - X W|^2 + penalty |W - W0|^2, where W0 repeats
    the centre, or the mean of the past cycles where the centre is that of a cycle: a strong
    penalty leaves the last value or the cycle mean. With `wide` its inputs are, beside the past,
    the centre itself, so that the level may fall back to the training mean; covariates, past and
    known; 1; and the waves of the calendar. One map serves all targets, or each has its own: this,
    centre and penalty are those with the least squared error on `Fold.choose`.
    """

    kind = "ridge"
    weights: Tensor

    @property
    def family(self) -> str:
        return "calendar ridge" if self.wide else "ridge"

    def __init__(
        self,
        task: Task,
        name: str,
        past: int,
        chosen: str = "",
        *,
        season: int,
        centre: str,
        maps: int,
        wide: bool,
        penalties: Sequence[float],
        moving: int = 0,
        others: Sequence[int] = (),
        before: int = 0,
        seasons: Sequence[int] = (),
        phases: Sequence[Sequence[float]] = (),
    ) -> None:
        super().__init__(task, name, past, chosen)
        if centre not in CENTRES or maps not in (1, len(task.targets)) or not 1 <= season <= past:
            raise ValueError(f"{name}: no map with centre={centre}, maps={maps}, season={season}")
        size, lengths = task.columns, [len(each) for each in phases]
        if not (
            0 <= moving <= task.covariates
            and 0 <= before <= task.past
            and all(0 <= each < size for each in others)
            and len(others) <= size
            and len(seasons) == len(phases)
            and min(seasons, default=1) >= 1
            and max(lengths, default=0) <= task.calendar
        ):
            raise ValueError(f"{name}: its inputs are not those of the task")
        self.season, self.centre, self.maps, self.wide = season, centre, maps, wide
        self.penalties = tuple(penalties)
        self.layout = Layout(
            moving, tuple(others), before, tuple(seasons), tuple(tuple(each) for each in phases)
        )
        inputs = past + (self.layout.width(task.horizon) + 1 if wide else 0)
        self.register_buffer("weights", torch.zeros(maps, inputs, task.horizon))

    @property
    def settings(self) -> dict[str, Any]:
        layout = self.layout
        return {
            **super().settings,
            "season": self.season,
            "centre": self.centre,
            "maps": self.maps,
            "wide": self.wide,
            "penalties": list(self.penalties),
            "moving": layout.moving,
            "others": list(layout.others),
            "before": layout.before,
            "seasons": list(layout.seasons),
            "phases": [list(each) for each in layout.phases],
        }

    @property
    def needs(self) -> int:
        """Covariates and other columns may be read further back than the targets."""
        beside = self.layout.moving + len(self.layout.others) if self.wide else 0
        return max(self.past, self.layout.before if beside else 0)

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        """For the longest look-back and for a short one: of the past alone, and `wide`.

        What else there is to choose is chosen for each of them: validation cannot tell which of
        the two will forecast the next months better, so both are there to be weighed.
        """
        task, layout = fold.task, Layout.of(fold)
        season = fold.seasons[0] if fold.seasons[0] <= task.past else 1
        fitting = _Fitting(fold, layout, season)
        parts = []
        for past in look_backs(reach(task.past, season), season):
            for wide in (False, True):
                best = min(fitting.trials(past, wide), key=lambda trial: trial.error)
                part = cls(
                    task, f"calendar ridge, {past}" if wide else f"ridge, {past}", past,
                    best.described,
                    season=season, centre=best.centre, maps=len(best.weights), wide=wide,
                    penalties=best.penalties, moving=layout.moving, others=layout.others,
                    before=layout.before, seasons=layout.seasons, phases=layout.phases,
                )  # fmt: skip
                part.weights.copy_(best.weights)
                parts.append(part.to(fold.train.values.device))
        return parts

    def refit(self, fold: Fold) -> "Ridge":
        near = reach(self.task.past, self.season)
        own = list(moments(fold.train.looking_back(near), fold.task, self.layout))
        sums = own if self.maps > 1 else [reduce(add, own)]
        groups = _groups(self.layout, self.task)
        maps = [
            _Normal(each, self.past, self.centre, self.season, groups if self.wide else ()).solve(
                penalty
            )
            for each, penalty in zip(sums, self.penalties, strict=True)
        ]
        part = type(self)(self.task, **self.settings)
        part.weights.copy_(torch.stack(maps))
        return part.to(self.weights.device)

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        values, seen = self.own(past, observed)
        values = filled(values, seen, self.season)
        newest = 1 if self.centre == "last" else self.season
        centre = values[..., -newest:].mean(dim=-1, keepdim=True)
        inputs = values - centre
        if self.wide:
            extras = self.layout.extras(self.task, past, past_known, future_known, observed)
            extras = extras[:, None].expand(-1, inputs.shape[1], -1)
            inputs = torch.cat([inputs, extras, centre], dim=2)
        ahead = torch.matmul(inputs.transpose(0, 1), self.weights).transpose(0, 1) + centre
        return ahead.transpose(1, 2)


def reach(past: int, season: int) -> int:
    """What a ridge reads of a look-back: all, or the whole cycles of the newest LONGEST steps."""
    return past if past <= LONGEST else max(1, LONGEST // season) * season


def look_backs(longest: int, season: int) -> list[int]:
    """The longest, and a short one in whole cycles where there is one, the longest first."""
    short = max(1, longest // SHORTER // season) * season
    return [longest, short] if short < longest else [longest]


def _groups(layout: Layout, task: Task) -> tuple[int, int, int]:
    """How many inputs there are beside the past: covariates, calendar, level."""
    known = layout.moving * (layout.before + task.horizon) + len(layout.others) * layout.before
    return known, layout.waves, 1


class _Normal:
    """The normal equations of one map, and the map that a strong penalty leaves."""

    def __init__(
        self, sums: Moments, past: int, centre: str, season: int, groups: Sequence[int]
    ) -> None:
        longest, horizon = sums.past, sums.horizon
        middle = torch.zeros(longest, dtype=torch.float64)
        middle[-1 if centre == "last" else -season :] = 1
        self.groups = (past, *groups)
        kept = sum(self.groups)
        gram, cross, self.squares = sums.centred(past, middle / middle.sum())
        self.gram, self.cross = gram[:kept, :kept], cross[:kept]
        self.start = torch.zeros(kept, horizon, dtype=torch.float64)
        if centre == "cycle":
            cycles = past // season
            for step in range(horizon):
                phase = step % season
                self.start[past - cycles * season + phase : past : season, step] = 1 / cycles

    def solve(self, penalty: float) -> Tensor:
        """The map (inputs, T) with this penalty, relative to the mean square of each group."""
        means = (part.mean().clamp(min=1e-9) for part in self.gram.diagonal().split(self.groups))
        scale = torch.cat([m.expand(n) for m, n in zip(means, self.groups, strict=True)])
        factor = torch.linalg.cholesky(self.gram + torch.diag(penalty * scale))
        missing = self.cross - self.gram @ self.start
        return self.start + torch.cholesky_solve(missing, factor)

    def error(self, weights: Tensor) -> float:
        """The squared error of a map on these windows, summed."""
        off = weights * (self.gram @ weights - 2 * self.cross)
        return self.squares + float(off.sum())


@dataclass(frozen=True, eq=False)
class _Trial:
    """A fitted map (maps, inputs, T), its error on `Fold.choose`, and what was chosen."""

    error: float
    weights: Tensor
    centre: str
    penalties: tuple[float, ...]
    described: str


class _Fitting:
    """The products of a fold, and the maps that come of them."""

    def __init__(self, fold: Fold, layout: Layout, season: int) -> None:
        task = fold.task
        self.horizon, self.season = task.horizon, season
        self.groups = _groups(layout, task)
        self.columns = len(task.targets)
        near = reach(task.past, season)
        inputs = near + sum(self.groups)
        each = self.columns > 1 and self.columns * inputs * task.horizon <= SIZE
        each = each and self.columns * (inputs + task.horizon) ** 2 <= HELD
        train = moments(fold.train.looking_back(near), task, layout)
        judging = moments(fold.choose.looking_back(near), task, layout)
        pairs = zip(train, judging, strict=True)
        self.own: list[tuple[Moments, Moments]] = []
        self.whole = next(pairs)
        if each:
            self.own.append(self.whole)
        for fitted, judged in pairs:
            self.whole = self.whole[0] + fitted, self.whole[1] + judged
            if each:
                self.own.append((fitted, judged))

    def trials(self, past: int, wide: bool) -> Iterator[_Trial]:
        inputs = past + sum(self.groups)
        each = self.own and self.columns * inputs**2 * (inputs + self.horizon) <= WORK
        for centre in CENTRES if past >= self.season > 1 else CENTRES[:1]:
            yield self._best([self.whole], past, centre, wide)
            if each:
                yield self._best(self.own, past, centre, wide)

    def _best(
        self, columns: Sequence[tuple[Moments, Moments]], past: int, centre: str, wide: bool
    ) -> _Trial:
        """Each of `columns` with its own penalty."""
        groups = self.groups if wide else ()
        errors, penalties, maps = [], [], []
        for train, judge in columns:
            normal = _Normal(train, past, centre, self.season, groups)
            judged = _Normal(judge, past, centre, self.season, groups)
            found = [normal.solve(penalty) for penalty in PENALTIES]
            off = [judged.error(weights) for weights in found]
            best = min(range(len(off)), key=off.__getitem__)
            errors.append(off[best])
            penalties.append(PENALTIES[best])
            maps.append(found[best])
        range_ = "–".join(dict.fromkeys(f"{each:g}" for each in (min(penalties), max(penalties))))
        words = f"P = {past}, centred on the last {'value' if centre == 'last' else 'cycle'}"
        if wide:
            words += ", with level, calendar" + (" and covariates" if self.groups[0] else "")
        words += f", penalty {range_}"
        if self.columns > 1:
            words += ", one map for all columns" if len(columns) == 1 else ", a map for each column"
        error = sum(errors) / sum(judge.values for _, judge in columns)
        return _Trial(error, torch.stack(maps).float(), centre, tuple(penalties), words)
