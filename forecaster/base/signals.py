"""Handle Ctrl-C, SIGTERM and a closed terminal with a flag that the work checks.

`heeding` installs the handlers of a command. Work that could lose results runs inside `orderly`:
there, a signal only sets the flag, and the work calls `check` where it can end. Elsewhere the
handler raises Stopped. Even if the work hangs, the process ends within GRACE seconds.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import Any

from forecaster.base.errors import Stopped

WANTED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
)
"""Those that this system has; SIGBREAK is Ctrl-Break on Windows."""
GRACE = 7.0
"""Seconds that the work has to end after a signal; `docker stop` kills after ten."""
_ENDED = b"\0"
"""The byte that ends the watcher, which otherwise reads the numbers of signals."""


class _State:
    number: int | None = None
    since = 0.0
    depth = 0


_state = _State()


def waiting() -> float:
    """Seconds since a signal asked the work to end; 0 if none did."""
    return 0.0 if _state.number is None else max(time.monotonic() - _state.since, 1e-9)


def check() -> None:
    """Raise Stopped if a signal has asked the work to end."""
    if _state.number is not None:
        raise Stopped(_state.number)


@contextmanager
def orderly() -> Iterator[None]:
    """Inside the block, a signal only sets the flag, and the work must call `check`."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt where a library ends the process and ignores the next."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as left:
        if not isinstance(left.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt from None


@contextmanager
def heeding() -> Iterator[None]:
    """Let the first signal end the work in order; the second ends the process at once.

    A signal that is ignored, as under nohup, stays ignored.
    """
    heeded = [number for number in WANTED if signal.getsignal(number) != signal.SIG_IGN]

    def heed(number: int, frame: Any) -> None:
        for other in heeded:
            signal.signal(other, signal.SIG_DFL)
        if _state.number is not None:  # other code has restored this handler
            signal.raise_signal(number)
        _state.since, _state.number = time.monotonic(), number
        if not _state.depth:
            raise Stopped(number)

    _state.number = None
    before = {number: signal.signal(number, heed) for number in heeded}
    # the system writes the number of a signal at once, even while Python waits for native code
    reading, writing = socket.socketpair()  # on Windows, select takes no pipes
    writing.setblocking(False)
    woken = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reading, heed), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        writing.send(_ENDED)
        watcher.join()
        writing.close()
        reading.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        _state.number = None


def _watch(reading: socket.socket, heed: Callable[[int, Any], None]) -> None:
    """End the process if it has not ended some time after a signal that we handle."""
    ours = (heed, signal.SIG_DFL)
    while (byte := reading.recv(1)) != _ENDED:
        if byte[0] in WANTED and signal.getsignal(byte[0]) in ours:
            break
    else:
        return
    end = time.monotonic() + GRACE
    while (left := end - time.monotonic()) > 0:
        if select([reading], [], [], left)[0] and reading.recv(1) == _ENDED:
            return
    with suppress(OSError, ValueError):
        print("stopped", file=sys.stderr, flush=True)
    os._exit(128 + byte[0])
