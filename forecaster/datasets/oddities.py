"""Oddities among the values of a series, reported so that training does not use them unnoticed.

They are marks of missing values, outliers, a level that shifts after the training part, and a part
without values. Each test compares a column with itself, by order
statistics, and misses an oddity rather than report a false one. Nothing is changed, only reported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forecaster.base.spelling import rounded, spelled
from forecaster.datasets.card import Borders, End
from forecaster.datasets.dataset import Series

Kind: TypeAlias = Literal["sentinel", "outlier", "shift", "empty", "unfinished"]
Numbers: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = list[int]
"""The first rows, in the table of values, of what stands out."""

MARKS = (-99, -999, -9999, -99999, -999999, 999, 9999, 99999, 999999, -32768, 32767, 65535)
"""Numbers that mark a missing value in many files."""
MOST_ITEMS = 200
"""The most series of a panel that are examined, evenly spaced; more show little else."""
FEWEST = 100
"""The fewest values, or changes, that show what is usual: a hundredth of them is then one value."""
RARE = 0.005
"""The largest share of changes that may be unusual: more is how the series is, as rain is."""
FAR = 5
"""How many times as large as all other changes the change to an outlier must be: rather none is
reported than a false one."""
AROUND = 9
"""The steps before and after a change that show whether the level has changed: an odd number, so
that their median is a value."""
SAMPLE = 2**16
"""The most values of a part, evenly spaced, that give its level: quantiles need no more."""
CYCLES = {"D": 7, "B": 5, "W": 52, "M": 12, "Q": 4}
"""The steps of a cycle, by the first letter of a step of a day or more."""
NEVER = 0.75
"""The last step may not be over if the ratio of its value to that one cycle before is below this
part of the smallest such ratio before: noise of a tenth moves that by less."""
FALLS = "the last value is far lower, against that of one cycle before, than any other"
MOST_SAID = 5
"""The most sentences about oddities, so that what a run says stays readable."""


@dataclass(frozen=True)
class Oddity:
    """Something that stands out in a column: how often, where first, and in words."""

    kind: Kind
    column: str
    count: int
    where: str
    text: str


def find_oddities(series: Series, borders: Borders) -> tuple[Oddity, ...]:
    """Find the oddities in each column of a series, or in at most MOST_ITEMS series of a panel.

    `borders` are the borders of the parts.
    """
    return tuple(
        oddity
        for place in range(len(series.columns))
        for oddity in _Column(series, place).oddities(borders)
    )


def sentences(oddities: Sequence[Oddity]) -> list[str]:
    texts = [oddity.text for oddity in oddities[:MOST_SAID]]
    more = len(oddities) - MOST_SAID
    rest = f"{more:,} more such sentences: forecaster data check shows all."
    return [*texts, *[rest] * (more > 0)]


class _Column:
    """One column of a series, in which marks of missing values count as missing."""

    def __init__(self, series: Series, place: int) -> None:
        self.series = series
        self.place = place
        self.items = series.layout
        count = len(self.items)
        self.chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_ITEMS)).astype(int))
        self.marks: dict[int, Rows] = {}
        self.marks = self._find_marks()
        self.flag = all(
            (np.isnan(values) | (values == 0) | (values == 1)).all()
            for _, values in self._stretches()
        )

    def oddities(self, borders: Borders) -> Iterator[Oddity]:
        for mark, rows in self.marks.items():
            first = f"{'first ' * (len(rows) > 1)}at {self.series.shown(rows[0])}"
            times = f"{len(rows):,} time{'s' * (len(rows) > 1)}"
            what = f"{mark} occurs {times}, {first}, far from all other values"
            remedy = f"{spelled('missing', [str(mark)])} reads it as a missing value"
            yield self._oddity("sentinel", rows, f"{what}; {remedy}")
        for part, steps in borders.parts.items():
            yield from self._empty(part, *steps)
        if self.flag:
            return
        yield from self._unfinished()
        outliers = [begin + row for begin, values in self._stretches() for row in outlying(values)]
        if outliers:
            lie = "value lies" if len(outliers) == 1 else "values lie"
            what = f"{len(outliers):,} {lie} far from those before and after"
            first = rounded(float(self.series.values[outliers[0], self.place]), 4)
            where = f"{'first ' * (len(outliers) > 1)}{first} at {self.series.shown(outliers[0])}"
            yield self._oddity("outlier", outliers, f"{what}, {where}")
        for part, steps in borders.parts.items():
            if part != "train":
                yield from self._shift(part, borders.parts["train"][1], *steps)

    def _unfinished(self) -> Iterator[Oddity]:
        """A last value that may be that of a day, week or month which is not over: its ratio to the
        value one cycle before is below NEVER times the smallest such ratio of the rows before, in
        the median series that ends with the grid."""
        ends = self.items.places + self.items.lengths == len(self.series.times)
        low, row = list[float](), 0
        for item in self.chosen[ends[self.chosen]]:
            first, last = (int(bound) for bound in self.items.bounds[item : item + 2])
            fall = float(falls(self._values(first, last), self.series.freq))
            if fall < np.inf:
                low.append(fall)
                row = last - 1
        if low and np.median(low) < NEVER:
            remedy = f"if its step is not over, {spelled('drop_last', True)} leaves it out"
            yield self._oddity("unfinished", [row], f"{FALLS}; {remedy}")

    def _oddity(self, kind: Kind, rows: Rows, what: str) -> Oddity:
        name = self.series.columns[self.place]
        return Oddity(
            kind, name, len(rows), self.series.shown(rows[0]), f"Column '{name}': {what}."
        )

    def _values(self, first: int, last: int, every: int = 1) -> Numbers:
        values = np.array(self.series.values[first:last:every, self.place], dtype=np.float64)
        for mark in self.marks:
            values[values == mark] = np.nan
        return values

    def _stretches(self) -> Iterator[tuple[int, Numbers]]:
        """Yield the rows of each series: the index of the first one, and the values."""
        for item in self.chosen:
            begin, end = (int(bound) for bound in self.items.bounds[item : item + 2])
            yield begin, self._values(begin, end)

    def _find_marks(self) -> dict[int, Rows]:
        """The rows of each mark that is far from all other values, very far if it occurs once."""
        marks: dict[int, Rows] = {mark: [] for mark in MARKS}
        low, high = np.inf, -np.inf
        for begin, values in self._stretches():
            rest = ~np.isnan(values)
            for mark, rows in marks.items():
                here = values == mark
                rows += (begin + np.flatnonzero(here)).tolist()
                rest &= ~here
            if rest.any():
                low, high = min(low, values[rest].min()), max(high, values[rest].max())
        width = high - low
        return {
            mark: rows
            for mark, rows in marks.items()
            if rows
            and width > 0
            and max(low - mark, mark - high) > width * (1 if len(rows) > 1 else 10)
        }

    def _empty(self, part: str, begin: End, end: End) -> Iterator[Oddity]:
        """Yield a part in which a column has no value, although it has some elsewhere."""
        bounds = self.items.bounds[self.chosen]
        firsts, lasts = (
            (bounds + self.items.rows_before(step)[self.chosen]).tolist() for step in (begin, end)
        )
        spans = [span for span in zip(firsts, lasts, strict=True) if span[0] < span[1]]
        firsts = [first for first, _ in spans]
        if not spans or any((~np.isnan(self._values(*span))).any() for span in spans):
            return
        if any((~np.isnan(values)).any() for _, values in self._stretches()):
            yield self._oddity("empty", firsts, f"it has no value in the {part} steps")

    def _shift(self, part: str, train: End, begin: End, end: End) -> Iterator[Oddity]:
        """Yield a part with most values outside the range of 98 % of the training values."""
        shifted = []
        what = ""
        ends = [self.items.rows_before(step) for step in (train, begin, end)]
        for item in self.chosen:
            first = int(self.items.bounds[item])
            seen, *rows = (int(before[item]) for before in ends)
            usual = self._values(first, first + seen, 1 + seen // SAMPLE)
            new = self._values(first + rows[0], first + rows[1], 1 + (rows[1] - rows[0]) // SAMPLE)
            usual, new = usual[~np.isnan(usual)], new[~np.isnan(new)]
            if min(len(usual), len(new)) < FEWEST / 2:
                continue
            low, high = np.quantile(usual, [0.01, 0.99])
            share = ((new < low) | (new > high)).mean()
            if share > 0.5:
                shifted.append(first + rows[0])
                what = f"{100 * share:.0f} % of the {part} values lie outside "
                what += f"{rounded(low, 4)} to {rounded(high, 4)},"
        if self.series.items is not None:
            what = f"in {len(shifted)} of {len(self.chosen)} series most {part} values lie outside"
        if shifted:
            where = "where 98 % of the training values lie"
            yield self._oddity("shift", shifted, f"the level shifts: {what} {where}")


def falls(values: Numbers, freq: str) -> Numbers:
    """The ratio of the last of `values` (..., N) to that one cycle before, by the smallest such
    ratio of the rows before; inf where it says nothing."""
    lag = CYCLES.get(freq.lstrip("0123456789")[:1], 0)
    values = values[..., -4 * lag - 1 :]
    if not lag or values.shape[-1] < lag + 9:
        return np.full(values.shape[:-1], np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = values[..., lag:] / values[..., :-lag]
        fall = ratios[..., -1] / ratios[..., :-1].min(axis=-1)
    return np.where((values > 0).all(axis=-1), fall, np.inf)


def outlying(values: Numbers) -> list[int]:
    """Rows that differ far from the rows before and after."""
    changes = np.abs(np.diff(values))
    changes[np.isnan(changes)] = 0
    rare = max(20, int(RARE * len(changes)))
    if len(changes) < max(FEWEST, 2 * rare):
        return []
    usual = float(np.partition(changes, -rare)[-rare])
    if not np.quantile(changes, 0.75) > 0:  # it rests, except for events such as rain
        return []
    outliers = set()
    for row in map(int, np.flatnonzero(changes > FAR * usual)):
        first = max(0, row + 1 - AROUND)
        before, after = values[first : row + 1], values[row + 1 : row + 1 + AROUND]
        if abs(np.nanmedian(after) - np.nanmedian(before)) <= changes[row] / 2:
            around = np.r_[before, after]
            off = np.abs(around - np.nanmedian(around)) > changes[row] / 2
            outliers |= {first + int(place) for place in np.flatnonzero(off)}
    return sorted(outliers)
