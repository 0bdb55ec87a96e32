import errno
import os

import pytest

from forecaster.base import atomic
from forecaster.base.errors import StorageError


def test_nothing_takes_its_place_before_it_is_on_the_disk(tmp_path, monkeypatch):
    (tmp_path / "x.bin").write_bytes(b"before")
    synced = []

    def sync(place):
        if not synced:
            (beside,) = [file for file in tmp_path.iterdir() if file.name != "x.bin"]
            assert beside.read_bytes() == b"after"
            assert (tmp_path / "x.bin").read_bytes() == b"before"
        synced.append(place)

    monkeypatch.setattr(atomic.os, "fsync", sync)
    atomic.write(tmp_path / "x.bin", b"after")
    assert len(synced) == 2, "the file, and the folder that has its name"
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"after"]


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_a_failure_leaves_what_was_there(call, tmp_path, monkeypatch):
    (tmp_path / "x.bin").write_bytes(b"before")

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(tmp_path) if call == "open" else os, call, full)
    with pytest.raises(StorageError, match=r"x\.bin could not be written: .*No space left"):
        atomic.write(tmp_path / "x.bin", b"after")
    monkeypatch.undo()
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"before"]


def test_an_error_of_the_system_says_what_was_stored():
    words = r"^x could not be written: \[Errno 28\] full\.$"
    with pytest.raises(StorageError, match=words), atomic.storing("x could not be written", "."):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(KeyError), atomic.storing("x could not be written"):
        raise KeyError
