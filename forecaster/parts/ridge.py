"""Ridge regression from the known values of a window to its future, in closed form."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor

from forecaster.model import Task
from forecaster.parts.base import Fold, Part, filled
from forecaster.parts.moments import Layout, Moments, moments, summed, total

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Relative to the mean diagonal of the products of each group of inputs; a coarse grid."""
WIDE = 32
"""Columns that make a product of their own, in each window, where they share a map."""
CENTRES = ("last", "cycle")
INPUTS = {"past": "ridge", "calendar": "calendar ridge", "level": "level ridge"}
"""What a map reads, each kind more than the one before it, and the name of the part."""
SHORTER = 5
"""The shorter look-back is this fraction of the longest one, in whole cycles. Without it the blend
was 1 % worse on 21 tasks, and a third did not help (benchmarks/log.md)."""
LONGEST = 2_520
"""The most steps that a ridge looks back, in whole cycles, 15 weeks of hours: the cost of a fit
grows with their cube."""
WEEKS, LEAST = (7, 14), 10
"""The look-backs, in cycles of the main season, that may be tried beyond the default: a week and
two of days; and how many times as long the training part must be. On quarter-hours two weeks gained
2 %; 21 days of hours lost 1.4 % in five markets to two weeks (benchmarks/log.md)."""
SIZE, WORK, HELD = 2**24, 2 * 10**10, 2**27
"""What a map for each column may hold, and take to fit; and how many sums of products it may need,
1 GB of training and as much of what chooses."""


class Ridge(Part):
    """A linear map from the past, the covariates and the calendar to every step of the horizon.

    The past is centred on its last value (NLinear, Zeng et al., AAAI 2023) or on the mean of its
    last cycle. The map minimises |Y - X W|^2 + penalty |W - W0|^2, where W0 repeats the centre or,
    if the centre is that of a cycle, the mean of the past cycles: a strong penalty leaves the last
    value or the cycle mean. `inputs` "past" is the past alone; "calendar" adds past and future
    covariates, 1 and the waves of the calendar; "level" adds the centre itself, so that the level
    may fall back to the training mean. One map serves all targets, or there is one for each: this
    choice, the centre and the penalty are those with the smallest squared error on `Fold.choose`.
    """

    kind = "ridge"
    weights: Tensor

    @property
    def family(self) -> str:
        return INPUTS["past" if self.inputs == "past" else "calendar"]

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
        inputs: str,
        penalties: Sequence[float],
        moving: int = 0,
        others: Sequence[int] = (),
        before: int = 0,
        seasons: Sequence[int] = (),
        phases: Sequence[Sequence[float]] = (),
    ) -> None:
        super().__init__(task, name, past, chosen)
        if (
            centre not in CENTRES
            or inputs not in INPUTS
            or maps not in (1, len(task.targets))
            or not 1 <= season <= past
        ):
            raise ValueError(
                f"{name}: no map with centre={centre}, inputs={inputs}, maps={maps}, "
                f"season={season}"
            )
        size, lengths = task.columns, [len(weights) for weights in phases]
        if not (
            0 <= moving <= task.covariates
            and 0 <= before <= task.past
            and all(0 <= c < size for c in others)
            and len(others) <= size
            and len(seasons) == len(phases)
            and min(seasons, default=1) >= 1
            and max(lengths, default=0) <= task.calendar
        ):
            raise ValueError(
                f"{name}: its inputs are not those of the task; fit the part again to this task"
            )
        self.season, self.centre, self.inputs, self.maps = season, centre, inputs, maps
        self.penalties = tuple(penalties)
        self.layout = Layout(
            moving, tuple(others), before, tuple(seasons), tuple(map(tuple, phases))
        )
        width = sum(_groups(self.layout, task, past, inputs))
        self.register_buffer("weights", torch.zeros(maps, width, task.horizon))

    @property
    def settings(self) -> dict[str, Any]:
        names = ("season", "centre", "inputs", "maps")
        chosen = {**{name: getattr(self, name) for name in names}, "penalties": [*self.penalties]}
        return {**super().settings, **chosen, **self.layout.settings}

    @property
    def needs(self) -> int:
        """Covariates and other columns may be read further back than the targets."""
        beside = self.inputs != "past" and self.layout.moving + len(self.layout.others)
        return max(self.past, self.layout.before if beside else 0)

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        """Parts for the longest look-back and a short one, with each kind of inputs.

        The other choices are made for each of them: validation cannot show which of them will
        forecast the next months better, so all of them go into the blend.
        """
        task, layout = fold.task, Layout.of(fold)
        season = fold.seasons[0] if fold.seasons[0] <= fold.look_back else 1
        fitting = _Fitting(fold, layout, season)
        parts = []
        for past in look_backs(reach(fold.look_back, season), season):
            trials = list(fitting.trials(past))
            for inputs, title in INPUTS.items():
                best = min((trial[inputs] for trial in trials), key=lambda trial: trial[0])
                _, weights, centre, penalties = best
                part = cls(
                    task, f"{title}, {past}", past,
                    fitting.described(inputs, past, centre, penalties),
                    season=season, centre=centre, inputs=inputs, maps=len(weights),
                    penalties=penalties, **layout.settings,
                )  # fmt: skip
                part.weights.copy_(weights)
                parts.append(part.to(fold.train.values.device))
        return parts

    def refit(self, fold: Fold) -> "Ridge":
        near = reach(fold.look_back, self.season)
        if self.maps == 1:
            sums = [total(fold, near, self.layout)]
        else:
            sums = list(moments(fold.train.looking_back(near), fold.task, self.layout))
        groups = _groups(self.layout, self.task, self.past, self.inputs)
        maps = []
        for products, penalty in zip(sums, self.penalties, strict=True):
            normal = _Normal(products, self.past, self.centre, self.season, groups)
            maps += [weights for weights, _ in normal.solve(penalty, [groups], normal)]
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
        beside = []
        if self.inputs != "past":
            extras = self.layout.extras(self.task, past, past_known, future_known, observed)
            level = [centre] if self.inputs == "level" else []
            beside = [extras[:, None], *level]
        if self.maps == 1 and len(self.task.targets) >= WIDE:
            parts = [inputs, *beside]
            maps = self.weights[0].split([part.shape[2] for part in parts])
            ahead = centre.transpose(1, 2)
            for part, weights in zip(parts, maps, strict=True):
                ahead = ahead + torch.matmul(weights.T, part.transpose(1, 2))
            return ahead
        inputs = torch.cat([inputs, *(part.expand(-1, inputs.shape[1], -1) for part in beside)], 2)
        ahead = torch.matmul(inputs.transpose(0, 1), self.weights).transpose(0, 1) + centre
        return ahead.transpose(1, 2)

    def linear(self) -> Tensor:
        """The map of the past; that of covariates and calendar is `beside`."""
        weights = self.weights[:, : self.past].clone()
        centre = 1 - weights.sum(dim=1, keepdim=True)
        if self.inputs == "level":
            centre = centre + self.weights[:, -1:]
        newest = 1 if self.centre == "last" else self.season
        weights[:, -newest:] += centre / newest
        return weights

    def beside(self) -> Tensor:
        """The map (maps, width, T) of covariates and calendar, 0 if they are not read."""
        if self.inputs == "past":
            maps, width = len(self.weights), self.layout.width(self.task.horizon)
            return self.weights.new_zeros(maps, width, self.task.horizon)
        return self.weights[:, self.past : len(self.weights[0]) - (self.inputs == "level")]


def merged(parts: Sequence[Part], shares: Tensor) -> Ridge | None:
    """The sum of linear parts weighted by shares (n, T), for complete windows, as one ridge.

    None unless at least two ridges among them read the same inputs in addition to the past.
    """
    ridges = [part for part in parts if isinstance(part, Ridge)]
    if len(ridges) < 2 or len({part.layout for part in ridges}) > 1:
        return None
    first, past = ridges[0], max(part.past for part in parts)
    task, layout, maps = first.task, first.layout, max(part.maps for part in ridges)
    width = layout.width(task.horizon)
    weights = torch.zeros(maps, past + width + 1, task.horizon, dtype=torch.float64)
    for part, share in zip(parts, shares.double().cpu(), strict=True):
        line = part.linear()
        assert line is not None
        weights[:, past - part.past : past] += line.cpu() * share
        if isinstance(part, Ridge):
            weights[:, past:-1] += part.beside().cpu() * share
    weights[:, -1] = weights[:, :past].sum(dim=1) - 1
    ridge = Ridge(
        task, "merged", past,
        season=1, centre="last", inputs="level", maps=maps, penalties=(), **layout.settings,
    )  # fmt: skip
    ridge.weights.copy_(weights)
    return ridge.to(first.weights.device)


def reach(past: int, season: int) -> int:
    """The steps of a look-back that a ridge reads: all, or whole cycles within LONGEST steps, or as
    many steps of a longer cycle."""
    return past if past <= LONGEST else LONGEST // season * season or LONGEST


def look_backs(longest: int, season: int) -> list[int]:
    """The longest look-back and, if there is one, a shorter one in whole cycles."""
    short = max(1, longest // SHORTER // season) * season
    return [longest, short] if short < longest else [longest]


def longer(train: int, past: int, season: int) -> tuple[int, ...]:
    """The look-backs of WEEKS that `train` steps allow beyond `past`; none without a season."""
    most = min(train // LEAST, LONGEST) if season > 1 else 0
    return tuple(steps for weeks in WEEKS if past < (steps := weeks * season) <= most)


def best(fold: Fold, pasts: Sequence[int]) -> int:
    """The look-back from which a map of the past alone, one for all columns, errs least on
    `fold.choose`; the fold looks back as far as the longest of them."""
    layout, season, longest = Layout(0, (), 0, (), ()), fold.seasons[0], max(pasts)
    both = fold.train.looking_back(longest), fold.choose.looking_back(longest)
    sums = [summed(windows, fold.task, layout) for windows in both]

    def error(past: int) -> float:
        train, judge = (_Normal(sides, past, "last", season, [past]) for sides in sums)
        maps = (train.solve(penalty, [[past]], judge) for penalty in PENALTIES)
        return min(error for ((_, error),) in maps)

    return min(pasts, key=error)


def _groups(layout: Layout, task: Task, past: int, inputs: str) -> tuple[int, ...]:
    """The number of values in each group of inputs: past; covariates; calendar; level."""
    known = layout.moving * (layout.before + task.horizon) + len(layout.others) * layout.before
    groups = past, known, layout.waves, 1
    return groups[: {"past": 1, "calendar": 3, "level": 4}[inputs]]


class _Normal:
    """The normal equations of maps, as differences from the map that a strong penalty leaves."""

    def __init__(
        self, sums: Moments, past: int, centre: str, season: int, groups: Sequence[int]
    ) -> None:
        horizon = sums.horizon
        middle = torch.zeros(sums.past, dtype=torch.float64)
        middle[-1 if centre == "last" else -season :] = 1
        self.groups = groups
        width = sum(groups)
        gram, cross, self.squares = sums.centred(past, middle / middle.sum())
        self.gram, self.missing = gram[:width, :width], cross[:width]
        self.start = torch.zeros(width, horizon, dtype=torch.float64)
        if centre == "cycle":
            cycles = past // season
            cycle = torch.eye(season, dtype=torch.float64).repeat(cycles, 1) / cycles
            phases = torch.arange(horizon) % season
            begin = past - len(cycle)
            self.start[begin:past] = cycle[:, phases]
            self.missing = cross[:width] - (self.gram[:, begin:past] @ cycle)[:, phases]
            both = cross[begin:past] + self.missing[begin:past]
            self.squares -= float((self.start[begin:past] * both).sum())

    def solve(
        self, penalty: float, kinds: Sequence[Sequence[int]], judge: "_Normal"
    ) -> Iterator[tuple[Tensor, float]]:
        """The map (inputs, T) of each of `kinds`, and the sum of its squared errors on `judge`.

        `penalty` is relative to the mean square of each group; a kind has the groups of the one
        before it and more. New inputs are added by block elimination: `inverse` is that of the
        products of the inputs so far times [products with the inputs to come, missing], and `seen`
        holds the products of `judge` times that.
        """
        means = (part.mean().clamp(min=1e-9) for part in self.gram.diagonal().split(self.groups))
        scale = torch.cat([m.expand(n) for m, n in zip(means, self.groups, strict=True)])
        inputs, horizon = self.missing.shape
        inverse, seen = self.missing, judge.missing  # of no inputs yet
        for begin, end in pairwise([0, *map(sum, kinds)]):
            block = self.gram[begin:end, begin:end].clone()
            block.diagonal().add_(scale[begin:end], alpha=penalty)
            right = torch.cat([self.gram[begin:end, end:], self.missing[begin:end]], dim=1)
            across = judge.gram[:, begin:end]
            if not begin:
                step = torch.cholesky_solve(right, torch.linalg.cholesky(block))
                seen = across @ step
                inverse = step.new_empty(inputs, step.shape[1])
            else:
                joins = end - begin
                before, inverse = inverse[:begin, :joins], inverse[:, joins:]
                known = self.gram[begin:end, :begin]
                factor = torch.linalg.cholesky(block.addmm_(known, before, alpha=-1))
                step = torch.cholesky_solve(right.addmm_(known, inverse[:begin], alpha=-1), factor)
                inverse[:begin].addmm_(before, step, alpha=-1)
                across, seen = across - seen[:, :joins], seen[:, joins:]
                seen.addmm_(across, step)
            inverse[begin:end] = step
            change = inverse[:end, -horizon:]
            off = torch.sub(seen[:end, -horizon:], judge.missing[:end], alpha=2).mul_(change)
            yield self.start[:end] + change, judge.squares + float(off.sum())


Trial = tuple[float, Tensor, str, tuple[float, ...]]
"""The error of maps on `Fold.choose`, the maps (maps, inputs, T), their centre and penalties."""


class _Fitting:
    def __init__(self, fold: Fold, layout: Layout, season: int) -> None:
        task = fold.task
        self.task, self.layout, self.season = task, layout, season
        self.columns = len(task.targets)
        near = reach(fold.look_back, season)
        inputs = sum(_groups(layout, task, near, "level"))
        by_column = self.columns > 1 and self.columns * inputs * task.horizon <= SIZE
        by_column = by_column and self.columns * (inputs + task.horizon) ** 2 <= HELD
        self.own: list[tuple[Moments, Moments]] = []
        if by_column:
            pair = (moments(w.looking_back(near), task, layout) for w in (fold.train, fold.choose))
            self.own = [*zip(*pair, strict=True)]
            self.whole = self.own[0]
            for fitted, judged in self.own[1:]:
                self.whole = self.whole[0] + fitted, self.whole[1] + judged
        else:
            judging = summed(fold.choose.looking_back(near), task, layout)
            self.whole = total(fold, near, layout), judging

    def trials(self, past: int) -> Iterator[Mapping[str, Trial]]:
        """Yield the best map for each kind of inputs, for each centre, shared and by column."""
        groups = {inputs: _groups(self.layout, self.task, past, inputs) for inputs in INPUTS}
        inputs = sum(groups["level"])
        by_column = self.own and self.columns * inputs**2 * (inputs + self.task.horizon) <= WORK
        for centre in CENTRES if past >= self.season > 1 else CENTRES[:1]:
            yield self._best([self.whole], past, centre, groups)
            if by_column:
                yield self._best(self.own, past, centre, groups)

    def _best(
        self,
        columns: Sequence[tuple[Moments, Moments]],
        past: int,
        centre: str,
        groups: Mapping[str, Sequence[int]],
    ) -> dict[str, Trial]:
        """The best maps, with a separate penalty for each of `columns`."""
        scored: dict[str, list[tuple[float, float, Tensor]]] = {key: [] for key in groups}
        for train, judge in columns:
            normal = _Normal(train, past, centre, self.season, groups["level"])
            judged = _Normal(judge, past, centre, self.season, groups["level"])
            trials: dict[str, list[tuple[float, float, Tensor]]] = {key: [] for key in groups}
            for penalty in PENALTIES:
                maps = normal.solve(penalty, list(groups.values()), judged)
                for inputs, (weights, error) in zip(groups, maps, strict=True):
                    trials[inputs].append((error, penalty, weights))
            for inputs, options in trials.items():
                scored[inputs].append(min(options, key=lambda trial: trial[0]))
        values = sum(judge.values for _, judge in columns)
        return {
            inputs: (
                sum(error for error, _, _ in best) / values,
                torch.stack([weights for _, _, weights in best]).float(),
                centre,
                tuple(penalty for _, penalty, _ in best),
            )
            for inputs, best in scored.items()
        }

    def described(self, inputs: str, past: int, centre: str, penalties: Sequence[float]) -> str:
        ends = dict.fromkeys(f"{penalty:g}" for penalty in (min(penalties), max(penalties)))
        words = f"P = {past}, centred on the last {'value' if centre == 'last' else 'cycle'}"
        if inputs != "past":
            named = ["level"] if inputs == "level" else []
            named += ["calendar"]
            named += ["covariates"] if self.layout.moving or self.layout.others else []
            words += ", with " + " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
        words += f", penalty {'–'.join(ends)}"
        if self.columns > 1:
            words += (
                ", one map for all columns" if len(penalties) == 1 else ", a map for each column"
            )
        return words
