"""Work on a Ray cluster, distributed as `workers.each` distributes it among local processes.

Only the tasks of Ray (Moritz et al., OSDI 2018) are used. Every machine of the cluster needs this
package; none needs the folders of the machine that submits the work. Whoever can reach the ports of
a cluster can run code on it: a local one listens on loopback only, and docs/operate.md describes
how to protect another.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from forecaster.base import signals
from forecaster.base.errors import UnavailableError
from forecaster.base.extras import needed
from forecaster.base.workers import FailedError

Item = TypeVar("Item")
LOCAL = "local"
"""The address for a temporary cluster on this machine."""
SECONDS = 5.0
"""The time in which a cluster must answer; Ray itself would wait for minutes."""
HEEDED = 0.5
"""Seconds after which a signal is looked for."""


def each(
    work: Callable[[Any, Item], Any],
    shared: Any,
    items: Iterable[Item],
    address: str,
    processes: int,
    gpus: float = 0.0,
) -> Iterator[tuple[Item, Any]]:
    """Yield (item, work(shared, item)) as tasks finish, or (item, FailedError) for a failed one.

    `shared` is sent once to each machine. A task takes one processor and the given share of a GPU;
    a task whose machine or process is lost, for example for lack of memory, is tried once more.
    `address` is that of a cluster as Ray takes it, or LOCAL, which runs `processes` at a time.
    Raises UnavailableError if the cluster cannot be reached.
    """
    with joined(address, processes, gpus) as ray:
        known = ray.put(shared)
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=1)(work)
        waiting = {task.remote(known, item): item for item in items}
        while waiting:
            with signals.orderly():  # what a signal raises in Ray's native code is a SystemError
                ready, _ = ray.wait(list(waiting), num_returns=1, timeout=HEEDED)
                ended = [(waiting.pop(done), _answer(ray, done)) for done in ready]
            yield from ended
            signals.check()


def _answer(ray: Any, task: Any) -> Any:
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        return FailedError(f"raised {type(error.cause).__name__}: {error.cause}")
    except ray.exceptions.RayError as error:
        return FailedError(f"was lost: {str(error).splitlines()[0]}")


@contextmanager
def joined(address: str, processes: int, gpus: float) -> Iterator[Any]:
    """Ray, connected to a cluster, and disconnected however the work ends.

    `address` and `processes` are as in `each`. Raises UnavailableError.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends no statistics
    os.environ.setdefault("RAY_task_oom_retries", "1")  # else a huge task is retried for ever
    if address == LOCAL:  # read when Ray is imported; without it Ray listens on all addresses
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    with needed("--ray"):
        import ray
    heeded = {sign: signal.getsignal(sign) or signal.SIG_DFL for sign in signals.WANTED}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        _reach(address)
        if address == LOCAL:
            quiet["include_dashboard"] = False
            # by default Ray counts the whole machine; a container may use less
            ray.init(num_cpus=processes, num_gpus=None if gpus else 0, **quiet)
        else:
            ray.init(address=address, **quiet)
    except Exception as error:  # Ray raises plain Exception on a machine that starts it slowly
        hint = "" if address == LOCAL else " (with tokens, set RAY_AUTH_MODE=token here, too)"
        raise UnavailableError(
            f"no Ray cluster can be used at {address}: {str(error).splitlines()[0]}{hint}"
        ) from error
    if threading.current_thread() is threading.main_thread():
        for number, handler in heeded.items():  # Ray has replaced them
            signal.signal(number, handler)
    try:
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise OSError if nobody listens at HOST:PORT; Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
