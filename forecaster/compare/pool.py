"""Processes that live long and take one piece of work after another.

A process that dies costs the piece it had and no other; another one takes its place. When the
caller ends, however it ends, they are killed.
"""

import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

Item = TypeVar("Item")
METHOD = "forkserver" if sys.platform == "linux" else "spawn"


class FailedError(Exception):
    """Why a piece of work has no result."""


def each(
    work: Callable[..., Any], shared: Any, items: Iterable[Item], processes: int
) -> Iterator[tuple[Item, Any]]:
    """(item, work(shared, item)) as they finish, or (item, FailedError) where it failed.

    `work` is a function of a module; `shared` is sent once to each of the `processes`.
    """
    context: Any = multiprocessing.get_context(METHOD)
    context.set_forkserver_preload([work.__module__])
    waiting = deque(items)
    idle: list[tuple[Connection, Any]] = []
    busy: dict[Connection, tuple[Any, Item]] = {}
    finished: list[tuple[Item, Any]] = []

    def start() -> tuple[Connection, Any]:
        connection, its_end = context.Pipe()
        process = context.Process(target=_serve, args=(its_end, work, shared), daemon=True)
        process.start()
        its_end.close()
        return connection, process

    try:
        while waiting or busy or finished:
            while waiting and len(busy) < processes:
                connection, process = idle.pop() if idle else start()
                busy[connection] = process, waiting.popleft()
                connection.send(busy[connection][1])
            yield from finished
            finished.clear()
            ready = wait(list(busy)) if busy else []
            for connection in [each for each in busy if each in ready]:
                process, item = busy.pop(connection)
                try:
                    finished.append((item, connection.recv()))
                    idle.append((connection, process))
                except (EOFError, ConnectionError):
                    process.join()
                    killed = process.exitcode == -signal.SIGKILL
                    hint = " (out of memory?)" if killed else ""
                    status = f"its process ended, status {process.exitcode}{hint}"
                    finished.append((item, FailedError(status)))
    finally:
        for process in [*(p for _, p in idle), *(p for p, _ in busy.values())]:
            process.kill()
            process.join()


def _serve(connection: Connection, work: Callable[..., Any], shared: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this
    while True:
        try:
            item = connection.recv()
        except EOFError:  # the parent is gone
            return
        try:
            result = work(shared, item)
        except Exception as error:
            result = FailedError(f"{type(error).__name__}: {error}")
        connection.send(result)
