"""Rate limits for clients: token buckets."""

from collections import OrderedDict
from time import monotonic

CLIENTS = 10_000
"""How many clients are remembered."""


class Buckets:
    """A token bucket for each client: it holds `per_minute` tokens and refills in a minute.

    Beyond `most` clients, those that asked least recently are forgotten.
    """

    def __init__(self, per_minute: float, most: int = CLIENTS) -> None:
        self.full, self.per_second, self.most = max(per_minute, 1.0), per_minute / 60, most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, tokens: float = 1, *, owe: bool = False) -> float:
        """Take tokens and return 0; the bucket must have one token, or none with `owe`, and may go
        into debt for the others. Else take nothing, and return the seconds until it has one."""
        now = monotonic()
        left, at = self._buckets.pop(client, (self.full, now))
        left = min(self.full, left + (now - at) * self.per_second)
        taken = owe or left >= 1
        self._buckets[client] = left - taken * tokens, now
        if len(self._buckets) > self.most:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1 - left) / self.per_second
