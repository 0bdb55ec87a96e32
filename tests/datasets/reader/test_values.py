import numpy as np
import pytest

from forecaster.base.errors import StorageError
from forecaster.datasets.reader import values
from forecaster.datasets.reader.values import Values, allocate


def test_many_values_live_in_a_file_that_vanishes(tmp_path, monkeypatch):
    monkeypatch.setattr(values, "IN_MEMORY", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    room = allocate((20, 3))
    assert room.dtype == np.float32
    assert isinstance(room, np.memmap)
    assert [*tmp_path.rglob("*.*")] == [], "nothing is left to be removed"


def test_no_room_for_values_is_an_error_of_storage(tmp_path, monkeypatch):
    monkeypatch.setattr(values, "IN_MEMORY", 100)
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(StorageError, match="XDG_CACHE_HOME"):
        allocate((20, 3))


@pytest.mark.parametrize(("average", "first"), [(False, 1.0), (True, 2.0)])
def test_rows_that_share_a_place(average, first):
    rows = Values(3, 1, average)
    again, differing = rows.put(np.array([0, 0, 2]), np.array([[1.0], [3.0], [np.nan]]))
    assert (again.tolist(), differing.tolist()) == ([1], [1])
    rows.finish()
    assert rows.values[0, 0] == first
    assert np.isnan(rows.values[1:]).all()
    assert rows.seen.tolist() == [True, False, True]
