"""The folder of a run, `runs/NAME`, from its first second on.

    run.json            what is trained, and what a tracker is told but for figures: `RunFacts`
    epochs.jsonl        the figures of each epoch, and when it ended
    unfinished/         its checkpoints (forecaster/train/checkpoint.py), until it is finished
    plots/              its pictures
    lock                held by the process that trains or uploads it
    MANIFEST.sha256     beside the other files of its bundle (forecaster/forecast/bundle.py)

A run is finished as soon as it has a manifest, which is written last. A run whose process was
killed has the status RUNNING, and nobody holds its lock.
"""

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from filelock import FileLock, Timeout
from pydantic import ConfigDict, Field

from forecaster.base.atomic import storing, write
from forecaster.base.errors import StorageError
from forecaster.base.installation import RUN, is_bundle
from forecaster.record import Document

RUNS = Path("runs")
ABOUT, EPOCHS, LOCK, PLOTS = RUN, "epochs.jsonl", "lock", "plots"

Point = tuple[int, int, dict[str, float]]
"""Figures: when they were taken, in milliseconds, at which step, and their values, any of which may
be no number."""


class RunFacts(Document):
    """A run, but for its figures and its bundle; times are in milliseconds.

    `key` is our id of it, and `run_id` that of the tracker, or ours until the tracker has answered.
    """

    model_config = ConfigDict(allow_inf_nan=True)

    format: Literal[2] = 2
    key: str
    run_id: str
    name: str
    begun: int
    ended: int | None = None
    status: str = "RUNNING"
    config: dict[str, Any] = Field(default_factory=dict)
    cutoffs: int | None = None
    resumable: bool = False
    """Whether it may go on while it is unfinished."""
    data: str = ""
    data_digest: str = ""
    source: str = ""
    """The address or path of the data."""
    tracker: str = ""
    experiment: str = ""
    tags: dict[str, str] = Field(default_factory=dict)
    params: dict[str, str] = Field(default_factory=dict)
    uploaded: bool = False
    """Whether the tracker has all of it, as it ended."""


class RunFolder(AbstractContextManager["RunFolder"]):
    """A run that this process holds: its folder or, without one, in memory alone."""

    def __init__(self, about: RunFacts, folder: Path | None = None, lock: FileLock | None = None):
        self.about, self.folder, self._lock = about, folder, lock
        self.points = [] if folder is None else _points(folder / EPOCHS)

    @property
    def checkpoints(self) -> Path:
        assert self.folder is not None
        return self.folder / "unfinished"

    @property
    def finished(self) -> bool:
        return self.folder is not None and is_bundle(self.folder)

    def note(self, **values: Any) -> None:
        """Replace values of run.json. Raises StorageError."""
        self.about = self.about.model_copy(update=values)
        if self.folder is not None:
            text = json.dumps(self.about.model_dump(), indent=1)
            write(self.folder / ABOUT, f"{text}\n".encode())

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Keep figures. Raises StorageError."""
        point = now(), step, {**values}
        self.points.append(point)
        if self.folder is not None:
            file = self.folder / EPOCHS
            with storing(f"{file} cannot be written"), file.open("a", encoding="utf-8") as out:
                out.write(f"\n{json.dumps(point)}")  # a line that was cut ends here

    def finish(self) -> None:
        """Remove what only an unfinished run needs, and what a killed process half wrote."""
        assert self.folder is not None
        for path in (self.checkpoints, *self.folder.glob(".new.*")):
            shutil.rmtree(path, ignore_errors=True)

    def told(self) -> None:
        """Note that the tracker has all of it; a run that left nothing else is removed."""
        if self.finished or self.about.resumable:
            self.note(uploaded=True)
        else:
            self.remove()

    def remove(self) -> None:
        """Remove the folder; a process that dies meanwhile leaves no run."""
        if self.folder is not None:
            with suppress(OSError):
                (self.folder / ABOUT).unlink()
            self.release()
            shutil.rmtree(self.folder, ignore_errors=True)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def __exit__(self, *exception: object) -> None:
        self.release()


def begin(name: str, key: str = "", **facts: Any) -> RunFolder:
    """Make the folder of a new run, and hold it. Raises StorageError."""
    folder, key = RUNS / name, key or uuid4().hex
    make_folder(folder / "unfinished")
    lock = hold(folder / LOCK)
    assert lock is not None, "its name is new"
    run = RunFolder(RunFacts(key=key, run_id=key, name=name, begun=now(), **facts), folder, lock)
    run.note()
    return run


def take(folder: Path) -> RunFolder | None:
    """Hold the run of a folder; None while another process holds it, and if one has removed it.

    Raises StorageError.
    """
    lock = hold(folder / LOCK)
    if lock is None:
        return None
    if (folder / ABOUT).is_file():
        try:
            return RunFolder(read(folder), folder, lock)
        except StorageError:
            lock.release()
            raise
    lock.release()
    with suppress(OSError):  # a lock makes its folder
        (folder / LOCK).unlink()
        folder.rmdir()
    return None


def is_free(folder: Path) -> bool:
    lock = hold(folder / LOCK)
    if lock is not None:
        lock.release()
    return lock is not None


def read(folder: Path) -> RunFacts:
    file = folder / ABOUT
    try:
        return RunFacts.read(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{file} cannot be read: {error}. Another version of forecaster may have written it."
        ) from error


def known() -> list[Path]:
    """The folders of all runs, the oldest first, and before them those that cannot be read."""

    def begun(folder: Path) -> int:
        with suppress(StorageError):
            return read(folder).begun
        return 0

    folders = [file.parent for file in RUNS.glob(f"*/{ABOUT}")]
    return sorted(folders, key=lambda folder: (begun(folder), folder))


def make_folder(folder: Path) -> None:
    """Create the folder of the runs, or one below it, if it is missing. Raises StorageError."""
    with storing(f"cannot create {folder.resolve()} for the run"):
        folder.mkdir(parents=True, exist_ok=True)


def hold(file: Path) -> FileLock | None:
    """The lock of a file, held; None if another process has it. Raises StorageError."""
    lock = FileLock(file, thread_local=False)  # a thread may release it
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except OSError as error:
        raise StorageError(f"{file} could not be locked: {error}") from error
    return lock


def now() -> int:
    """The time in milliseconds."""
    return int(time.time() * 1000)


def _points(file: Path) -> list[Point]:
    points = []
    with suppress(FileNotFoundError):
        for line in file.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                at, step, values = json.loads(line)
                points.append((at, step, values))
    return points
