"""What differs between a process that serves alone and one of several."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from forecaster_service.buckets import Buckets

if TYPE_CHECKING:
    from forecaster_service.store import Store


class Process:
    """A process that serves alone. `polls`: whether it looks for newer models by itself; `whole`:
    whether all processes of the service have loaded their models; `buckets`: makes the token
    buckets of its clients."""

    polls = True
    whole = True
    buckets: Callable[[float], Buckets] = Buckets

    async def begin(self, store: "Store") -> None:
        """Return when connections may be accepted."""

    def figures(self, own: Collector) -> Collector:
        """The metrics of the whole service, given those of this process. May wait for others."""
        return own
