"""Windows over one series: strided views of one tensor."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from forecaster.errors import DataError


class Batch(NamedTuple):
    """B windows; all but the calendar in scaled values."""

    past: Tensor  # (B, P, C)
    past_calendar: Tensor  # (B, P, F)
    future_calendar: Tensor  # (B, T, F)
    target: Tensor  # (B, T, len(targets))


@dataclass(frozen=True, eq=False)
class Windows:
    """All windows, one row apart, whose T target steps lie wholly in rows [first, last).

    `values` (N, C) scaled, `calendar` (N, F), both of the whole series; `past` P; `horizon` T;
    `targets` the positions of the predicted columns. The past of a window may begin before
    `first`, never before row 0. Raises DataError when no window fits, or when a value is not
    finite after scaling.
    """

    values: Tensor
    calendar: Tensor
    past: int
    horizon: int
    first: int
    last: int
    targets: tuple[int, ...]

    def __post_init__(self) -> None:
        rows, columns = self.values.shape
        if len(self.calendar) != rows:
            raise ValueError(f"{rows} rows of values but {len(self.calendar)} of calendar")
        if not 0 <= self.first <= self.last <= rows:
            raise ValueError(f"rows [{self.first}, {self.last}) are not within the {rows} rows")
        if not self.targets or not all(0 <= target < columns for target in self.targets):
            raise ValueError(f"targets {self.targets} are not among the {columns} columns")
        if self.past < 1 or self.horizon < 1:
            raise ValueError(f"past {self.past} and horizon {self.horizon} must be positive")
        if len(self.starts) == 0:
            longest = self.last - max(self.first, self.past)
            way_out = (
                f"the longest horizon that fits is {longest}"
                if longest > 0
                else f"a look-back below {self.last} is needed"
            )
            raise DataError(
                f"no window fits, {way_out}: rows {self.first} to {self.last} leave {self.last} - "
                f"max({self.first}, look-back {self.past}) = {longest} target rows for a horizon "
                f"of {self.horizon}."
            )
        finite = torch.isfinite(self.values)
        if not finite.all():
            row, column = (int(place) for place in (~finite).nonzero()[0])
            raise DataError(
                f"row {row + 1}, column {column + 1}: {self.values[row, column]:g} after scaling; "
                "the value is too far from those of the training rows."
            )

    @property
    def starts(self) -> range:
        """The row at which the past of each window begins; its target begins P rows later."""
        return range(max(0, self.first - self.past), self.last - self.past - self.horizon + 1)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def evaluation_batch(self) -> int:
        """How many windows to take at a time where no gradient is kept.

        64, and fewer of wide or long ones: at most 2**22 values, 16 MB in 32 bits.
        """
        values = (self.past + self.horizon) * self.values.shape[1]
        return max(1, min(64, 2**22 // values))

    def batch(self, index: Tensor) -> Batch:
        """The windows with the numbers `index` (B,), copied out at once."""
        index = index.to(self.values.device, non_blocking=True)
        target = self._future[index]
        if self.targets != tuple(range(self.values.shape[1])):
            target = target[..., list(self.targets)]
        return Batch(
            past=self._past[index],
            past_calendar=self._past_calendar[index],
            future_calendar=self._future_calendar[index],
            target=target,
        )

    def to(self, device: torch.device | str) -> "Windows":
        """The same windows on `device`."""
        return replace(self, values=self.values.to(device), calendar=self.calendar.to(device))

    @cached_property
    def _past(self) -> Tensor:
        return self._view(self.values, 0, self.past)

    @cached_property
    def _future(self) -> Tensor:
        return self._view(self.values, self.past, self.horizon)

    @cached_property
    def _past_calendar(self) -> Tensor:
        return self._view(self.calendar, 0, self.past)

    @cached_property
    def _future_calendar(self) -> Tensor:
        return self._view(self.calendar, self.past, self.horizon)

    def _view(self, rows: Tensor, offset: int, steps: int) -> Tensor:
        """(windows, steps, columns) without a copy: `steps` rows from `offset` of each window."""
        first = self.starts.start + offset
        return rows[first : first + len(self) + steps - 1].unfold(0, steps, 1).transpose(1, 2)
