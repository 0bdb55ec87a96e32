"""Estimates of what batches cost a device in seconds, from what earlier ones cost."""

from collections import OrderedDict
from collections.abc import Hashable
from time import monotonic

WEIGHT = 0.85
"""The weight of a batch relative to the next one of its kind."""
KINDS = 64
"""How many kinds of work are remembered: the most recent ones."""
FRESH = 60.0
"""Seconds after a measurement during which it is a reason to refuse a request."""


class _Line:
    """Seconds of a batch = a + b x its series, fitted by weighted least squares."""

    def __init__(self) -> None:
        self.batches = self.series = self.squares = self.seconds = self.products = 0.0
        self.measured = 0.0

    def note(self, series: int, seconds: float) -> None:
        values = 1.0, series, series**2, seconds, series * seconds
        names = "batches", "series", "squares", "seconds", "products"
        for name, value in zip(names, values, strict=True):
            setattr(self, name, getattr(self, name) * WEIGHT + value)
        self.measured = monotonic()

    def cost(self, series: int) -> float:
        """The cost of one batch. While all measured batches had about the same size, the cost is
        proportional to the series, which is too much for a larger batch."""
        spread = self.squares * self.batches - self.series**2
        if spread > 0.01 * self.series**2:
            slope = (self.products * self.batches - self.series * self.seconds) / spread
            base = (self.seconds - slope * self.series) / self.batches
            if slope >= 0 and base >= 0:
                return base + slope * series
            if slope < 0:
                return self.seconds / self.batches
        return self.products / self.squares * series


class Pace:
    """The costs of kinds of work, identified by a key. Not thread-safe by itself.

    A cost is in seconds of the whole device: two batches that run side by side for a second cost
    half a second each.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[Hashable, _Line] = OrderedDict()

    def note(self, key: Hashable, series: int, seconds: float) -> None:
        """Record that a batch of that kind, of `series` series, has cost `seconds`."""
        self._lines.setdefault(key, _Line()).note(series, seconds)
        self._lines.move_to_end(key)
        if len(self._lines) > KINDS:
            self._lines.popitem(last=False)

    def begin(self, key: Hashable, like: Hashable) -> None:
        """Until a kind has been measured, assume the costs of the kind `like`."""
        if key not in self._lines and like in self._lines:
            line = self._lines[like]
            self._lines[key] = _Line()
            self._lines[key].note(round(line.series / line.batches), line.seconds / line.batches)

    def cost(self, key: Hashable, series: int, batch: int) -> float:
        """The cost of `series` series in batches of at most `batch`; 0 for an unknown kind."""
        line = self._lines.get(key)
        if line is None or not series:
            return 0.0
        full, rest = divmod(series, batch)
        return (full and full * line.cost(batch)) + (rest and line.cost(rest))

    def last(self) -> float:
        """The cost of one series of the kind that ran last."""
        return next(reversed(self._lines.values())).cost(1) if self._lines else 0.0

    def fresh(self, key: Hashable) -> bool:
        """Whether the kind was measured recently."""
        line = self._lines.get(key)
        return line is not None and monotonic() - line.measured < FRESH
