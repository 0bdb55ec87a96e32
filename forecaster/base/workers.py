"""Worker processes: one that gets timed requests (Worker), or several that share work (each).

If a process dies, only its current work is lost. When the caller ends, however it ends, its
processes end too.
"""

import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from inspect import isgenerator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

Item = TypeVar("Item")
KILLED = 9
"""The number of SIGKILL, a name that Windows lacks."""
METHOD = "forkserver" if sys.platform == "linux" else "spawn"


class FailedError(Exception):
    """Why work has no result, as a phrase about its process: "took longer than 9 s"."""


class Worker(AbstractContextManager["Worker"]):
    """A process that calls `work(*shared, *arguments)` on each request.

    `work` is a function of a module; `shared` is sent once. On Linux the process is forked from a
    server that has imported the module of the first work and computed nothing.
    """

    def __init__(self, work: Callable[..., Any], *shared: Any) -> None:
        context: Any = multiprocessing.get_context(METHOD)
        if METHOD == "forkserver":
            context.set_forkserver_preload([work.__module__])
        self.connection, its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(its_end, work, shared), daemon=True)
        self.process.start()
        its_end.close()

    def ask(self, *arguments: Any) -> "Worker":
        """Start a call of `work`; `receive` returns its result, or each item that it yields."""
        self.connection.send(arguments)
        return self

    def receive(self, seconds: float | None = None) -> Any:
        """The next result.

        Raises FailedError if none comes within `seconds`, if `work` raises, or if its process dies.
        """
        if not self.connection.poll(seconds):
            raise FailedError(f"took longer than {seconds:g} s")
        try:
            result, failure = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            hint = " (out of memory?)" if self.process.exitcode == -KILLED else ""
            raise FailedError(f"ended its process, status {self.process.exitcode}{hint}") from None
        if failure:
            raise FailedError(f"raised {failure}")
        return result

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def each(
    work: Callable[..., Any], shared: Any, items: Iterable[Item], processes: int
) -> Iterator[tuple[Item, Any]]:
    """Yield (item, work(shared, item)) as calls finish, or (item, FailedError) for a failed one.

    `work` is a function of a module; `shared` is sent once to each of the `processes`.
    """
    waiting = deque(items)
    idle: list[Worker] = []
    busy: dict[Connection, tuple[Worker, Item]] = {}
    finished: list[tuple[Item, Any]] = []
    with ExitStack() as stack:
        while waiting or busy or finished:
            while waiting and len(busy) < processes:
                worker = idle.pop() if idle else stack.enter_context(Worker(work, shared))
                busy[worker.connection] = worker, waiting.popleft()
                worker.ask(busy[worker.connection][1])
            yield from finished
            finished.clear()
            ready = wait(list(busy)) if busy else []
            for connection in [end for end in busy if end in ready]:
                worker, item = busy.pop(connection)
                try:
                    finished.append((item, worker.receive()))
                except FailedError as failure:
                    finished.append((item, failure))
                if worker.process.is_alive():
                    idle.append(worker)


def _serve(connection: Connection, work: Callable[..., Any], shared: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this
    while True:
        try:
            arguments = connection.recv()
        except EOFError:  # the parent has ended
            return
        try:
            results = work(*shared, *arguments)
            for result in results if isgenerator(results) else [results]:
                connection.send((result, None))
        except Exception as error:
            connection.send((None, f"{type(error).__name__}: {error}"))
