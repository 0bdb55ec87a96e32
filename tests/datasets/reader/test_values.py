import numpy as np
import pytest

from forecaster.base.errors import StorageError
from forecaster.datasets.reader import values
from forecaster.datasets.reader.values import allocate


def test_many_values_live_in_a_file_that_vanishes_if_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(values, "IN_MEMORY", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    room = allocate((20, 3))
    assert (room.dtype, type(room)) == (np.float32, np.memmap)
    assert [*tmp_path.rglob("*.*")] == [], "nothing is left to be removed"
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(StorageError, match="XDG_CACHE_HOME"):
        allocate((20, 3))
