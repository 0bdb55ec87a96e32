"""The time grid of the stamps of a table: its step, and the place of each stamp on it."""

import sys
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from forecaster.base.errors import DataError
from forecaster.base.spelling import spelled
from forecaster.datasets.calendar import DAY, DAYS, MONTHS, in_units, normalise_freq, step_length

TOLERANCE = 0.1
"""The fraction of a step by which a stamp may miss its place: a clock that drifts does by little,
and half a step would be another one."""


def find_step(
    stamps: NDArray[np.int64], codes: NDArray[np.int64], where: str, freq: str | None = None
) -> tuple[str, int]:
    """The step `freq` of `stamps` (N,), in microseconds, of the series `codes` (N,), in any order.

    The second value is the usual distance between stamps of one series, in microseconds. By
    default the step is found: it is the distance of at least half of the neighbours. Days, weeks,
    months, quarters and years are recognised by the calendar. Raises DataError if no series has two
    stamps, or no step can be found.
    """
    order = np.lexsort((stamps, codes))
    ordered, owner = stamps[order], codes[order]
    apart = np.diff(ordered)[np.diff(owner) == 0]
    apart = apart[apart > 0]
    median = int(np.median(apart)) if len(apart) else sys.maxsize
    if freq is not None:
        return normalise_freq(freq), median
    if not len(apart):
        raise DataError(
            f"{where}: no series has two stamps, so no time step can be found; name it with "
            f"{spelled('freq')}. If several columns give the time, {spelled('time')} names them, "
            f"as in {spelled('time', ['Date', 'Hour'])}."
        )
    lengths, counts = np.unique(apart, return_counts=True)
    step = int(lengths[counts.argmax()])
    times = pd.DatetimeIndex(np.unique(ordered).view("datetime64[us]"))
    weekly = step % (7 * DAY) == 0 and not (apart % step).any()
    if median >= 28 * DAY and not weekly and (monthly := _months(times)):
        return monthly, median
    if counts.max() * 2 < len(apart):
        raise DataError(
            f"{where}: no time step can be found: of {len(apart)} distances between "
            f"neighbouring stamps the most frequent, {pd.Timedelta(step, 'us')}, occurs only "
            f"{counts.max()} times; name the step with {spelled('freq')}, and use "
            f"{spelled('policy', 'resample')} to average rows that share a step."
        )
    days = np.bincount(times.day_of_week, minlength=7)
    if step == DAY and not days[5:].any() and (apart == 3 * DAY).any():
        return "B", step
    if step % (7 * DAY) == 0 and days.max() * 2 > len(times):
        return normalise_freq(f"{step // (7 * DAY)}W-{DAYS[days.argmax()]}"), step
    return normalise_freq("{}{}".format(*in_units(step))), step


def _months(times: pd.DatetimeIndex) -> str | None:
    """The name of a step of whole months between first or last days; None for other stamps."""
    months = np.asarray(times.year * 12 + times.month - 1)
    lengths, counts = np.unique(np.diff(months), return_counts=True)
    count = int(lengths[counts.argmax()])
    if count < 1 or counts.max() * 2 < counts.sum():
        return None
    ends = "E" if times.is_month_end.mean() > 0.5 else "S"
    if count % 12 == 0:
        return f"{count // 12 if count > 12 else ''}Y{ends}-{MONTHS[months[0] % 12]}"
    if count % 3 == 0:
        # pandas names a quarter by the month in which a year of such quarters begins or ends
        month = months[0] % 3 if ends == "S" else 9 + months[0] % 3
        return f"{count // 3 if count > 3 else ''}Q{ends}-{MONTHS[month]}"
    return f"{count if count > 1 else ''}M{ends}"


class TimeGrid:
    """The steps of `freq` from the one of the stamp `first` to the one of `last`, in microseconds.

    Stamps of a fixed step may miss their place by `tolerance` microseconds; the grid passes through
    `anchor`, which is found from a `sample` of stamps whose `usual` distance is known. With a step
    that depends on the calendar, stamps must match exactly, at the time of day of `anchor`. Raises
    DataError for far more steps than the table has `rows`, or for more than `most`.
    """

    def __init__(
        self,
        freq: str,
        usual: int,
        first: int,
        last: int,
        sample: NDArray[np.int64],
        rows: int,
        where: str,
        most: int | None = None,
    ) -> None:
        self.freq, self.first, self.last = freq, first, last
        self.step = step_length(freq)
        """The step in microseconds, None if it depends on the calendar."""
        length = self.step or DAY
        if (last - first) // length > min(1000 * rows + 1_000_000, most or sys.maxsize):
            begin, end = (pd.Timestamp(stamp, unit="us") for stamp in (first, last))
            raise DataError(
                f"{where}: {(last - first) // length:,} steps of {freq} lie between {begin} "
                f"and {end}, for {rows:,} rows; is a stamp wrong, or the step? "
                f"{spelled('freq')} names it."
            )
        tolerance = 0 if self.step is None else int(min(length, usual) * TOLERANCE)
        phases, counts = np.unique(sample % length, return_counts=True)
        anchor = int(phases[counts.argmax()])
        if tolerance and usual < (1 - TOLERANCE) * length:
            anchor = 0  # several rows share a step: steps begin on the clock's multiples of it
        elif tolerance and counts.max() * 2 < len(sample):
            # no exact phase: the circular mean of the stamps, or 0 if that is near
            turns = np.exp(2j * np.pi * (phases / length))
            middle = float(np.angle((turns * counts).sum()) / (2 * np.pi) * length)
            anchor = 0 if abs(middle) <= tolerance else round(middle / 1_000_000) * 1_000_000
        self.anchor, self.tolerance = anchor, tolerance

    @cached_property
    def times(self) -> pd.DatetimeIndex:
        """The steps (G,)."""
        if self.step is not None:
            origin = self.anchor - self.tolerance
            first, last = ((stamp - origin) // self.step for stamp in (self.first, self.last))
            stamps = self.anchor + self.step * np.arange(first, last + 1)
            return pd.DatetimeIndex(stamps.view("datetime64[us]"))
        offset = to_offset(self.freq)
        begin, end = (
            pd.Timestamp(stamp // DAY * DAY + self.anchor, unit="us")
            for stamp in (self.first, self.last)
        )
        if not self._labels_end:
            return pd.date_range(offset.rollback(begin), end, freq=offset, unit="us")
        times = pd.date_range(offset.rollforward(begin), end + offset, freq=offset, unit="us")
        return pd.DatetimeIndex(times[: int(times.searchsorted(end)) + 1])

    @property
    def _labels_end(self) -> bool:
        """Whether the stamp of a step is its last day."""
        return self.freq.lstrip("0123456789")[:2] in ("ME", "QE", "YE", "W-")

    @cached_property
    def _steps(self) -> NDArray[np.int64]:
        return self.times.asi8

    def place(self, stamps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The step that each stamp (N,) belongs to, and by how much the stamp misses it.

        A stamp within the tolerance belongs to the nearest step, any other to the step it falls in:
        the one that began last or, if steps are named by their ends, the one that ends next.
        """
        if self.step is not None:
            places = (stamps - (int(self._steps[0]) - self.tolerance)) // self.step
        else:
            if self._labels_end:  # a day counts as a whole
                places = np.searchsorted(self._steps, stamps // DAY * DAY + self.anchor)
            else:
                places = np.searchsorted(self._steps, stamps, side="right") - 1
            places = places.clip(0, len(self._steps) - 1)
        return places, stamps - self._steps[places]
