"""How often each client may ask: buckets of tokens."""

from collections import OrderedDict
from time import monotonic

CLIENTS = 10_000
"""How many are remembered."""


class Buckets:
    """A bucket of tokens for each client: `per_minute` at once, and as many again in a minute.

    The clients that asked least recently are forgotten, beyond `most`.
    """

    def __init__(self, per_minute: float, most: int = CLIENTS) -> None:
        self.full, self.per_second, self.most = max(per_minute, 1.0), per_minute / 60, most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, tokens: float = 1, *, owe: bool = False) -> float:
        """Take tokens, of which one has to be there and the others may be owed, or all of them
        with `owe`: 0, or else nothing is taken, and it is the seconds until one is there."""
        now = monotonic()
        left, at = self._buckets.pop(client, (self.full, now))
        left = min(self.full, left + (now - at) * self.per_second)
        taken = owe or left >= 1
        self._buckets[client] = left - taken * tokens, now
        if len(self._buckets) > self.most:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1 - left) / self.per_second
