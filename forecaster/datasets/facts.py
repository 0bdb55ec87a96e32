"""A few facts about a series: length, seasons, columns known ahead, events, drift."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.datasets.calendar import holiday_feature
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.items import Items
from forecaster.datasets.seasons import (
    TRAIN,
    candidates,
    infer_seasons,
    mean_correlation,
    training_parts,
)
from forecaster.datasets.series import Series

RARE = 0.05
"""Values other than zero in less than this share of the steps are events."""
SHOWS = 0.4
"""The smallest autocorrelation within spans at which a column has a cycle of any period."""
SHORTEST, WIDEST, CYCLES, SPANS = 4, 4, 4, 4
"""Settings of `drift`: the shortest period in steps, the ratio of the longest period to the
shortest in a range, how often the longest fits into a span, and the fewest spans."""
AS_CLEAR = 0.8
"""How clear a cycle must be in a range of periods to count, relative to the clearest range."""


@dataclass(frozen=True)
class Event:
    """A column known ahead that is rarely not zero: in `share` of the steps, in `count` runs."""

    name: str
    share: float
    count: int


@dataclass(frozen=True)
class Facts:
    """Measurements of a data set, made only in the first TRAIN of its steps.

    `steps` is the length of the time grid, `rows` the number of rows examined in the longest
    series. `seasons` is () if none was found, `cycles` is how often the shortest fits into `rows`.
    `together` is None if there are not two columns to forecast, or the data are a panel. `drift` is
    None if no column shows a cycle (see `drift`).
    """

    name: str
    steps: int
    rows: int
    freq: str
    seasons: tuple[int, ...]
    cycles: int
    series: int
    targets: int
    together: float | None
    known: tuple[str, ...]
    events: tuple[Event, ...]
    drift: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(dataset: Dataset, holidays: str | None = None) -> Facts:
    """Measure a data set, with the public holidays of a region if one is named."""
    series = dataset.series
    items = series.items or Items.single(len(series.times))
    rows = int(items.rows_before(int(TRAIN * len(series.times))).max())
    targets = 1 if series.items else len(dataset.targets)
    among = sorted({*candidates(series.freq), *dataset.seasons} - {1})
    seasons = tuple(each for each in infer_seasons(series, targets, among) if each > 1)
    parts = training_parts(series, targets)
    alone = series.items is None and targets > 1
    return Facts(
        name=str(dataset.name),
        steps=len(series.times),
        rows=rows,
        freq=series.freq,
        seasons=seasons,
        cycles=rows // min(seasons) if seasons else 0,
        series=len(items),
        targets=targets,
        together=mean_correlation(parts[0], seasons) if alone and parts else None,
        known=tuple(dataset.reading.read_from(series.known_columns)),
        events=tuple(_events(series, items, holidays)),
        drift=drift(parts),
    )


def _events(series: Series, items: Items, holidays: str | None) -> Iterator[Event]:
    """Yield the events of each column known ahead, and the holidays, if they are rare."""
    end = int(TRAIN * len(series.times))
    if series.known is not None:
        before = np.repeat(items.rows_before(end), items.lengths)
        place = np.arange(len(series.known)) - np.repeat(items.bounds[:-1], items.lengths)
        seen = place < before
        for name, column in zip(series.known_columns, series.known.T, strict=True):
            yield from _event(name, column[seen] != 0, place[seen] == 0)
    if holidays is not None:
        off = holiday_feature(series.times[:end], holidays)[:, 0] > 0
        yield from _event(f"public holidays of {holidays}", off, np.arange(end) == 0)


def _event(name: str, happens: NDArray[np.bool_], first: NDArray[np.bool_]) -> Iterator[Event]:
    """Yield the event of a column, from `happens` in each row and the `first` rows of series."""
    begins = happens & (first | ~np.roll(happens, 1))
    share = happens.mean() if len(happens) else 0.0
    if 0 < share < RARE:
        yield Event(name, float(share), int(begins.sum()))


def drift(parts: list[NDArray[np.float64]]) -> float | None:
    """How far the period of the cycles drifts, 0 to 1: the loss from using one lag at all times.

    `parts` holds the rows (n, C) of each series, NaN where missing. They are cut into spans, each
    without its straight line. In a span, the autocorrelation at the lags of a range, from its first
    zero on, is largest at the period of that span. Drift is

        1 - max over lags (mean over spans (autocorrelation))
            / mean over spans (max over lags (autocorrelation))

    so it is 0 if one lag is best in every span, and near 1 if no lag is good in many spans. Spans
    are as long as CYCLES of the longest period in the range; ranges go from L to WIDEST L steps,
    for L = SHORTEST and its doublings as long as SPANS spans fit in. Of the ranges in which the
    cycle is at least AS_CLEAR times as clear as in the clearest, the one with the most drift
    counts. Columns are combined by the sums of both means; columns without a clear cycle (SHOWS)
    are left out, and if all are left out, the result is None.
    """
    own = fixed = 0.0
    for column in range(parts[0].shape[1] if parts else 0):
        found = list(_by_range([part[:, column] for part in parts]))
        clearest = max((clear for clear, _ in found), default=0.0)
        if clearest >= SHOWS:
            clear, one = min(
                (each for each in found if each[0] >= AS_CLEAR * clearest),
                key=lambda each: each[1] / each[0],
            )
            own, fixed = own + clear, fixed + one
    return 1 - fixed / own if own else None


def _by_range(parts: list[NDArray[np.float64]]) -> Iterator[tuple[float, float]]:
    """Yield, for each range of periods, the mean over spans of the best lag, and the best mean."""
    low = SHORTEST
    while True:
        most = WIDEST * low
        length = CYCLES * most
        cut = [part[len(part) % length :].reshape(-1, length) for part in parts]
        spans = np.concatenate(cut) if cut else np.empty((0, length))
        if len(spans) < SPANS:
            return
        spans = _straightened(spans)
        if len(spans) >= SPANS:
            found = _autocorrelations(spans, most)
            found[np.cumsum(found < 0, axis=1) == 0] = 0
            found = found[:, low - 1 :]
            yield float(found.max(axis=1).mean()), max(0.0, float(found.mean(axis=0).max()))
        low *= 2


def _straightened(spans: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spans (n, w) without their straight lines, 0 where missing; flat and empty ones left out."""
    there = ~np.isnan(spans)
    spans = spans[there.mean(axis=1) > TRAIN]
    largest = np.nanmax(np.abs(spans), axis=1, keepdims=True, initial=0)
    spans = spans / np.where(largest > 0, largest, 1)
    rest = np.nan_to_num(spans - np.nanmean(spans, axis=1, keepdims=True))
    time = np.arange(spans.shape[1]) - (spans.shape[1] - 1) / 2
    rest -= (rest @ time / (time @ time))[:, None] * time
    rest[np.isnan(spans)] = 0
    spread = rest.std(axis=1, keepdims=True)
    moves = spread[:, 0] > 1e-9
    return np.asarray(rest[moves] / spread[moves])


def _autocorrelations(spans: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """The autocorrelations of spans (n, w) at lags 1 to `most`, each over the rows it pairs."""
    width = spans.shape[1]
    spectrum = np.fft.rfft(spans, width + most, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, width + most, axis=1)[:, 1 : most + 1]
    squares = np.pad(np.cumsum(spans**2, axis=1), ((0, 0), (1, 0)))
    lags = np.arange(1, most + 1)
    first, last = squares[:, width - lags], squares[:, -1:] - squares[:, lags]
    return np.asarray(products / np.sqrt(np.maximum(first * last, 1e-30)))
