"""How long the parts and the look-back of a series are, when nobody says it."""

from collections.abc import Sequence
from dataclasses import dataclass

from forecaster.datasets.card import Borders
from forecaster.errors import DataError

TRAIN, TEST = 0.7, 0.2
FEWEST = 8
"""Training windows, at least."""


@dataclass(frozen=True)
class Sizes:
    """Where the parts end, and the look-back in steps."""

    borders: Borders
    past: int


def sizes(steps: int, horizon: int, seasons: Sequence[int], past: int | None, where: str) -> Sizes:
    """Parts of 70, 10 and 20 % of `steps`, the last two of a window at least; and the look-back.

    Without `past` the look-back is the longer of twice the horizon and two of the longest season,
    at most two thirds of what training has room for, in whole cycles of the main season. Raises
    DataError with the arithmetic and the longest horizon that fits.
    """
    borders = _borders(steps, horizon)
    least = past or seasons[0]
    if not _fits(borders, horizon, least):
        longest = max(
            (t for t in range(1, min(horizon, steps)) if _fits(_borders(steps, t), t, least)),
            default=0,
        )
        way_out = (
            f"The longest horizon that fits is {longest}: --horizon {longest}."
            if longest
            else f"No horizon fits a look-back of {least}; bring more rows, or a shorter "
            + ("--lookback." if past else "--season.")
        )
        raise DataError(
            f"{where}: {steps} steps are too few for a horizon of {horizon}: validation takes "
            f"{borders.validation - borders.train} and test {borders.test - borders.validation}, "
            f"each holding at least one window; of the {max(0, borders.train)} left for training, "
            f"{FEWEST} windows of {least} + {horizon} steps need {FEWEST - 1 + least + horizon}. "
            f"{way_out}"
        )
    if past is None:
        wanted = max(2 * horizon, 2 * max(seasons))
        room = max(least, (borders.train - horizon) * 2 // 3)
        past = min(wanted, room) // seasons[0] * seasons[0]
    return Sizes(borders, past)


def _borders(steps: int, horizon: int) -> Borders:
    test = max(horizon, int(steps * TEST))
    validation = max(horizon, steps - int(steps * TRAIN) - int(steps * TEST))
    return Borders(steps - test - validation, steps - test, steps)


def _fits(borders: Borders, horizon: int, past: int) -> bool:
    return borders.train >= FEWEST - 1 + past + horizon
