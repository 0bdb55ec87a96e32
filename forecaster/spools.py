"""What a tracker has not yet received of a run: a folder on disk, and the thread that sends it.

    runs/NAME.spool/
        run.json      the run: the tracker's address, its name and tags, the process that trains
        lines.jsonl   everything to send, in order, one JSON document per line
        state.json    how many bytes of the lines are sent, and the tracker's answers
        files/        the files that lines name: texts, pictures, a model
        lock          held by the process that sends

The folder is removed when all is sent. This module does not depend on the kind of tracker.
"""

import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from forecaster.errors import StorageError, UsageError

RUNS = Path("runs")
SUFFIX = ".spool"
ABOUT, LINES, STATE = "run.json", "lines.jsonl", "state.json"
FORMAT = 1
END = "end"
"""The kind of the line that comes last."""
AT_ONCE = 1000
"""The number of lines that are read at once."""

LOOKS = 0.2
"""Seconds between two checks for a signal."""
GLANCE = 1.0
"""Seconds, far more than `waiting` of another process holds a folder to see whether it can."""
RETRIES = 1.0, 30.0
"""Seconds from a failure to the next try: the first and the longest pause; pauses double."""


class Spool:
    """The folder of one run, held by this process."""

    def __init__(self, folder: Path, about: dict[str, Any], lock: FileLock) -> None:
        self.folder, self.about = folder, about
        file = folder / STATE
        self.state: dict[str, Any] = _read(file) if file.exists() else {"told": 0}
        self._lock = lock
        self._writing = threading.Lock()
        try:
            self._out = os.open(folder / LINES, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._cut_torn_line()
        except OSError as error:
            raise StorageError(f"{folder / LINES} cannot be written: {error}") from error

    @property
    def name(self) -> str:
        """The name of the folder: that of the run, with the first letters of its own id."""
        return self.folder.name.removesuffix(SUFFIX)

    @property
    def whole(self) -> bool:
        """Whether every line is sent."""
        return bool(os.fstat(self._out).st_size == self.state["told"])

    def append(self, kind: str, **values: Any) -> None:
        """Add a line, which is on disk completely or not at all. Raises StorageError."""
        line = json.dumps({"kind": kind, **values}).encode() + b"\n"
        with self._writing:
            before = os.fstat(self._out).st_size
            try:
                if os.write(self._out, line) < len(line):
                    raise OSError("no space for the whole line")
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._out, before)
                raise StorageError(
                    f"{self.folder / LINES} cannot be written: {error}. Free some space there."
                ) from error

    def file(self, name: str) -> Path:
        """An unused path in the folder for a file of that name."""
        place = self.folder / "files" / uuid4().hex[:8] / name
        place.parent.mkdir(parents=True)
        return place

    def left(self) -> list[tuple[dict[str, Any], int]]:
        """The next lines to send, each with the byte where it ends."""
        told: int = self.state["told"]
        found: list[tuple[dict[str, Any], int]] = []
        with (self.folder / LINES).open("rb") as lines:
            lines.seek(told)
            for line in lines:
                if not line.endswith(b"\n") or len(found) == AT_ONCE:
                    break
                told += len(line)
                found.append((json.loads(line), told))
        return found

    def note(self, **state: Any) -> None:
        """Save the progress of sending; the file is written under another name and then renamed."""
        self.state = {**self.state, **state}
        _write(self.folder / STATE, self.state)

    def call(self, id: str) -> None:
        """Give the run another id."""
        self.about["id"] = id
        _write(self.folder / ABOUT, self.about)

    def close_for(self, status: str) -> None:
        """Add the last line if the training process died before it could."""
        file = self.folder / LINES
        last = file.read_bytes().splitlines()[-1:]
        if not last or json.loads(last[0])["kind"] != END:
            self.append(END, status=status, at=int(file.stat().st_mtime * 1000))

    def reopen(self) -> None:
        """Remove the last line: the run continues."""
        *before, last = (self.folder / LINES).read_bytes().splitlines(keepends=True) or [b""]
        if last and json.loads(last)["kind"] == END:
            os.ftruncate(self._out, sum(map(len, before)))

    def kinds(self) -> dict[str, int]:
        """How many lines of each kind are not sent."""
        counts: dict[str, int] = {}
        with (self.folder / LINES).open("rb") as lines:
            lines.seek(self.state["told"])
            for line in lines:
                kind = json.loads(line)["kind"]
                counts[kind] = counts.get(kind, 0) + 1
        return counts

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def release(self) -> None:
        os.close(self._out)
        self._lock.release()

    def _cut_torn_line(self) -> None:
        """Drop the incomplete line of a process that died while it wrote."""
        data = (self.folder / LINES).read_bytes()
        os.ftruncate(self._out, data.rfind(b"\n") + 1)


def begin(about: Mapping[str, Any]) -> Spool:
    """Create the folder of a run; `about` has at least its "name" and its "id"."""
    document = {"format": FORMAT, **about, "process": process()}
    name, letters = about["name"], about["id"][:8]
    folder = RUNS / f"{name if name.endswith(letters) else f'{name}-{letters}'}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder, GLANCE)
    except Timeout:
        raise StorageError(f"another process is using {folder.resolve()}") from None
    except OSError as error:
        raise StorageError(f"cannot create {folder.resolve()} for the tracker: {error}") from error
    _write(folder / ABOUT, document)  # now others find it
    return Spool(folder, document, lock)


def take_up(id: str) -> Spool | None:
    """Take over what is left of the run with that id; None if nothing is left."""
    for folder in _folders():
        about = _about(folder)
        if isinstance(about, StorageError):
            continue
        if about["id"] == id and (lock := _hold(folder, GLANCE)):
            document = {**_read(folder / ABOUT), "again": True, "process": process()}
            _write(folder / ABOUT, document)
            spool = Spool(folder, document, lock)
            spool.reopen()
            return spool
    return None


def find(names: list[str]) -> Iterator[tuple[str, Spool | StorageError | None]]:
    """What is left of the runs with these names or ids, or of all; None for a run in progress, an
    error for one that cannot be read.

    A name is that of the run, which its bundle has, or of the folder itself. Raises UsageError for
    a name with nothing left, unless it is a folder in `runs`.
    """
    found = {folder: _about(folder) for folder in _folders()}
    called = {folder: {folder.name, folder.stem} for folder in found}
    for folder, about in found.items():
        if not isinstance(about, StorageError):
            called[folder] |= {about["id"], about["name"]}
    for name in names:
        own = Path(name).name
        if not any(own in each for each in called.values()) and not (RUNS / own).is_dir():
            known = ", ".join(sorted(folder.stem for folder in found)) or "nothing"
            raise UsageError(f"no run '{name}' in {RUNS}/; left to upload: {known}")
    wanted = {Path(name).name for name in names}
    for folder, about in found.items():
        if not wanted or wanted & called[folder]:
            yield folder.stem, about if isinstance(about, StorageError) else _take(folder, about)


def waiting() -> int:
    """How many runs in `runs` have something left that no process is sending."""
    count = 0
    for folder in _folders():
        if lock := _hold(folder):
            lock.release()
            count += 1
    return count


def process() -> str:
    """A text that identifies this process; no other process ever has the same."""
    import psutil

    return f"{machine()} {os.getpid()} {psutil.Process().create_time():.2f}"


def machine() -> str:
    """A text for the scope of process numbers: this host, and on Linux this container."""
    try:
        inside = f"/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        inside = ""
    return re.sub(r"[^\w.-]", "_", socket.gethostname()) + inside


def is_gone(words: str) -> bool:
    """Whether the process that `process` gave these `words` ran on this machine and has ended."""
    import psutil

    try:
        where, number, began = words.split()
        if where != machine():
            return False
        return bool(abs(psutil.Process(int(number)).create_time() - float(began)) > 1)
    except psutil.NoSuchProcess:
        return True
    except (ValueError, psutil.Error):
        return False


class Sender(threading.Thread):
    """Sends the contents of a spool in the background, and tries again until it succeeds.

    `tell` sends some of it and returns whether there was anything to send; it raises when the
    tracker fails, and calls `advance` to show progress before it returns. `absent` decides whether
    an error means that there is no tracker yet, since nobody listens.
    """

    def __init__(
        self,
        spool: Spool,
        tell: Callable[[Callable[[], None]], bool],
        absent: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        super().__init__(name="forecaster-tracker", daemon=True)
        self._is_absent = absent
        self.error: BaseException | None = None
        self._spool, self._tell = spool, tell
        self._change = threading.Condition()
        self._tries = self._failures = self._advances = 0
        self._wanted = self._closed = False

    def run(self) -> None:
        pause, longest = RETRIES
        while not self._closed:
            with self._change:
                self._wanted = False
            try:
                told = self._tell(self.advance)
            except Exception as error:  # a tracker may raise anything
                self._came(error)
                self._wait(pause)
                pause = min(2 * pause, longest)
            else:
                self._came(None)
                pause = RETRIES[0]
                if not told:
                    self._wait(None)
        self._spool.release()

    def advance(self) -> None:
        with self._change:
            self._advances += 1
            self._change.notify_all()

    def wake(self) -> None:
        """Start sending new lines. Returns at once; a failing tracker keeps its pause."""
        with self._change:
            if self.error is None:
                self._wanted = True
                self._change.notify_all()

    def settle(
        self,
        still: float | None,
        total: float | None,
        failures: int,
        signalled: Callable[[], float] = lambda: 0.0,
        patience: float = 0.0,
    ) -> bool:
        """Wait until all is sent, and return whether it is.

        Gives up after `failures` failures (after the next one if the last try failed), after
        `still` seconds without an advance, and after `total` seconds; None means for ever. Also
        gives up when a signal comes during the wait: `signalled` returns how many seconds ago, 0
        for none. The wait for an absent tracker lasts up to `patience` seconds; the other limits
        start when it is there.
        """
        start = begun = moved = time.monotonic()
        with self._change:
            advances, tries = self._advances, self._tries
            allowed = self._failures + (1 if self.error else failures)
            self._wanted = True  # also during the pause after a failure
            self._change.notify_all()
            while not (self._tries > tries and self.error is None and self._spool.whole):
                now = time.monotonic()
                if patience and self.error is not None and self._is_absent(self.error):
                    if now - start >= patience or signalled():
                        return False
                    if now - begun >= RETRIES[0]:  # no long pause: it may start at any moment
                        begun = moved = now
                        self._wanted = True
                        self._change.notify_all()
                    allowed = self._failures + failures
                if self._advances != advances:
                    advances, moved = self._advances, now
                if self._failures >= allowed or self._closed or 0 < signalled() < now - start:
                    return False
                limits = [
                    since + limit - now
                    for since, limit in ((moved, still), (begun, total))
                    if limit is not None
                ]
                if limits and min(limits) <= 0:
                    return False
                self._change.wait(min([*limits, LOOKS]))
        return True

    def close(self) -> None:
        """End the thread, which releases the spool; a hanging thread ends with the process."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self.join(1)

    def _came(self, error: BaseException | None) -> None:
        with self._change:
            self.error = error
            self._tries += 1
            self._advances += error is None
            self._failures += error is not None
            self._change.notify_all()

    def _wait(self, seconds: float | None) -> None:
        with self._change:
            self._change.wait_for(lambda: self._wanted or self._closed, seconds)


def _folders() -> list[Path]:
    return sorted(file.parent for file in RUNS.glob(f"*{SUFFIX}/{ABOUT}"))


def _about(folder: Path) -> dict[str, Any] | StorageError:
    """What is known about a run, or why that cannot be read."""
    try:
        about = _read(folder / ABOUT)
    except StorageError as error:
        return error
    if about.get("format") != FORMAT:
        return StorageError(f"{folder} was written by another version of forecaster")
    return about


def _take(folder: Path, about: dict[str, Any]) -> Spool | StorageError | None:
    lock = _hold(folder)
    if lock is None:
        return None
    try:
        return Spool(folder, about, lock)
    except StorageError as error:
        lock.release()
        return error


def _hold(folder: Path, patience: float = 0.0) -> FileLock | None:
    """The lock of a folder; None if another process holds it."""
    try:
        return _lock(folder, patience)
    except OSError:
        return None


def _lock(folder: Path, patience: float) -> FileLock:
    lock = FileLock(folder / "lock", timeout=patience, thread_local=False)  # the sender releases it
    lock.acquire()
    return lock


def _read(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise StorageError(f"{file} cannot be read: {error}") from error
    return document


def _write(file: Path, document: Mapping[str, Any]) -> None:
    beside = file.with_name(f".{file.name}")
    try:
        beside.write_text(json.dumps(document, indent=1) + "\n")
        beside.replace(file)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error}") from error
