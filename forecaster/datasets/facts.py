"""A few facts about a series: length, seasons, columns known ahead, events."""

from collections.abc import Iterator
from dataclasses import dataclass
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
"""Values other than zero in less than this share of the steps are events: a day of each
week is more, and is a season."""


@dataclass(frozen=True)
class Facts:
    """Measurements of a data set, made only in the first TRAIN of its steps.

    `steps` is the length of the time grid, `rows` the number of rows examined in the longest
    series. `seasons` is () if none was found, `cycles` is how often the shortest fits into `rows`.
    `together` is None if there are not two columns to forecast, or the data are a panel.
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
    events: tuple[dict[str, Any], ...]
    """Columns known ahead that are rarely not zero: the name, in which `share` of the steps, and in
    how many runs (`count`)."""


def measure(dataset: Dataset, holidays: str | None = None) -> Facts:
    """Measure a data set, with the public holidays of a region if one is named."""
    series = dataset.series
    items = series.layout
    rows = int(items.rows_before(int(TRAIN * len(series.times))).max())
    targets = 1 if series.items else len(dataset.targets)
    among = sorted({*candidates(series.freq), *dataset.seasons} - {1})
    seasons = tuple(season for season in infer_seasons(series, targets, among) if season > 1)
    alone = series.items is None and targets > 1
    parts = training_parts(series, targets) if alone else []
    return Facts(
        name=str(dataset.name),
        steps=len(series.times),
        rows=rows,
        freq=series.freq,
        seasons=seasons,
        cycles=rows // min(seasons) if seasons else 0,
        series=len(items),
        targets=targets,
        together=mean_correlation(parts[0], seasons) if parts else None,
        known=tuple(dataset.reading.read_from(series.known_columns)),
        events=tuple(_events(series, items, holidays)),
    )


def _events(series: Series, items: Items, holidays: str | None) -> Iterator[dict[str, Any]]:
    """Yield the events of each column known ahead, and the holidays, if they are rare."""
    end = int(TRAIN * len(series.times))
    if series.known is not None:
        seen = np.flatnonzero(items.before(end))
        begins = np.isin(seen, items.bounds[:-1])
        for name, column in zip(series.known_columns, series.known.T, strict=True):
            yield from _event(name, column[seen] != 0, begins)
    if holidays is not None:
        off = holiday_feature(series.times[:end], holidays)[:, 0] > 0
        yield from _event(f"public holidays of {holidays}", off, np.arange(end) == 0)


def _event(
    name: str, happens: NDArray[np.bool_], first: NDArray[np.bool_]
) -> Iterator[dict[str, Any]]:
    """Yield the event of a column, from `happens` in each row and the `first` rows of series."""
    begins = happens & (first | ~np.roll(happens, 1))
    share = happens.mean() if len(happens) else 0.0
    if 0 < share < RARE:
        yield {"name": name, "share": float(share), "count": int(begins.sum())}
