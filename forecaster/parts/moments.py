"""Sums of products over windows, from which every linear part is fitted and evaluated.

Windows of one complete series are one row apart, so the sum of x[i] y[j] at (i + 1, j + 1) is the
sum at (i, j) plus a product that enters and minus one that leaves: N (P + T) operations per pair of
columns, not N (P + T)^2, and no window is ever gathered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from forecaster.base.machine import sent
from forecaster.datasets.windows import Batch, Windows, evenly
from forecaster.model import Task
from forecaster.model.normalise import phase_of
from forecaster.parts.base import Fold, filled

MULTIPLICATIONS = 10**10
"""The most multiplications for products of windows that must be gathered: a few seconds."""
HELD = 2**26
"""The most sums held at a time when windows must be gathered: 512 MB."""
HARMONICS = 6
"""The most waves of a season that give the place of a window in it; a round number."""
EXTRAS = 2_500
"""The most values of known features and of other columns that a window may have in addition to the
past of its target, like the longest past: the cost of a fit grows with the cube of both."""


@dataclass(frozen=True)
class Layout:
    """The extras: the values of a window other than the past and future of its target.

    These are the `before` steps before the forecast and its T steps of each of `moving` known
    features; the `before` steps before the forecast of each of the columns `others`; then 1, and
    for each of `seasons` the waves of the place at which the forecast begins.
    """

    moving: int
    others: tuple[int, ...]
    before: int
    seasons: tuple[int, ...]
    phases: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, fold: Fold) -> "Layout":
        """The layout that fits in EXTRAS: with fewer steps before the forecast, or with none."""
        task = fold.task
        others = tuple(c for c in range(task.columns) if c not in task.targets)
        pairs = zip(fold.seasons, fold.phases, strict=True)
        known = [(season, weights) for season, weights in pairs if weights]
        before = min(fold.look_back, fold.seasons[0])
        room = EXTRAS - fold.moving * task.horizon
        moving = fold.moving if room >= 0 else 0
        if moving + len(others):
            before = min(before, max(0, EXTRAS - moving * task.horizon) // (moving + len(others)))
        return cls(
            moving,
            others if before else (),
            before,
            tuple(season for season, _ in known),
            tuple(weights for _, weights in known),
        )

    @property
    def settings(self) -> dict[str, Any]:
        phases = [list(phase) for phase in self.phases]
        lists = {"others": list(self.others), "seasons": list(self.seasons), "phases": phases}
        return {**vars(self), **lists}

    @property
    def waves(self) -> int:
        return 1 + sum(2 * min(HARMONICS, season // 2) for season in self.seasons)

    def width(self, horizon: int) -> int:
        known = self.moving * (self.before + horizon)
        return known + len(self.others) * self.before + self.waves

    def place(self, calendar: Tensor) -> Tensor:
        """1 and the waves (..., waves) of steps from their calendar features (..., F)."""
        parts = [torch.ones_like(calendar[..., :1])]
        for season, weights in zip(self.seasons, self.phases, strict=True):
            known = calendar[..., : len(weights)]
            there = sent(torch.tensor(weights, dtype=known.dtype), known.device)
            step = phase_of(known, there, season).to(known.dtype)
            waves = torch.arange(1, min(HARMONICS, season // 2) + 1, device=calendar.device)
            angle = step[..., None] * waves * (2 * torch.pi / season)
            parts += [angle.cos(), angle.sin()]
        return torch.cat(parts, dim=-1)

    def extras(
        self,
        task: Task,
        past: Tensor,
        past_known: Tensor,
        future_known: Tensor,
        observed: Tensor | None,
    ) -> Tensor:
        count = task.calendar
        parts = []
        if self.moving:
            upto = count + self.moving
            before = past_known[:, past_known.shape[1] - self.before :, count:upto]
            ahead = future_known[..., count:upto]
            parts.append(torch.cat([before, ahead], dim=1).transpose(1, 2).flatten(1))
        if self.others:
            which = sent(torch.tensor(self.others), past.device)
            values = past[..., which].transpose(1, 2)
            seen = None if observed is None else observed[..., which].transpose(1, 2)
            parts.append(filled(values, seen, task.season)[..., -self.before :].flatten(1))
        parts.append(self.place(future_known[:, 0, :count]))
        return torch.cat(parts, dim=1).to(past.dtype)


@dataclass(frozen=True, eq=False)
class Moments:
    """Products summed over windows, for one target column or several.

    `sums` (D, D) is float64, over the past and future of the target in a window, P + T values, and
    its extras; `values` is the number of target values.
    """

    sums: Tensor
    past: int
    horizon: int
    values: int

    def __add__(self, other: "Moments") -> "Moments":
        return replace(self, sums=self.sums + other.sums, values=self.values + other.values)

    def centred(self, past: int, weights: Tensor) -> tuple[Tensor, Tensor, float]:
        """Sums over centred windows: inputs by inputs, inputs by future, squares of the future.

        The centre is weights (P) @ the whole past. Inputs are the newest `past` values minus the
        centre, then the extras as they are, then the centre itself.
        """
        everything, horizon = self.past, self.horizon
        size = len(self.sums)
        ones = torch.zeros(size, dtype=torch.float64)
        ones[: everything + horizon] = 1
        centre = torch.zeros_like(ones)
        centre[:everything] = weights
        across = self.sums @ centre
        square = centre @ across
        level = across - ones * square
        places = torch.arange(size)
        inputs = torch.cat([places[everything - past : everything], places[everything + horizon :]])
        ahead = slice(everything, everything + horizon)

        def less(rows: Tensor, columns: Tensor | slice) -> Tensor:
            products = self.sums[rows][:, columns]
            products = products - ones[rows][:, None] * across[columns]
            products = products - across[rows][:, None] * ones[columns]
            return products + ones[rows][:, None] * ones[columns] * square

        gram = torch.empty(len(inputs) + 1, len(inputs) + 1, dtype=torch.float64)
        gram[:-1, :-1] = less(inputs, inputs)
        gram[-1, :-1] = gram[:-1, -1] = level[inputs]
        gram[-1, -1] = square
        cross = torch.cat([less(inputs, ahead), level[ahead][None]])
        diagonal = self.sums.diagonal()[ahead] - 2 * across[ahead] + square
        return gram, cross, float(diagonal.sum())


def moments(windows: Windows, task: Task, layout: Layout) -> Iterator[Moments]:
    """Yield the moments of each target column in turn."""
    if _slides(windows):
        sliding = _Sliding(windows, task, layout)
        yield from (sliding.of([target]) for target in windows.targets)
    else:
        yield from _gathered(windows, task, layout)


def summed(windows: Windows, task: Task, layout: Layout) -> Moments:
    """The moments of all target columns together.

    The sums of one column are held at a time: those of hundreds of columns would take gigabytes.
    """
    if _slides(windows):
        return _Sliding(windows, task, layout).of(windows.targets)
    return reduce(add, _gathered(windows, task, layout))


def _slides(windows: Windows) -> bool:
    return windows.complete and windows.items is None and windows.every == 1


_TOTALS: WeakKeyDictionary[Fold, dict[tuple[int, Layout], Moments]] = WeakKeyDictionary()


def total(fold: Fold, past: int, layout: Layout) -> Moments:
    """The moments of all target columns over the training windows, computed once per fold."""
    known = _TOTALS.setdefault(fold, {})
    if (past, layout) not in known:
        known[past, layout] = summed(fold.train.looking_back(past), fold.task, layout)
    return known[past, layout]


class _Sliding:
    def __init__(self, windows: Windows, task: Task, layout: Layout) -> None:
        past, self.horizon, self.count = windows.past, windows.horizon, len(windows)
        begin = windows.origin(0)[1] - past
        rows = slice(begin, begin + self.count + past + self.horizon - 1)
        self.past, self.values = past, windows.values[rows].cpu()
        calendar = windows.calendar[rows].cpu()
        known = [column.double() for column in calendar[:, task.calendar :].T]
        if windows.covariates is not None:
            known += [column.double() for column in windows.covariates[rows].cpu().T]
        others = slice(past - layout.before, past + self.count - 1)
        besides = [column[past - layout.before :] for column in known[: layout.moving]]
        besides += [self.values[others, column].double() for column in layout.others]
        self.besides = [column[:, None] for column in besides]
        origins = slice(past, past + self.count)
        self.place = layout.place(calendar[origins, : task.calendar].double())

    def of(self, targets: Sequence[int]) -> Moments:
        """The moments of these columns together.

        Their products with other series are the products of their sum.
        """
        columns = self.values[:, list(targets)].double()
        first = _slide(columns, columns, self.count)
        across = self._row(columns.sum(dim=1, keepdim=True), self.besides)
        upper = torch.cat([first, across], dim=1)
        lower = torch.cat([across.T, len(targets) * self._beside], dim=1)
        values = len(targets) * self.count * self.horizon
        return Moments(torch.cat([upper, lower]), self.past, self.horizon, values)

    @cached_property
    def _beside(self) -> Tensor:
        ends = np.cumsum([0, *(len(series) - self.count + 1 for series in self.besides)]).tolist()
        size = ends[-1] + self.place.shape[1]
        sums = torch.empty(size, size, dtype=torch.float64)
        for i, (begin, end) in enumerate(pairwise(ends)):
            block = self._row(self.besides[i], self.besides[i:])
            sums[begin:end, begin:] = block
            sums[begin:, begin:end] = block.T
        sums[ends[-1] :, ends[-1] :] = self.place.T @ self.place
        return sums

    def _row(self, one: Tensor, others: Sequence[Tensor]) -> Tensor:
        """The sums of the products of a series with others and with the place."""
        blocks = [_slide(one, other, self.count) for other in others]
        return torch.cat([*blocks, _correlate(one, self.place)], dim=1)


def _slide(left: Tensor, right: Tensor, count: int) -> Tensor:
    """sum_o,k left[o + i, k] right[o + j, k] over `count` places o, for all i and j."""
    rows, columns = len(left) - count + 1, len(right) - count + 1
    sums = torch.empty(rows, columns, dtype=torch.float64)
    sums[0] = _correlate(right, left[:count]).sum(dim=1)
    sums[:, 0] = _correlate(left, right[:count]).sum(dim=1)
    change = left[count:] @ right[count:].T
    change -= left[: rows - 1] @ right[: columns - 1].T
    for i in range(1, rows):
        torch.add(sums[i - 1, :-1], change[i - 1], out=sums[i, 1:])
    return sums


def _correlate(longer: Tensor, shorter: Tensor) -> Tensor:
    """sum_o shorter[o, k] longer[o + j, k] for all j, (N, K) by (n, K) -> (N - n + 1, K)."""
    from scipy.signal import fftconvolve  # type: ignore[import-untyped]

    if len(shorter) * (len(longer) - len(shorter)) > 2**20:
        whole = fftconvolve(longer.numpy(), shorter.flip(0).numpy(), mode="valid", axes=0)
        return torch.from_numpy(whole)
    columns = max(longer.shape[1], shorter.shape[1])
    pairs = zip(
        longer.expand(-1, columns).T.numpy(), shorter.expand(-1, columns).T.numpy(), strict=True
    )
    return torch.from_numpy(np.stack([np.correlate(*pair) for pair in pairs], axis=1))


def _gathered(windows: Windows, task: Task, layout: Layout) -> Iterator[Moments]:
    """Yield the moments of evenly spaced windows, as many as MULTIPLICATIONS allows.

    Gaps are `filled`: those of the past from the past alone, those of the future from both.
    """
    targets, size = windows.targets, windows.past + windows.horizon + layout.width(windows.horizon)
    index = evenly(windows, max(1, MULTIPLICATIONS // (len(targets) * size**2)))
    share, values = len(windows) / len(index), len(windows) * windows.horizon
    room = max(1, HELD // size**2)
    for begin in range(0, len(targets), room):
        some = targets[begin : begin + room]
        sums = torch.zeros(len(some), size, size, dtype=torch.float64)
        for part in index.split(windows.evaluation_batch):
            batch = windows.batch(part)
            whole = _whole(batch, targets, task.season)[:, begin : begin + room]
            extras = layout.extras(task, *batch.inputs)
            for place in range(len(some)):
                rows = torch.cat([whole[:, place], extras], dim=1).double()
                sums[place] += (rows.T @ rows).cpu()
        for products in sums:
            yield Moments(products * share, windows.past, windows.horizon, values)


def _whole(batch: Batch, targets: Sequence[int], season: int) -> Tensor:
    """Past and future of the targets, (B, K, P + T), without gaps."""
    values = torch.cat([batch.past[..., list(targets)], batch.target], dim=1).transpose(1, 2)
    if batch.observed is None:
        return values
    past_seen, ahead_seen = batch.observed[..., list(targets)], batch.target_observed
    if ahead_seen is None:
        ahead_seen = torch.ones_like(batch.target, dtype=torch.bool)
    seen = torch.cat([past_seen, ahead_seen], dim=1).transpose(1, 2)
    past = batch.past.shape[1]
    # as the forecast will see it: the future does not fill the past
    before = filled(values[..., :past], seen[..., :past], season)
    repeated = filled(values, seen, season)[..., past:]
    return torch.cat([before, repeated], dim=2)
