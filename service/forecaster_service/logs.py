"""One line on stderr for each request and event, with the request's id: JSON, or readable text on a
terminal."""

import atexit
import logging
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import sleep
from typing import Any
from uuid import uuid4

import structlog
from asgi_correlation_id import correlation_id
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(given: str) -> str:
    """The client's id if it has only plain characters, else a new one."""
    return given if REQUEST_ID.fullmatch(given) else uuid4().hex


ABOUT: dict[str, object] = {}
"""Fields that every line of this process has: which of several processes it is."""


def _request_id(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if request_id := correlation_id.get():
        event["request_id"] = request_id
    return {**event, **ABOUT}


def logger() -> FilteringBoundLogger:
    """The service's logger; structlog's global configuration stays as it is."""
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    json = (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(LINES),  # type: ignore[arg-type]
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _request_id,
            *((plain,) if sys.stderr.isatty() else json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )
    return log


def say(text: str) -> None:
    """Print a sentence of the command that serves: plain on a terminal, else as a log line."""
    if sys.stderr.isatty():
        LINES.write(f"{text}\n")
    else:
        logger().info(text)


class Lines:
    """The lines of this process on their way to stderr: a thread writes them, so that a full disk
    or a pipe that nobody reads costs lines, which are counted in `lost`, but no time. With
    `at_once` there is no thread.
    """

    at_once = False

    def __init__(self, most: int = 4096, pause: float = 0.02) -> None:
        self.most, self.pause, self.lost = most, pause, 0
        self._lines = deque[str]()
        self._writing, self._there = Lock(), Event()
        self._thread = Thread(target=self._run, name="log", daemon=True)

    def write(self, text: str) -> None:
        if self.at_once:
            sys.stderr.write(text)
        elif len(self._lines) >= self.most:
            self.lost += 1
        else:
            self._lines.append(text)
            self._there.set()
            if not self._thread.ident:
                with suppress(RuntimeError):  # another thread has just started it
                    self._thread.start()
                    atexit.register(self.drain)

    def flush(self) -> None:
        """Do nothing: the thread writes soon."""

    def drain(self, seconds: float = 1.0) -> None:
        """Write what is there, waiting at most so long for a write that is under way."""
        if not self._writing.acquire(timeout=seconds):
            return
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        try:
            data = "".join(lines).encode(errors="backslashreplace")
            while data:
                data = data[os.write(sys.stderr.fileno(), data) :]
        except (OSError, AttributeError):
            self.lost += len(lines)
        finally:
            self._writing.release()

    def _run(self) -> None:
        while True:
            self._there.wait()
            self._there.clear()
            sleep(self.pause)  # a write for many lines
            self.drain()


LINES = Lines()


class _Others(logging.Handler):
    """Takes records of other loggers, e.g. uvicorn and asyncio, and Python's warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        logger().log(
            record.levelno, record.getMessage().strip(), logger=record.name,
            exc_info=record.exc_info,
        )  # fmt: skip


def _uncaught(failure: Any) -> None:
    """Log an exception that nobody caught, in a thread or where none can be caught."""
    error = failure.exc_value
    if not isinstance(error, SystemExit):
        logger().error("not caught", exc_info=(failure.exc_type, error, failure.exc_traceback))


@contextmanager
def owning_stderr() -> Iterator[None]:
    """In this context, everything that the process writes to stderr is a line of `logger`, except
    what the interpreter writes as it dies."""
    root, handler = logging.getLogger(), _Others()
    root.addHandler(handler)
    logging.captureWarnings(True)
    hooks = threading.excepthook, sys.unraisablehook
    threading.excepthook = sys.unraisablehook = _uncaught
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        logging.captureWarnings(False)
        root.removeHandler(handler)
        LINES.drain()
