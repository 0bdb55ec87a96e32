"""What forecasts cost a device, by what they cost before: seconds of a batch and of a series."""

from collections import OrderedDict
from collections.abc import Hashable
from time import monotonic

WEIGHT = 0.85
"""What a batch counts for beside the next one of its kind."""
KINDS = 64
"""How many kinds of work are remembered, those that were used last."""
FRESH = 60.0
"""Seconds for which what was measured is believed against a client who asks for more."""


class _Line:
    """Seconds of a batch = a + b x its series, by weighted least squares over what was measured."""

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
        """Of one batch. Where all were about as large, in proportion to its series: too much
        for a larger one, until there was one."""
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
    """The costs of kinds of work, told apart by a key. Not safe in threads by itself.

    A cost is in seconds of the whole device: of two batches that ran side by side for a second,
    each has cost half of one.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[Hashable, _Line] = OrderedDict()

    def note(self, key: Hashable, series: int, seconds: float) -> None:
        """A batch of that kind, of so many series, has cost so many seconds."""
        self._lines.setdefault(key, _Line()).note(series, seconds)
        self._lines.move_to_end(key)
        if len(self._lines) > KINDS:
            self._lines.popitem(last=False)

    def begin(self, key: Hashable, like: Hashable) -> None:
        """Until a kind has been measured, take it for another one."""
        if key not in self._lines and like in self._lines:
            line = self._lines[like]
            self._lines[key] = _Line()
            self._lines[key].note(round(line.series / line.batches), line.seconds / line.batches)

    def cost(self, key: Hashable, series: int, batch: int) -> float:
        """Of so many series in batches of `batch` at most; 0 for a kind that nobody knows yet."""
        line = self._lines.get(key)
        if line is None or not series:
            return 0.0
        full, rest = divmod(series, batch)
        return (full and full * line.cost(batch)) + (rest and line.cost(rest))

    def last(self) -> float:
        """The cost of one series of the kind that ran last."""
        return next(reversed(self._lines.values())).cost(1) if self._lines else 0.0

    def fresh(self, key: Hashable) -> bool:
        """Whether the kind was measured lately."""
        line = self._lines.get(key)
        return line is not None and monotonic() - line.measured < FRESH
