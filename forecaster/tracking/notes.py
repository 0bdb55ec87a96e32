"""What MLflow is to have of a run: in memory while it lasts, and on disk what has to wait.

    runs/NAME/mlflow/
        files/          its artefacts, as they will lie in MLflow
        model/          its model, as MLflow will keep it
        run.json        the rest in one document (`Noted`), once it has ended without MLflow
        lock            held by the process that publishes

The folder is removed when MLflow has everything. Nothing here says what MLflow has already:
`publish` asks MLflow. This module does not import it.
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
OWN = "mlflow"
"""The name of the folder inside that of the run."""
ABOUT, FILES, MODEL = "run.json", "files", "model"


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
    """A run, but for its files.

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
    points: list[Points] = Field(default_factory=list)
    figures: Points | None = None
    version: NewVersion | None = None
    status: str = ""
    ended: int | None = None


class Notes:
    """What MLflow is to have of one run, which this process gathers."""

    def __init__(self, folder: Path, about: Noted, lock: FileLock | None = None) -> None:
        self.folder, self.points = folder, [*about.points]
        self.about = about.model_copy(update={"points": []})
        self._lock, self._writing = lock or _lock(folder), Lock()
        self.note()

    def note(self, **values: Any) -> None:
        """Replace values of the document. What UTF-8 cannot hold, as names of files may, is
        replaced."""
        with self._writing:
            self.about = Noted.read(json.loads(_written(self.about.model_copy(update=values))))

    def write(self, name: str, content: bytes) -> None:
        """Keep a file, or replace it. Raises StorageError."""
        file = self.folder / FILES / name
        make(file.parent)
        atomic.write(file, content)

    def save(self) -> None:
        """Keep it for another process, and hold it until it is released. Raises StorageError."""
        make(self.folder)
        self._lock.acquire()
        about = self.about.model_copy(update={"points": self.points})
        atomic.write(self.folder / ABOUT, _written(about))  # now others find it

    def remove(self) -> None:
        """Remove what is kept; a process that dies meanwhile leaves no run."""
        with suppress(OSError):
            (self.folder / ABOUT).unlink()
        clear(self.folder)

    def release(self) -> None:
        self._lock.release()


def begin(about: Noted, folder: Path | None = None) -> Notes:
    """The notes of a run that begins, with its folder. Raises StorageError."""
    own = Notes((folder or RUNS / f"{about.name}-{about.key[:8]}") / OWN, about)
    make(own.folder)
    return own


def make(folder: Path) -> None:
    """Create a folder. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create {folder.resolve()} for the tracker: {error}") from error


def find(names: list[str]) -> list[Path]:
    """The folders of the runs with these names, which their bundles have, or of all, the oldest
    first. Raises UsageError for a name with nothing left, unless it is a folder in `runs`."""
    left = {file.parent.parent.name: file.parent for file in _all()}
    wanted = [Path(name).name for name in names] or [*left]
    for name in wanted:
        if name not in left and not (RUNS / name).is_dir():
            known = ", ".join(sorted(left)) or "nothing"
            raise UsageError(f"no run '{name}' in {RUNS}/; left to upload: {known}")
    return [folder for name, folder in left.items() if name in wanted]


def take(folder: Path) -> Notes | None:
    """What a folder holds, to be published by this process; None while another process holds it,
    and if one has removed it.

    Raises StorageError.
    """
    lock = _lock(folder)
    try:
        lock.acquire()
    except OSError:
        return None
    try:
        if (folder / ABOUT).exists():
            return Notes(folder, _read(folder), lock)  # only now does nobody change it
    except StorageError:
        lock.release()
        raise
    clear(folder)  # a lock makes its folder
    lock.release()
    return None


def forget(id: str) -> None:
    """Remove what is left of the run with that id: it goes on, and tells all of it again."""
    for file in _all():
        with suppress(StorageError):
            if _read(file.parent).id == id and (own := take(file.parent)):
                own.remove()
                own.release()


def waiting() -> int:
    """How many runs in `runs` have something left."""
    return len(_all())


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


def _all() -> list[Path]:
    """The documents of all runs that have something left, the oldest first."""

    def begun(file: Path) -> int:
        with suppress(StorageError):
            return _read(file.parent).begun
        return 0

    return sorted(RUNS.glob(f"*/{OWN}/{ABOUT}"), key=lambda file: (begun(file), file))


def _written(about: Noted) -> bytes:
    return json.dumps(about.model_dump(), ensure_ascii=False, indent=1).encode(errors="replace")


def _read(folder: Path) -> Noted:
    file = folder / ABOUT
    try:
        return Noted.read(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise StorageError(f"{file} cannot be read: {error}") from error


def clear(folder: Path) -> None:
    """Remove a folder, and that of its run if it has nothing else; what `save` kept stays."""
    if (folder / ABOUT).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _lock(folder: Path) -> FileLock:
    return FileLock(folder / "lock", timeout=0, thread_local=False)  # a thread releases it
