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
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from filelock import FileLock
from pydantic import ConfigDict, Field

from forecaster.base import atomic
from forecaster.base.errors import StorageError, UsageError
from forecaster.record import Document

RUNS = Path("runs")
SUFFIX = ".spool"
"""What the names of the folders end with."""
ABOUT, POINTS, FILES, MODEL = "run.json", "points.jsonl", "files", "model"


class Data(Document):
    """The data that a run used; `source` is an address or a path and is not read."""

    name: str
    digest: str
    source: str


class NewVersion(Document):
    """The version of a name that the model is to become.

    `tags` are those of `challenge.tags_of`, and `about` describes a new name in Markdown.
    """

    name: str
    tags: dict[str, str]
    about: str = ""


class Points(Document):
    """Values of metrics at a step; those of a model may be bad."""

    model_config = ConfigDict(allow_inf_nan=True)

    at: int
    step: int
    values: dict[str, float]


class Noted(Document):
    """A run, but for its points and files.

    `key` is our id for it, and `id` MLflow's, or also ours until MLflow has been told. `figures`
    are its final ones, and those of the model, if it has one. Times are in milliseconds.
    """

    key: str
    id: str
    name: str
    uri: str
    experiment: str
    begun: int
    process: str
    parent: str | None = None
    tags: dict[str, str]
    params: dict[str, str] = Field(default_factory=dict)
    data: Data | None = None
    has_model: bool = False
    figures: Points | None = None
    version: NewVersion | None = None
    status: str = ""
    ended: int | None = None


class Notes:
    """The folder of one run, held by this process."""

    def __init__(self, folder: Path, about: Noted, lock: FileLock) -> None:
        self.folder, self.about = folder, about
        self._lock, self._writing = lock, Lock()
        try:
            self._points = os.open(folder / POINTS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            whole = (folder / POINTS).read_bytes().rfind(b"\n") + 1
            os.ftruncate(self._points, whole)  # a process may have died while it wrote
        except OSError as error:
            raise StorageError(f"{folder / POINTS} cannot be written: {error}") from error

    def note(self, **values: Any) -> None:
        """Replace values of the document, which is written anew. Raises StorageError.

        What UTF-8 cannot hold, as names of files may, is replaced.
        """
        with self._writing:
            about = self.about.model_copy(update=values).model_dump()
            written = json.dumps(about, ensure_ascii=False, indent=1).encode(errors="replace")
            atomic.write(self.folder / ABOUT, written)
            self.about = Noted.read(json.loads(written))

    def add(self, points: Points) -> None:
        """Add points, which are on disk completely or not at all. Raises StorageError."""
        line = json.dumps(points.model_dump()).encode() + b"\n"
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

    def points(self, start: int) -> tuple[list[Points], int]:
        """What was added from a byte on, and the byte where it ends."""
        with (self.folder / POINTS).open("rb") as file:
            file.seek(start)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        return [Points.read(json.loads(line)) for line in whole.splitlines()], start + len(whole)

    def write(self, name: str, content: bytes) -> None:
        """Keep a file, or replace it. Raises StorageError."""
        file = self.folder / FILES / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{file} could not be written: {error}") from error
        atomic.write(file, content)

    def close(self) -> None:
        """Note the end of a run whose process died before it could."""
        if not self.about.status:
            last = max((self.folder / each).stat().st_mtime for each in (ABOUT, POINTS))
            self.note(status="KILLED", ended=int(last * 1000))

    def remove(self) -> None:
        """Remove the folder, while it is held; a process that dies meanwhile leaves no run."""
        with suppress(OSError):
            (self.folder / ABOUT).unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

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
        lock = _lock(folder)
    except OSError as error:  # such as a lock that another process has
        raise StorageError(f"cannot create {folder.resolve()} for the tracker: {error}") from error
    begun = Notes(folder, about, lock)
    begun.note()  # now others find it
    return begun


def take_up(id: str) -> Notes | None:
    """Take over what is left of the run with that id, which goes on; None if nothing is left.

    Its model and final figures are made again when it ends.
    """
    for folder, about in _all():
        if about and about.id == id and (own := take(folder)):
            ended = {"status": "", "ended": None}
            own.note(process=process(), has_model=False, figures=None, version=None, **ended)
            return own
    return None


def find(names: list[str]) -> list[Path]:
    """The folders of the runs with these names, which their bundles have, or of all, the oldest
    first. Raises UsageError for a name with nothing left, unless it is a folder in `runs`."""
    found = sorted(_all(), key=lambda each: each[1].begun if each[1] else 0)
    left = {folder.stem: folder for folder, _ in found}
    wanted = [Path(name).name.removesuffix(SUFFIX) for name in names] or [*left]
    for name in wanted:
        if name not in left and not (RUNS / name).is_dir():
            known = ", ".join(sorted(left)) or "nothing"
            raise UsageError(f"no run '{name}' in {RUNS}/; left to upload: {known}")
    return [folder for name, folder in left.items() if name in wanted]


def take(folder: Path) -> Notes | None:
    """What a folder holds; None while another process holds it, and if one has removed it.

    Raises StorageError.
    """
    try:
        lock = _lock(folder)
    except OSError:
        return None
    try:
        if (folder / ABOUT).exists():
            return Notes(folder, _read(folder), lock)  # only now does nobody change it
    except StorageError:
        lock.release()
        raise
    shutil.rmtree(folder, ignore_errors=True)  # a lock makes its folder
    lock.release()
    return None


def waiting() -> int:
    """How many runs in `runs` have something left that their process can no longer tell."""
    return sum(about is not None and is_gone(about.process) for _, about in _all())


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


def _all() -> list[tuple[Path, Noted | None]]:
    """The folders of all runs, and what they note, if that can be read."""
    found: list[tuple[Path, Noted | None]] = []
    for file in sorted(RUNS.glob(f"*{SUFFIX}/{ABOUT}")):
        try:
            found.append((file.parent, _read(file.parent)))
        except StorageError:
            found.append((file.parent, None))
    return found


def _read(folder: Path) -> Noted:
    file = folder / ABOUT
    try:
        return Noted.read(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise StorageError(f"{file} cannot be read: {error}") from error


def _lock(folder: Path) -> FileLock:
    lock = FileLock(folder / "lock", timeout=0, thread_local=False)  # a thread releases it
    lock.acquire()
    return lock
