"""Files that are there whole or not at all, whatever happens while they are written."""

import os
from contextlib import suppress
from pathlib import Path

from forecaster.errors import StorageError


def write(file: Path, data: bytes) -> None:
    """Write a file beside its place, see it on the disk, and then give it its name.

    Whoever looks meanwhile, and whoever looks after a crash, sees what was there before. Raises
    StorageError, and then leaves nothing behind.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with beside.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
        sync(file.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StorageError(f"{file} could not be written: {error}") from error


def sync(folder: Path) -> None:
    """Have the names in a folder on the disk, too, where the system can."""
    if os.name == "nt":
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
