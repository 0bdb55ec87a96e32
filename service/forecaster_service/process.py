"""What differs between a process that serves alone and one of several."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector


class Process:
    """A process that serves alone. `number`: how many processes there are."""

    number = 1

    async def begin(self, loading: Callable[[], bool]) -> None:
        """Return when connections may be accepted; `loading` says whether models are loaded."""

    def deaths(self) -> int:
        """How many processes of the service have died."""
        return 0

    def figures(self, registry: CollectorRegistry) -> Collector | CollectorRegistry:
        """The metrics of the whole service, given those of this process."""
        return registry
