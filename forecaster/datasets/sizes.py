"""The default lengths of the parts and of the look-back of a series."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from forecaster.base.errors import DataError
from forecaster.base.spelling import spelled
from forecaster.datasets.card import Borders
from forecaster.datasets.dataset import Items

TRAIN, TEST = 0.7, 0.2  # as in the benchmarks of the papers
ENOUGH = 8
"""The training windows below which they are called few; a round number."""
LATE = 0.1
"""The largest share of the series of a panel that may begin after the training part: more would
be forecast without having been seen."""


Sizes: TypeAlias = tuple[Borders, int]
"""Where the parts end, and the look-back in steps."""


def sizes(steps: int, horizon: int, seasons: Sequence[int], past: int | None, where: str) -> Sizes:
    """Parts of 70, 10 and 20 % of `steps`, the last two at least a horizon long; and the look-back.

    Without `past`, the look-back is the longer of twice the horizon and twice the longest season,
    at most two thirds of what training has room for, in whole cycles of the main season. Raises
    DataError with the arithmetic and the longest horizon that fits.
    """
    train, validation, test = _ends(steps, horizon)
    least = past or seasons[0]
    if train < least + horizon:
        raise DataError(_too_few(steps, horizon, least, past, where))
    if past is None:
        past = _look_back(train, horizon, seasons)
    return Borders(train, validation, test), past


def panel_sizes(
    items: Items,
    steps: int,
    horizon: int,
    seasons: Sequence[int],
    past: int | None,
    split: Literal["calendar", "series"] | None,
    where: str,
) -> tuple[Sizes, str]:
    """The sizes of a panel on a grid of `steps`, cut at one date or each series by its length.

    If `split` leaves it open, the cut is at one date, unless a part would have no window or more
    than LATE of the series would begin after the training part; the second value then states why.
    """
    if split == "series":
        return _own_sizes(items, horizon, seasons, past, where), ""
    common = None
    try:
        common = sizes(steps, horizon, seasons, past, where)
        why_not = _why_not(items, *common, horizon)
    except DataError:
        if split == "calendar":
            raise
        why_not = f"the {steps} steps of the time grid would be too few"
    if split is None and why_not:
        try:
            return _own_sizes(items, horizon, seasons, past, where), (
                f"Cut at one date, {why_not}: each series is cut by its own length instead. "
                f"{spelled('split', 'calendar')} keeps to one date."
            )
        except DataError:
            if common is None:
                raise
    assert common is not None
    return common, ""


def _why_not(items: Items, borders: Borders, past: int, horizon: int) -> str:
    """The reason against a cut at one date; "" if there is none."""
    for part, steps in borders.parts.items():
        if not items.windows(past, horizon, *steps)[1].any():
            return f"the {part} part would hold no window of {past} + {horizon} steps"
    long = items.lengths >= past + horizon
    late = int((long & (items.rows_before(borders.train) == 0)).sum())
    if late > LATE * len(items):
        return f"{late:,} of {len(items):,} series would begin after the training part"
    return ""


def _own_sizes(
    items: Items, horizon: int, seasons: Sequence[int], past: int | None, where: str
) -> Sizes:
    """Parts of 70, 10 and 20 % of the length of each series, and a look-back for most of them."""
    least = past or seasons[0]
    lengths, which = np.unique(items.lengths, return_inverse=True)
    ends = np.array([_ends(int(length), horizon) for length in lengths])[which].clip(min=0)
    room = ends[:, 0] - least - horizon + 1
    if not (room > 0).any():
        called = f"{where}, its longest series"
        raise DataError(_too_few(int(lengths[-1]), horizon, least, past, called))
    if past is None:
        past = _look_back(int(np.median(ends[room > 0, 0])), horizon, seasons)
        if np.maximum(ends[:, 0] - past - horizon + 1, 0).sum() < ENOUGH:
            past = least
    borders = [(row[0], row[1], row[2]) for row in (ends + items.places[:, None]).tolist()]
    train, validation, test = map(max, zip(*borders, strict=True))
    return Borders(train, validation, test, tuple(borders)), past


def _look_back(train: int, horizon: int, seasons: Sequence[int]) -> int:
    enough = max(2 * horizon, 2 * max(seasons))
    room = max(seasons[0], (train - horizon) * 2 // 3)
    return min(enough, room) // seasons[0] * seasons[0]


def _too_few(steps: int, horizon: int, least: int, past: int | None, where: str) -> str:
    """The arithmetic, and the longest horizon that fits."""
    train = max(0, _ends(steps, horizon)[0])
    longest = max(
        (t for t in range(1, min(horizon, steps)) if _ends(steps, t)[0] >= least + t), default=0
    )
    if longest:
        way_out = f"The longest horizon that fits is {longest}: {spelled('horizon', longest)}."
    else:
        shorter = spelled("lookback", "auto") if past else f"a shorter {spelled('season')}"
        way_out = f"No horizon fits a look-back of {least}; give more rows, or {shorter}."
    return (
        f"{where}: {steps} steps are too few for a horizon of {horizon}: validation and test leave "
        f"{train} for training, but a window of {least} + {horizon} steps needs "
        f"{least + horizon}. {way_out}"
    )


def _ends(steps: int, horizon: int) -> tuple[int, int, int]:
    test = max(horizon, int(steps * TEST))
    validation = max(horizon, steps - int(steps * TRAIN) - int(steps * TEST))
    return steps - test - validation, steps - test, steps


def few_windows(items: Items, borders: Borders, past: int, horizon: int) -> str:
    """A sentence about few training windows; "" if there are enough."""
    counts = [int(items.windows(past, horizon, *borders.parts[part])[1].sum())
              for part in ("train", "test")]  # fmt: skip
    if counts[0] >= ENOUGH:
        return ""
    trains, judges = ("1 window" if count == 1 else f"{count} windows" for count in counts)
    return (
        f"Few rows for this horizon: {trains} for training, {judges} for the test, which say "
        f"little. A shorter {spelled('horizon')} leaves more."
    )
