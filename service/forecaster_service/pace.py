"""Estimates of what batches cost a device in seconds, from what earlier ones cost."""

from collections.abc import Hashable
from time import monotonic

WEIGHT = 0.3
"""The weight of a batch in the estimate for the next one of its kind and size."""
FRESH = 60.0
"""Seconds after a measurement during which it is a reason to refuse a request."""


class Pace:
    """The costs of kinds of work, identified by a key, in batches of 1, 2, 3 to 4, 5 to 8 series
    and so on. Not thread-safe by itself.

    A size that was not measured costs as much as the nearest that was, in proportion if it is
    larger: never too little.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[int, tuple[float, float]]] = {}  # seconds, and when
        self.last = 0.0
        """The cost of one series in the batch that ran last."""

    def note(self, key: Hashable, series: int, seconds: float) -> None:
        """Record that a batch of that kind, of `series` series, has cost `seconds`."""
        sizes = self._kinds.setdefault(key, {})
        before, _ = sizes.get(_size(series), (seconds, 0.0))
        sizes[_size(series)] = before + WEIGHT * (seconds - before), monotonic()
        self.last = seconds / series

    def cost(self, key: Hashable, series: int, batch: int) -> float:
        """The cost of `series` series in batches of at most `batch`; 0 for an unknown kind."""
        sizes = self._kinds.get(key)
        if not sizes:
            return 0.0

        def one(count: int) -> float:
            near = min(sizes, key=lambda size: (abs(size - _size(count)), size))
            return sizes[near][0] * max(1.0, count / (1 << near))

        full, rest = divmod(series, batch)
        return (full and full * one(batch)) + (rest and one(rest))

    def fresh(self, key: Hashable, series: int) -> bool:
        """Whether batches of that kind and size were measured recently."""
        _, measured = self._kinds.get(key, {}).get(_size(series), (0.0, -FRESH))
        return monotonic() < measured + FRESH


def _size(series: int) -> int:
    return (series - 1).bit_length()
