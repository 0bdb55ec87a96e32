"""Sample paths: what may come at several steps, columns and series together.

A path takes the ranks of all errors of one calibrating window, so that they go together as they
did there, and at each step the value that the bands have at its rank (Schaake shuffle; Clark et
al., 2004).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from zlib import crc32

import numpy as np

from forecaster.base.errors import UsageError
from forecaster.forecast.intervals import Intervals, ranked

MOST = 2**26
"""The most values of paths at once: half a GB."""
CELLS = 2**20
"""The values that are worked on at once: 8 MB, in several copies."""


def middles(most: int, count: int) -> np.ndarray:
    """At most `most` of `count` neighbours, each in the middle of those for which it stands."""
    most = min(most, count)
    return ((np.arange(most) + 0.5) * count / most).astype(int)


def standing(most: int, count: int) -> np.ndarray:
    """Which of the `middles` stands for each of `count` neighbours."""
    return np.arange(count) * most // count


def check(intervals: Intervals | None, values: int = 0) -> Intervals:
    """The intervals of a model that can make paths and totals. Raises UsageError for one that
    cannot, and for more than MOST values of paths."""
    if intervals is None or intervals.errors is None or not intervals.reach((0.4, 0.6)):
        raise UsageError(
            "this model makes no paths and no totals: it holds no errors of calibrating windows, "
            "or its quantiles lie on one side of the forecast"
        )
    if values > MOST:
        raise UsageError(
            f"expected at most {MOST:,} values of paths, over all series, steps and columns, got "
            f"{values:,}: ask for fewer samples, steps or series"
        )
    return intervals


def windows_of(intervals: Intervals | None) -> int:
    """The number of windows whose errors paths and totals are made of; 0 without any."""
    with suppress(UsageError):
        return check(intervals).held[0]
    return 0


def rows_of(
    names: Sequence[str | None], places: Mapping[str, int], intervals: Intervals
) -> np.ndarray:
    """The places (B,) among the errors of the series that stand for those with some names. `places`
    are those of the series in training; for another series always the same one of them stands."""
    held, count = intervals.held[1], max(len(places), 1)
    numbers = [places.get(str(name), crc32(str(name).encode()) % count) for name in names]
    return standing(held, count)[numbers]


def errors_of(intervals: Intervals, rows: np.ndarray, wider: np.ndarray, count: int) -> np.ndarray:
    """The errors (M, B, T, K) of series with places `rows` (B,), of the first `count` steps.

    Where bands are `wider` (B,) than usual, as of a new series, the level is not known, which moves
    all steps alike: to each window's errors comes a normal one, of the size that is missing.
    """
    windows = intervals.held[0]
    assert intervals.errors is not None
    errors = intervals.errors[np.ix_(np.arange(windows), *places_of(intervals, rows, count))]
    if (wider <= 1).all():
        return np.asarray(errors)
    usual = _normal((np.arange(windows) + 0.5) / windows) / _normal(np.array([0.9]))
    levels = [np.random.default_rng([1, row]).permutation(usual) for row in rows]
    more = np.sqrt(np.maximum(wider**2 - 1, 0)) * np.stack(levels, axis=1)
    return np.asarray((errors + more[..., None, None]) / np.maximum(wider, 1)[:, None, None])


def paths(
    forecasts: np.ndarray,
    quantiles: np.ndarray,
    intervals: Intervals,
    rows: np.ndarray,
    wider: np.ndarray,
    count: int,
) -> np.ndarray:
    """`count` paths (B, count, T, K) about forecasts (B, T, K) with quantiles (B, T, K, Q) at the
    levels of the intervals; the same for the same count. `rows` and `wider` as in `errors_of`.

    At each step the values of many paths are spread as the bands say: linearly between the levels,
    and as a normal distribution beyond them.
    """
    windows, size = intervals.held[0], forecasts.size
    known = [place for place, level in enumerate(intervals.levels) if level != 0.5]
    levels = np.array([*(intervals.levels[place] for place in known), 0.5])
    order = np.argsort(levels)
    levels, last = levels[order], len(order) - 1
    values = np.concatenate([quantiles[..., known], forecasts[..., None]], axis=-1)[..., order]
    ends, middle = values.reshape(size, -1), forecasts.reshape(-1)
    flat, first = values.reshape(-1), np.arange(size) * (last + 1)
    window, share = _drawn(windows, count)
    places = places_of(intervals, rows, forecasts.shape[1])
    held = intervals.ranks[np.ix_(np.arange(windows), *places)]
    if len(new := np.flatnonzero(wider > 1)):
        errors = errors_of(intervals, rows[new], wider[new], forecasts.shape[1])
        held[:, new] = ranked(errors)
    ahead, some = np.empty((count, size)), max(1, CELLS // size)
    for begin in range(0, count, some):
        part = slice(begin, begin + some)
        ranks = held[window[part]].reshape(-1, size)
        at = (ranks + share[part, None]) / windows
        right = np.searchsorted(levels, at).clip(1, last)
        low, left = levels[right - 1], flat[first + right - 1]
        ahead[part] = left + (flat[first + right] - left) * ((at - low) / (levels[right] - low))
        for beyond, end in ((at < levels[0], 0), (at > levels[-1], last)):
            draw, cell = np.nonzero(beyond)
            ratio = _normal(at[draw, cell]) / _normal(levels[end:][:1])
            ahead[begin + draw, cell] = middle[cell] + (ends[cell, end] - middle[cell]) * ratio
    return ahead.reshape(count, *forecasts.shape).swapaxes(0, 1)


def _normal(levels: np.ndarray) -> np.ndarray:
    """The quantiles of the normal distribution at levels (n,)."""
    import torch

    quantiles: np.ndarray = torch.special.ndtri(torch.from_numpy(levels)).numpy()
    return quantiles


def _drawn(windows: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each of `count` paths its window, and how far it is from its rank to the next one, from 0
    to 1. Windows are drawn equally often, and the shares of a window evenly."""
    random = np.random.default_rng(0)
    order = random.permutation(count)
    window, turn = order % windows, order // windows
    turns = count // windows + (window < count % windows)
    return random.permutation(windows)[window], (turn + random.random(count)) / turns


def places_of(
    intervals: Intervals, rows: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The places among the errors of some rows, of the first `count` steps and of all columns."""
    (_, _, steps, columns), (horizon, targets) = intervals.held, intervals.scale.shape
    return rows, standing(steps, horizon)[:count], standing(columns, targets)
