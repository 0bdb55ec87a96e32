"""What the service has from its process: what several of them share, one alone has to itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from forecaster_service.buckets import Buckets

if TYPE_CHECKING:
    from forecaster_service.store import Store


class Process:
    """One that serves alone. `polls`: whether it looks for newer models by itself; `whole`: whether
    all of its kind have had their models; `buckets`: makes those of its clients."""

    polls = True
    whole = True
    buckets: Callable[[float], Buckets] = Buckets

    async def begin(self, store: "Store") -> None:
        """Return when connections may be taken."""

    def figures(self, own: Collector) -> Collector:
        """Those of the whole service, from those of this process. May wait for others."""
        return own
