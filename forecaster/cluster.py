"""Work on a Ray cluster, shared out as `workers.each` shares it among processes here.

Ray (Moritz et al., OSDI 2018) is asked for nothing but its tasks. Every machine of the cluster
needs this package; none needs the folders of the one that asks. Whoever reaches the ports of a
cluster runs code on it: a local one listens on loopback alone, and docs/scale.md tells how to guard
another.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from forecaster import signals
from forecaster.errors import UnavailableError
from forecaster.extras import needed
from forecaster.workers import FailedError

Item = TypeVar("Item")
LOCAL = "local"
"""The address that starts a cluster on this machine, for as long as it is needed."""
SECONDS = 5.0
"""In which a cluster must answer."""


def each(
    work: Callable[[Any, Item], Any],
    shared: Any,
    items: Iterable[Item],
    address: str,
    processes: int,
    gpus: float = 0.0,
) -> Iterator[tuple[Item, Any]]:
    """(item, work(shared, item)) as they finish, or (item, FailedError) where it failed.

    `shared` is sent once to each machine. A task takes one processor and so much of a GPU; one
    whose machine or process is lost, such as for want of memory, is tried once more. `address` is
    that of a cluster as Ray takes it, or LOCAL, which runs `processes` at a time. Raises
    UnavailableError where it cannot be reached.
    """
    with joined(address, processes, gpus) as ray:
        known = ray.put(shared)
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=1)(work)
        waiting = {task.remote(known, item): item for item in items}
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            item = waiting.pop(ready)
            try:
                yield item, ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                yield item, FailedError(f"raised {type(cause).__name__}: {cause}")
            except ray.exceptions.RayError as error:
                yield item, FailedError(f"was lost: {str(error).splitlines()[0]}")


@contextmanager
def joined(address: str, processes: int, gpus: float) -> Iterator[Any]:
    """Ray, connected to a cluster; left when the work ends, however it ends.

    `address` and `processes` as `each` has them. Raises UnavailableError.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # calls nobody
    os.environ.setdefault("RAY_task_oom_retries", "1")  # else what is too large runs for ever
    if address == LOCAL:  # else Ray listens on all addresses; it reads this as it is imported
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    with needed("--ray"):
        import ray
    heeded = {each: signal.getsignal(each) or signal.SIG_DFL for each in signals.WANTED}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        _reach(address)
        if address == LOCAL:
            # all that is on this machine, unless told: in a container that is more than it may use
            ray.init(
                num_cpus=processes, num_gpus=None if gpus else 0, include_dashboard=False, **quiet
            )  # fmt: skip
        else:
            ray.init(address=address, **quiet)
    except Exception as error:  # Ray raises that very class where a machine is slow to start it
        hint = "" if address == LOCAL else " (one with tokens wants RAY_AUTH_MODE=token here, too)"
        raise UnavailableError(
            f"no Ray cluster can be used at {address}: {str(error).splitlines()[0]}{hint}"
        ) from error
    if threading.current_thread() is threading.main_thread():
        for number, handler in heeded.items():  # Ray has put its own in their place
            signal.signal(number, handler)
    try:
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raises OSError where nobody listens at HOST:PORT, for which Ray would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
