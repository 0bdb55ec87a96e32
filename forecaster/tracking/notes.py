"""What MLflow is to have of a run: a folder on disk, until MLflow has it.

    runs/NAME.spool/
        run.json        the run in one document (`Noted`)
        points.jsonl    values of its metrics, one `Points` per line
        files/          its artefacts, as they will lie in MLflow
        model/          its model, as MLflow will keep it
        lock            held by the process that publishes

Nothing here says what MLflow has already: `publish` asks MLflow. This module does not import it.
"""

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import ConfigDict, Field

from forecaster import files
from forecaster.errors import StorageError, UsageError
from forecaster.record import Document

RUNS = Path("runs")
SUFFIX, GONE = ".spool", ".gone"
"""What the names of the folders end with, and of those that are being removed."""
ABOUT, POINTS, FILES, MODEL = "run.json", "points.jsonl", "files", "model"
_ANY = ConfigDict(allow_inf_nan=True)
"""Documents with figures of a model, which may be bad."""
FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
GLANCE = 1.0
"""Seconds, far more than `waiting` of another process holds a folder to see whether it can."""


class Data(Document):
    """The data that a run used; `source` is an address or a path and is not read."""

    name: str
    digest: str
    source: str


class Model(Document):
    """The model in the folder MODEL."""

    name: str
    tags: dict[str, str]


class Version(Document):
    """The version of a name that the model is to become.

    `errors` are its `contest.stretches`, and `task` makes them comparable. `about` describes a new
    name, and `about_version` the version, both in Markdown.
    """

    model_config = _ANY

    name: str
    errors: tuple[float, ...]
    task: dict[str, str]
    about: str = ""
    about_version: str = ""


class Points(Document):
    """Values of metrics at a step, or `final` ones, which are also those of the model."""

    model_config = _ANY

    at: int
    step: int
    values: dict[str, float]
    final: bool = False


class Noted(Document):
    """A run, but for its points and files.

    `key` is our id for it, and `id` MLflow's, or also ours until MLflow has been told. `again`
    means that an earlier process has told MLflow of it. Times are in milliseconds.
    """

    model_config = _ANY

    format: Literal[2] = 2
    key: str
    id: str
    name: str
    uri: str
    experiment: str
    begun: int
    process: str
    again: bool = False
    parent: str | None = None
    tags: dict[str, str]
    params: dict[str, str] = Field(default_factory=dict)
    data: tuple[Data, ...] = ()
    model: Model | None = None
    version: Version | None = None
    status: str = ""
    ended: int | None = None


class Notes:
    """The folder of one run, held by this process."""

    def __init__(self, folder: Path, about: Noted, lock: FileLock) -> None:
        self.folder, self.about = folder, about
        self._lock, self._writing = lock, Lock()
        try:
            self._points = os.open(folder / POINTS, FLAGS, 0o644)
            whole = (folder / POINTS).read_bytes().rfind(b"\n") + 1
            os.ftruncate(self._points, whole)  # a process may have died while it wrote
        except OSError as error:
            raise StorageError(f"{folder / POINTS} cannot be written: {error}") from error

    def note(self, **values: Any) -> None:
        """Replace values of the document, which is written anew. Raises StorageError."""
        with self._writing:
            about = self.about.model_copy(update=values)
            files.write(self.folder / ABOUT, _line(about, indent=1))
            self.about = about

    def add(self, points: Points) -> None:
        """Add points, which are on disk completely or not at all. Raises StorageError."""
        line = _line(points)
        with self._writing:
            before = os.fstat(self._points).st_size
            try:
                if os.write(self._points, line) < len(line):
                    raise OSError("no space for the whole line")
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._points, before)
                raise StorageError(
                    f"{self.folder / POINTS} cannot be written: {error}. Free some space there."
                ) from error

    def drop_final(self) -> None:
        """Drop the final points. Raises StorageError."""
        kept = b"".join(_line(points) for points, _ in self.points(0) if not points.final)
        files.write(self.folder / POINTS, kept)
        os.close(self._points)
        self._points = os.open(self.folder / POINTS, FLAGS)

    def points(self, start: int) -> Iterator[tuple[Points, int]]:
        """What was added from a byte on, each with the byte where it ends."""
        with (self.folder / POINTS).open("rb") as lines:
            lines.seek(start)
            for line in lines:
                if line.endswith(b"\n"):
                    start += len(line)
                    yield Points.read(json.loads(line)), start

    def write(self, name: str, content: bytes, folder: str = "") -> None:
        """Keep a file, or replace it. Raises StorageError."""
        file = self.folder / FILES / folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{file} could not be written: {error}") from error
        files.write(file, content)

    def close_for(self, status: str) -> None:
        """Note the end of a run whose process died before it could."""
        if not self.about.status:
            last = max((self.folder / each).stat().st_mtime for each in (ABOUT, POINTS))
            self.note(status=status, ended=int(last * 1000))

    def remove(self) -> None:
        """Remove the folder, while it is held; a process that dies meanwhile leaves no run."""
        gone = self.folder.with_suffix(GONE)
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(OSError):
            self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def release(self) -> None:
        os.close(self._points)
        self._lock.release()


def begin(about: Noted) -> Notes:
    """Create the folder of a run. Raises StorageError."""
    letters = about.key[:8]
    name = about.name if about.name.endswith(letters) else f"{about.name}-{letters}"
    folder = RUNS / f"{name}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder, GLANCE)
    except Timeout:
        raise StorageError(f"another process is using {folder.resolve()}") from None
    except OSError as error:
        raise StorageError(f"cannot create {folder.resolve()} for the tracker: {error}") from error
    begun = Notes(folder, about, lock)
    begun.note()  # now others find it
    return begun


def take_up(id: str) -> Notes | None:
    """Take over what is left of the run with that id, which goes on; None if nothing is left.

    Its model and final figures are made again when it ends.
    """
    for folder in _folders():
        about = _about(folder)
        if isinstance(about, Noted) and about.id == id and (begun := take(folder, GLANCE)):
            begun.note(
                again=True, process=process(), status="", ended=None, model=None, version=None
            )
            begun.drop_final()
            return begun
    return None


def find(names: list[str]) -> list[Path]:
    """The folders of the runs with these names or ids, or of all.

    A name is that of the run, which its bundle has, or of the folder itself. Raises UsageError for
    a name with nothing left, unless it is a folder in `runs`. Runs without a parent come first.
    """
    for gone in RUNS.glob(f"*{GONE}"):
        shutil.rmtree(gone, ignore_errors=True)
    children = set()
    called = {folder: {folder.name, folder.stem} for folder in _folders()}
    for folder, own in called.items():
        about = _about(folder)
        if isinstance(about, Noted):
            own |= {about.id, about.name}
            if about.parent:
                children.add(folder)
    wanted = {Path(name).name for name in names}
    for name in wanted:
        if not any(name in own for own in called.values()) and not (RUNS / name).is_dir():
            known = ", ".join(folder.stem for folder in called) or "nothing"
            raise UsageError(f"no run '{name}' in {RUNS}/; left to upload: {known}")
    found = [folder for folder, own in called.items() if not wanted or wanted & own]
    return sorted(found, key=lambda folder: folder in children)


def take(folder: Path, patience: float = 0.0) -> Notes | None:
    """What a folder holds; None while another process holds it, and if one has removed it.

    Raises StorageError.
    """
    lock = _hold(folder, patience)
    if lock is None:
        return None
    about = _about(folder)  # only now does nobody change it
    try:
        if isinstance(about, StorageError):
            raise about
        return Notes(folder, about, lock)
    except StorageError:
        lock.release()
        raise


def files_in(folder: Path) -> Iterator[Path]:
    """The files in a folder and those below, but for those that are being written."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            yield file


def waiting() -> int:
    """How many runs in `runs` have something left that no process is publishing."""
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


def _folders() -> list[Path]:
    return sorted(file.parent for file in RUNS.glob(f"*{SUFFIX}/{ABOUT}"))


def _about(folder: Path) -> Noted | StorageError:
    """What is known about a run, or why that cannot be read."""
    file = folder / ABOUT
    try:
        document = json.loads(file.read_text())
        if document["format"] != Noted.model_fields["format"].default:
            return StorageError(f"{folder} was written by another version of forecaster")
        return Noted.read(document)
    except (OSError, ValueError, TypeError, KeyError) as error:
        return StorageError(f"{file} cannot be read: {error}")


def _hold(folder: Path, patience: float = 0.0) -> FileLock | None:
    """The lock of a folder; None if another process holds it, or has just removed it."""
    try:
        lock = _lock(folder, patience)
    except OSError:
        return None
    if (folder / ABOUT).exists():
        return lock
    shutil.rmtree(folder, ignore_errors=True)  # a lock makes its folder
    lock.release()
    return None


def _line(document: Document, indent: int | None = None) -> bytes:
    """A document as JSON in ASCII: names of files may hold what UTF-8 cannot."""
    return json.dumps(document.model_dump(), indent=indent).encode() + b"\n"


def _lock(folder: Path, patience: float) -> FileLock:
    lock = FileLock(folder / "lock", timeout=patience, thread_local=False)  # a thread releases it
    lock.acquire()
    return lock
