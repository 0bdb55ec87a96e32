"""Atomic files: complete or absent, whatever happens while they are written; and why not."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forecaster.base.errors import StorageError


@contextmanager
def storing(failure: str, more: str = "") -> Iterator[None]:
    """In this block, an error of the system is a StorageError: the `failure`, why, and `more`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{failure}: {error}{more}") from error


def write(file: Path, data: bytes) -> None:
    """Write a temporary file beside `file`, sync it to the disk, and then rename it.

    Until then, and after a crash, readers see the former state. Raises StorageError, and then
    leaves nothing behind.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with beside.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        _rename(beside, file)
        sync(file.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StorageError(f"{file} could not be written: {error}") from error


def _rename(beside: Path, file: Path) -> None:
    """Rename, on Windows up to a second later: there nobody may read `file` at that moment."""
    for pause in (0.01, 0.09, 0.3, 0.6) if os.name == "nt" else ():
        try:
            beside.replace(file)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    beside.replace(file)


def sync(folder: Path) -> None:
    """Sync the names in a folder to the disk, if the system can."""
    if os.name == "nt":
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
