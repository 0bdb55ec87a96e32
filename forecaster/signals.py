"""What becomes of Ctrl-C, SIGTERM and a closed terminal: a flag that the work looks at.

`heeding` installs the handlers of a command. Work with something to lose runs inside `orderly`:
there a signal only sets the flag, and the work calls `check` where it can end. Anywhere else the
handler raises Stopped. However the work hangs, the process has ended GRACE seconds later.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import Any

from forecaster.errors import Stopped

WANTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE, LAST = 7.0, 1.5
"""Seconds that the work has to end after a signal, and those for what is done in its place."""


_ENDED = b"\0"
"""What tells the watcher, which reads the numbers of signals, that there is nothing to watch."""


class _State:
    number: int | None = None
    since = 0.0
    depth = 0
    last: Callable[[], object] | None = None


_state = _State()


def waiting() -> float:
    """Seconds since a signal asked for the end; 0 where none did."""
    return 0.0 if _state.number is None else max(time.monotonic() - _state.since, 1e-9)


def check() -> None:
    """Raise Stopped where a signal has asked for the end."""
    if _state.number is not None:
        raise Stopped(_state.number)


@contextmanager
def orderly(last: Callable[[], object] | None = None) -> Iterator[None]:
    """In the block a signal sets the flag alone, and the work has to `check`.

    `last` is done, by another thread, where the work has not ended in GRACE seconds.
    """
    before, _state.last = _state.last, last or _state.last
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
        _state.last = before


@contextmanager
def heeding() -> Iterator[None]:
    """Heed the first signal in order; the second ends the process at once.

    A signal that is ignored, as under nohup, stays ignored.
    """
    heeded = [number for number in WANTED if signal.getsignal(number) != signal.SIG_IGN]

    def heed(number: int, frame: Any) -> None:
        for each in heeded:
            signal.signal(each, signal.SIG_DFL)
        if _state.number is not None:  # somebody has put this handler back
            signal.raise_signal(number)
        _state.since, _state.number = time.monotonic(), number
        if not _state.depth:
            raise Stopped(number)

    _state.number = None
    before = {number: signal.signal(number, heed) for number in heeded}
    # the system writes the number of a signal at once, also while Python waits for other code
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reading, heed), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        os.write(writing, _ENDED)
        watcher.join()
        os.close(writing)
        os.close(reading)
        for number, handler in before.items():
            signal.signal(number, handler)
        _state.number = None


def _watch(reading: int, heed: Callable[[int, Any], None]) -> None:
    """End the process where it has not ended some time after a signal that is ours to heed."""
    ours = (heed, signal.SIG_DFL)
    while (byte := os.read(reading, 1)) != _ENDED:
        if byte[0] in WANTED and signal.getsignal(byte[0]) in ours:
            break
    else:
        return
    end = time.monotonic() + GRACE
    while (left := end - time.monotonic()) > 0:
        if select([reading], [], [], left)[0] and os.read(reading, 1) == _ENDED:
            return
    if _state.last is not None:
        last = threading.Thread(target=_state.last, daemon=True)
        last.start()
        last.join(LAST)
    with suppress(OSError, ValueError):
        print("stopped", file=sys.stderr, flush=True)
    os._exit(128 + byte[0])
