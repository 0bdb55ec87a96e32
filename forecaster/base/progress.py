"""The progress of long work: a bar on a terminal, and lines that stay."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn
from rich.text import Text

Advance = Callable[[str, float], None]
"""Takes the name of the current work, and the number of steps done since the last call."""

Say = Callable[[str], None]
"""Takes a sentence for the waiting user."""


DETAILS: ContextVar[bool] = ContextVar("DETAILS", default=True)
"""Whether the user wants to read what `detail` says."""
SELDOM = 10.0
"""Seconds between two lines of progress, for those who want no details."""


@contextmanager
def details(on: bool) -> Iterator[None]:
    """Inside the block, `detail` speaks or is silent."""
    before = DETAILS.set(on)
    try:
        yield
    finally:
        DETAILS.reset(before)


def detail(say: Say, text: str) -> None:
    """Say what is known for certain later, or interests only those who choose settings."""
    if DETAILS.get():
        say(text)


def lasting(seconds: float) -> str:
    """A time in its two largest units: "1 min 39 s"."""
    whole = round(seconds)
    parts = (whole // 3600, "h"), (whole % 3600 // 60, "min"), (whole % 60, "s")
    words = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(words[:2]) or "0 s"


def time_left(seconds: float) -> str:
    """What is left of long work: "1 min 39 s left at most"."""
    return f"{lasting(max(1, seconds))} left at most"


class _Elapsed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(lasting(task.finished_time or task.elapsed or 0))


class Bar:
    """A progress bar on a terminal's stderr or in a notebook, removed when it is closed.

    A notebook needs ipywidgets for it.

    There are `total` steps, of which `done` are done; the bar shows percent, time and the current
    work.
    """

    def __init__(self, title: str, total: float, done: int = 0) -> None:
        columns = (BarColumn(), TaskProgressColumn(), _Elapsed(), "{task.description}")
        console = Console(stderr=True)
        self._progress = Progress(title, *columns, console=console, transient=True)
        self._task = self._progress.add_task("", total=total, completed=done)
        self._spoke = time.monotonic()

    def advance(self, what: str, done: float) -> None:
        self._progress.update(self._task, description=what, advance=done)

    def line(self, text: str, seldom: bool = False) -> None:
        """Print a permanent line on stderr, above the bar; some of those that come `seldom`."""
        now = time.monotonic()
        if seldom and not DETAILS.get() and now < self._spoke + SELDOM:
            return
        self._spoke = now
        self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> "Bar":
        notebook = self._progress.console.is_jupyter and find_spec("ipywidgets")
        if sys.stderr.isatty() or notebook:
            self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.live.stop()  # stop() itself writes an empty line if there is no terminal
