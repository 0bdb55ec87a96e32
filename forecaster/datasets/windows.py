"""Windows over one or many series, gathered from one table of rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from forecaster.base.errors import DataError
from forecaster.base.machine import sent
from forecaster.datasets.card import End
from forecaster.datasets.dataset import Items

CHUNK = 2**22
"""The values of a piece of `Windows.rows`: 16 MB; nothing depends on its exact value."""


class Batch(NamedTuple):
    """B windows; values are scaled.

    Missing values are 0 and not `observed`; if none can be missing, both masks are None. The F
    known features of a step are its calendar, then its covariates, then the static attributes of
    its series.
    """

    past: Tensor  # (B, P, C)
    past_known: Tensor  # (B, P, F)
    future_known: Tensor  # (B, T, F)
    target: Tensor  # (B, T, len(targets))
    observed: Tensor | None = None  # (B, P, C), True where `past` holds a value
    target_observed: Tensor | None = None  # (B, T, len(targets))
    item: Tensor | None = None  # (B,), the series of a panel
    shift: Tensor | None = None  # (B, P + T, len(targets)), what was taken out of the targets
    limits: Tensor | None = None  # (B, 1, len(targets), 2), with what was taken out
    base: Tensor | None = None  # (B, 1, len(targets)), the value at 0, in standard deviations

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        return self.past, self.past_known, self.future_known, self.observed

    @property
    def asked(self) -> tuple[Tensor | None, ...]:
        """The inputs of a blend: those of a model, the series of a panel, and what is `beside`."""
        inputs = *self.inputs, self.item
        return inputs if self.beside is None else (*inputs, self.beside)

    @property
    def beside(self) -> Tensor | None:
        """What some parts read, too: `base` or, where there are effects of covariates, `shift`."""
        return self.base if self.shift is None else self.shift

    def within(self, forecast: Tensor) -> Tensor:
        """A forecast (B, T, targets) or its quantiles, with one more dimension, in the limits."""
        if self.limits is None:
            return forecast
        limits = self.limits
        if self.shift is not None:
            limits = limits - self.shift[:, -self.target.shape[1] :, :, None]
        limits = limits.to(forecast.dtype)
        low, high = limits.view(*limits.shape[:3], *(1,) * (forecast.ndim - 3), 2).unbind(-1)
        return torch.maximum(torch.minimum(forecast, high), low)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with `change` applied to each tensor."""
        return Batch._make(None if tensor is None else change(tensor) for tensor in self)


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows, one row apart, whose T target steps lie wholly in steps [first, last) of the grid.

    Each item of a panel may have its own [first, last).

    `values` (N, C) are scaled, NaN where missing; `calendar` (G, F) belongs to the grid; `past` is
    P, `horizon` T; `targets` are the positions of the target columns; `items` gives the rows of
    each series of a panel, None for one series whose rows are the grid; `covariates` (N, K) are
    scaled and known ahead; `shift` (N, len(targets)) is the effect of the covariates, which was
    taken out of `values`; `limits` (targets, 2), or (S, targets, 2) for a panel, are those of the
    targets with it, scaled; `base` (targets,), or (S, targets), is what their 0 stands for, in
    standard deviations, None if some training value is not positive; `static` (S, J) belongs to the
    items; only every `every`-th window counts. The past of a window may begin before `first`, but
    at most `padding` rows before its series (if that is negative, not in its first -padding rows):
    values there are missing, and the known features of those steps have no meaning. Raises
    DataError when no window fits, or when a value is infinite after scaling.
    """

    values: Tensor
    calendar: Tensor
    past: int
    horizon: int
    first: End
    last: End
    targets: tuple[int, ...]
    items: Items | None = None
    covariates: Tensor | None = None
    static: Tensor | None = None
    every: int = 1
    padding: int = 0
    shift: Tensor | None = None
    limits: Tensor | None = None
    base: Tensor | None = None

    def __post_init__(self) -> None:
        rows, columns = self.values.shape
        grid = len(self.calendar)
        expected = grid if self.items is None else self.items.bounds[-1]
        if expected != rows:
            raise ValueError(f"{rows} rows of values, but the grid or the items have {expected}")
        first, last = np.asarray(self.first), np.asarray(self.last)
        if not ((first >= 0) & (first <= last) & (last <= grid)).all():
            raise ValueError(f"steps [{self.first}, {self.last}) are not within the {grid} steps")
        if not self.targets or not all(0 <= target < columns for target in self.targets):
            raise ValueError(f"targets {self.targets} are not among the {columns} columns")
        if self.past < 1 or self.horizon < 1 or self.every < 1:
            raise ValueError(
                f"past {self.past}, horizon {self.horizon} and every {self.every} must be positive"
            )
        if len(self) == 0:
            longest = rows if self.items is None else self.items.lengths.max()
            raise DataError(
                f"no window fits: no series has {self.horizon} steps among steps {self.span} of "
                f"the time grid after a look-back of {self.past}; the longest has {longest} rows."
            )
        infinite = self.values.isinf()
        if infinite.any():
            row, column = (int(place) for place in infinite.nonzero()[0])
            raise DataError(
                f"row {row + 1}, column {column + 1}: {self.values[row, column]:g} after "
                "scaling; the value is too far from those of the training rows."
            )

    @property
    def span(self) -> str:
        if isinstance(self.first, int) and isinstance(self.last, int):
            return f"{self.first} to {self.last}"
        return "of each series' own part"

    def __len__(self) -> int:
        return (int(self._starts[2][-1]) + self.every - 1) // self.every

    def spaced(self, most: int) -> "Windows":
        """These windows or, if there are more than `most`, about that many, evenly spaced.

        It takes every n-th window, where n is a prime that does not divide the usual number of
        windows of an item, so that items of equal length give windows at all their steps.
        """
        if len(self) <= most:
            return self
        every = -(-len(self) // most)
        counts = self._starts[1]
        usual = int(counts[counts > 0].mode().values)
        while usual % every == 0 or any(every % n == 0 for n in range(2, int(every**0.5) + 1)):
            every += 1
        return replace(self, every=every)

    @property
    def horizons(self) -> float:
        """The number of horizons that the targets span, of all series together: as many windows lie
        apart."""
        series = int((self._starts[1] > 0).sum())
        return (int(self._starts[2][-1]) + series * (self.horizon - 1)) / self.horizon

    @property
    def evaluation_batch(self) -> int:
        """The number of windows to process at a time without gradients.

        It is 64, more for a panel and fewer for wide or long windows: at most 2**20 values, 4 MB in
        32 bits, which stay in a processor's cache from one operation to the next.
        """
        values = (self.past + self.horizon) * self.values.shape[1]
        return max(1, min(64 if self.items is None else 1024, 2**20 // values))

    @cached_property
    def complete(self) -> bool:
        """Whether no value is missing and no past begins before its series."""
        return not self._leads and not bool(self.values.isnan().any())

    @property
    def whole(self) -> "Windows":
        """The same windows with the effects of the covariates in their values."""
        if self.shift is None:
            return self
        values = self.values.clone()
        values[:, list(self.targets)] += self.shift
        return replace(self, values=values, shift=None)

    def looking_back(self, past: int) -> "Windows":
        """The same windows with the same targets and a different look-back."""
        return replace(self, past=past, padding=self.padding + past - self.past)

    def locate(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The item, first row and first step of the grid of the windows at `index` (B,), on the
        host, where they are known without waiting for the device."""
        number = index * self.every
        low, count, ends = self._starts
        item = torch.searchsorted(ends, number, right=True)
        start = number - ends[item] + count[item] + low[item]
        bounds, places = self._layout
        return item, start + bounds[item], start + places[item]

    def origin(self, number: int) -> tuple[int, int, int]:
        """The item, and the row and step of the grid at which the target of a window begins."""
        item, row, step = self.locate(torch.tensor([number]))
        return int(item), int(row) + self.past, int(step) + self.past

    def batch(self, index: Tensor) -> Batch:
        """The windows at `index` (B,), copied at once."""
        device = self.values.device
        item, row, step = self.locate(index.cpu())
        places = [item, row, step, row + self.past, step + self.past, self._layout[0][item]]
        placed = sent(torch.stack(places), device)  # one copy for all
        item, row, step, row_ahead, step_ahead, bound = placed.unbind()
        past = self._take(self.values, row, self.past)
        if self._leads:
            ago = torch.arange(self.past, device=device)
            before = row[:, None] + ago < bound[:, None]
            past = past.masked_fill(before[..., None], torch.nan)
        target = self._take(self.values, row_ahead, self.horizon)
        if self.targets != tuple(range(self.values.shape[1])):
            target = target[..., self._columns]
        observed = target_observed = shift = limits = base = None
        if self.base is not None:
            base = self.base[item] if self.base.ndim == 2 else self.base
            base = base.expand(len(item), -1)[:, None]
        if self.limits is not None:
            limits = self.limits[item] if self.limits.ndim == 3 else self.limits
            limits = limits.expand(len(item), -1, -1)[:, None]
        if self.shift is not None:
            shift = self._take(self.shift, row, self.past + self.horizon)
        if not self.complete:
            observed, target_observed = ~past.isnan(), ~target.isnan()
            past, target = past.nan_to_num(), target.nan_to_num()
        return Batch(
            past=past,
            past_known=self._known(item, row, step, self.past),
            future_known=self._known(item, row_ahead, step_ahead, self.horizon),
            target=target,
            observed=observed,
            target_observed=target_observed,
            item=None if self.items is None else item,
            shift=shift,
            limits=limits,
            base=base,
        )

    def rows(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all rows before step `last` in pieces: values (n, C) and their calendar (n, F)."""
        last, bounds, places = (
            x.to(self.values.device) for x in (_index(self.last), *self._layout)
        )
        size = max(1, CHUNK // self.values.shape[1])
        for begin, values in enumerate(self.values.split(size)):
            step = begin * size + torch.arange(len(values), device=values.device)
            item = torch.searchsorted(bounds, step, right=True) - 1
            step = step - bounds[item] + places[item]
            before = step < (last[item] if last.ndim else last)
            yield values[before], self.calendar[step[before]]

    def to(self, device: torch.device | str) -> "Windows":
        parts = {
            name: getattr(self, name)
            for name in ("covariates", "static", "shift", "limits", "base")
        }
        moved = {name: part.to(device) for name, part in parts.items() if part is not None}
        values, calendar = self.values.to(device), self.calendar.to(device)
        return replace(self, values=values, calendar=calendar, **moved)

    def _known(self, item: Tensor, row: Tensor, step: Tensor, count: int) -> Tensor:
        """(B, count, F): calendar, covariates, static attributes."""
        known = [self._take(self.calendar, step, count)]
        if self.covariates is not None:
            known.append(self._take(self.covariates, row, count))
        if self.static is not None:
            known.append(self.static[item][:, None].expand(-1, count, -1))
        return known[0] if len(known) == 1 else torch.cat(known, dim=2)

    def _take(self, rows: Tensor, first: Tensor, count: int) -> Tensor:
        """(B, count, columns): `count` rows of each window from its `first` on.

        A window is one stretch of memory, copied at once. If the past of some window begins before
        its series, rows are gathered one by one, and row 0 replaces rows before it.
        """
        columns = rows.shape[1]
        if self._leads or not rows.is_contiguous():
            index = (first[:, None] + torch.arange(count, device=rows.device)).clamp(min=0)
            taken: Tensor = rows.index_select(0, index.flatten()).unflatten(0, index.shape)
            return taken
        stretches = rows.as_strided((len(rows) - count + 1, count * columns), (columns, 1))
        return stretches.index_select(0, first).view(len(first), count, columns)

    @cached_property
    def _columns(self) -> Tensor:
        return _index(self.targets).to(self.values.device)

    @cached_property
    def _layout(self) -> tuple[Tensor, Tensor]:
        """For each item, its first row and its first step of the grid."""
        items = self.items or Items.single(len(self.values))
        return _index(items.bounds[:-1]), _index(items.places)

    @cached_property
    def _starts(self) -> tuple[Tensor, Tensor, Tensor]:
        """For each item, the first row at which a past begins, the number of windows, and that of
        all up to and including the item."""
        items = self.items or Items.single(len(self.values))
        low, count = items.windows(self.past, self.horizon, self.first, self.last, self.padding)
        return _index(low), _index(count), _index(count).cumsum(0)

    @cached_property
    def _leads(self) -> bool:
        """Whether the past of some window begins before its series."""
        low, count, _ = self._starts
        return bool((low[count > 0] < 0).any())


def _index(numbers: object) -> Tensor:
    return torch.as_tensor(numbers, dtype=torch.long)


def described(windows: Windows) -> str:
    total = int(windows._starts[2][-1])
    which = "all" if windows.every == 1 else f"every {windows.every}th of {total:,}:"
    return f"{which} {len(windows):,} windows"


def evenly(windows: Windows, most: int) -> Tensor:
    """The indices of at most `most` windows, evenly spaced, including the first and the last."""
    count = min(len(windows), most)
    return torch.linspace(0, len(windows) - 1, count, dtype=torch.float64).round().long()


def sample(windows: Windows, most: int) -> Iterator[Batch]:
    """At most `most` windows, evenly spaced, in batches."""
    return map(windows.batch, evenly(windows, most).split(windows.evaluation_batch))


def longest(windows: Windows) -> int:
    """The most target steps that the windows of one series span."""
    return int(windows._starts[1].max()) + windows.horizon - 1


def middle(windows: Windows) -> End | None:
    """The end of the steps that hold the earlier half of the windows of each series; None if none
    has two."""
    halves = windows._starts[1].numpy() // 2
    if not halves.any():
        return None
    if windows.items is None:
        return int(np.asarray(windows.last)) - int(halves[0])
    ends = np.minimum(np.asarray(windows.last), windows.items.places + windows.items.lengths)
    return tuple((ends - halves).tolist())
