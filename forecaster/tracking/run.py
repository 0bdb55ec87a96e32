"""Track a run while it lasts: it never waits for MLflow, and nothing fails because of MLflow.

A thread publishes what is noted (`notes`). MLflow's own asynchronous logging does not do: its
threads are joined at the end, so a process whose server hangs could not end for minutes.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Literal

from forecaster.tracking import store  # before mlflow, which it silences

# isort: split
from mlflow.tracking.context.registry import resolve_tags

from forecaster.base import signals
from forecaster.base.errors import ForecasterError, Stopped
from forecaster.base.installation import TRAINING, tracking_uri, ui, without_password
from forecaster.base.progress import Say
from forecaster.record.folder import RunFolder, now
from forecaster.tracking.notes import Notes, fit, memory
from forecaster.tracking.publish import Publisher, waiting

if TYPE_CHECKING:
    from forecaster.config.run_config import RunConfig

SYNC = "forecaster sync"
START, END, STOPPED = 5.0, 7.0, 3.0
"""Seconds that a run waits for MLflow without progress, at its start and at its end, and after a
signal, within `signals.GRACE`. A store in a file is opened at the start, however long it takes."""
LOOKS = 0.1
"""Seconds between two looks for progress or a signal: nobody notices so short a wait."""


class Background:
    """Calls `publish` in a thread, one call at a time, so that nobody waits for it.

    `publish` raises when the tracker fails. `progress` grows while it goes on. `release` is called
    after `close`, when no call is under way.
    """

    def __init__(
        self,
        publish: Callable[[], None],
        progress: Callable[[], float] = lambda: 0,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._publish, self._progress, self._release = publish, progress, release
        self.error: Exception | None = None
        self._thread = threading.Thread()
        self._news, self._told = 1, 0
        """How often there was something new, and how many of these are published."""

    def wake(self) -> None:
        """Publish what is new, unless a call is under way. Returns at once."""
        self._news += 1
        if not self._thread.is_alive():
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._call, args=[self._news], daemon=True)
        self._thread.start()

    def _call(self, news: int) -> None:
        try:
            self._publish()
        except Exception as error:  # a tracker may raise anything
            self.error = error
        else:
            self.error, self._told = None, news

    def settle(self, seconds: float) -> bool:
        """Wait until all is published, and return whether it is.

        Gives up after `seconds` without progress, STOPPED seconds after a signal, and when a call
        fails that knew of all.
        """
        first = moved = time.monotonic()
        progress, news, has_ended = self._progress(), self._news, False
        while self._told < news:
            if not self._thread.is_alive():
                if has_ended:
                    return self._told >= news
                self._start()
                has_ended = True
            self._thread.join(LOOKS)
            now = time.monotonic()
            if self._progress() != progress:
                progress, moved = self._progress(), now
            if now - moved >= seconds or min(signals.waiting(), now - first) >= STOPPED:
                return self._told >= news
        return True

    def close(self) -> None:
        """Release as soon as no call is under way; one that hangs ends with the process."""

        def wait() -> None:
            if self._thread.is_alive():
                self._thread.join()
            self._release()

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(1)


class Run(Notes):
    """A run in progress; made by `start`.

    Only `settle` and its end wait for MLflow. Raises StorageError when the disk is full.
    """

    def __init__(self, run: RunFolder, uri: str, say: Say, later: str) -> None:
        super().__init__(run)
        self.uri, self._say, self._later = uri, say, later
        self.whole = False
        """Whether MLflow has all of it, as it ended."""
        self._publisher = Publisher(self, uri, training=True)
        self._background = Background(
            self._publisher, lambda: self._publisher.progress, run.release
        )

    def begin(self, again: bool) -> None:
        """Find or make the run in MLflow.

        Raises UnavailableError for a store that cannot be used at all.
        """
        self._background.settle(inf if store.is_local(self.uri) else START)
        error, run = self._background.error, self._publisher.run
        if run:
            if again and not self._publisher.found:
                self._say(f"the tracker does not know run {self.id}; this is a new one, {run}")
            self.held.note(run_id=run)
        elif error is not None and not store.is_away(self.uri, error):
            with store.explained(self.uri):
                raise error
        elif not signals.waiting():
            self._say(
                f"MLflow at {without_password(self.uri)} does not answer{_because(error)}; it gets "
                "the run when it does"
            )

    @property
    def id(self) -> str:
        """MLflow's id, or ours if MLflow was away at the start; it then knows the run by both."""
        return self.held.about.run_id

    @property
    def ui_command(self) -> str:
        """The command to type if no server runs, and the address of the runs, one per line."""
        return ui_command(self.uri, self._publisher.experiment)

    @property
    def registered(self) -> str:
        """A sentence on the version that the model became; empty without one."""
        if self.version is None:
            return ""
        later = f"{self.version.name} will be registered when MLflow has the run: {SYNC}"
        return self._publisher.registered or later

    def wake(self) -> None:
        self._background.wake()

    def settle(self) -> bool:
        """Wait until MLflow has everything, while there is progress; returns whether it has."""
        return self._background.settle(END)

    def end(self, status: Literal["FINISHED", "FAILED", "KILLED"]) -> None:
        """Record the end of the run, and wait for MLflow."""
        self.held.note(status=status, ended=now())
        self.wake()
        self.whole = self.settle()
        try:
            if self.whole:
                self.held.told()
                return
        finally:
            self._background.close()
        self._say(
            f"MLflow at {without_password(self.uri)} does not have all of this run yet"
            f"{_because(self._background.error)}. {self._later}"
        )


@contextmanager
def start(
    config: "RunConfig",
    name: str,
    tags: Mapping[str, str],
    *,
    held: RunFolder | None = None,
    key: str | None = None,
    later: str = "",
    say: Say = lambda text: None,
) -> Iterator[Run]:
    """Start a run; it ends as FINISHED, FAILED (an exception) or KILLED (a signal).

    Its folder is `held`, which it releases. Without one it is in memory alone: a run that the store
    has by this `key` goes on, and `later` is a sentence on how MLflow gets what it lacks at the
    end. If a server does not answer, `say` reports it; raises UnavailableError within seconds if a
    store cannot be used at all, and then a new run leaves no folder.
    """
    uri = config.track.uri or tracking_uri()
    if held is not None and held.folder is not None:
        later = f"{held.folder} keeps the rest; upload it with `{SYNC} {held.about.name}`."
    held = held or memory(name, key)
    goes_on = held.about.resumable
    with store.silent():
        tags = resolve_tags(fit(tags, 8000))
    before = held.about
    held.note(
        tracker=without_password(store.absolute(uri)), experiment=config.track.experiment,
        tags=tags, status="RUNNING", ended=None, uploaded=False,
    )  # fmt: skip
    run = Run(held, uri, say, later)
    with signals.orderly():  # a run created in MLflow is then known here, too
        try:
            run.begin(goes_on)
        except BaseException:
            if goes_on:
                held.note(**dict(before))
                held.release()
            else:
                held.remove()
            raise
    with ExitStack() as ending:
        try:
            signals.check()
            if count := waiting():
                runs = "an earlier run is" if count == 1 else f"{count} earlier runs are"
                say(f"{runs} not all in MLflow: {SYNC}")
            yield run
            ending.enter_context(signals.orderly())  # a later signal ends only the wait
        except BaseException as error:
            left = isinstance(error, Stopped | KeyboardInterrupt | BrokenPipeError)
            with signals.orderly(), suppress(ForecasterError):  # report the first error
                run.end("KILLED" if left else "FAILED")
            raise
        run.end("FINISHED")
    signals.check()


def _because(error: BaseException | None) -> str:
    return f" ({store.reason(error)})" if error else ""


def ui_command(uri: str, experiment: str) -> str:
    """As `installation.ui`, for the table of runs; without `experiment`, MLflow does not answer."""
    if not experiment:
        return f"{without_password(uri)} after {SYNC}"
    return ui(uri, f"/#/experiments/{experiment}/runs?{TRAINING}&viewStateShareKey={store.VIEW}")
