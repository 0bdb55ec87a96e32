import pandas as pd
import pytest

from forecaster.datasets.reader.files import frame_table, open_table
from forecaster.errors import DataError


def test_a_table_is_read_again_and_again_and_numbers_its_rows(tmp_path, monkeypatch):
    for name, rows in (("a.csv", 5), ("b.csv", 3)):
        pd.DataFrame({"x": range(rows), "y": "w"}).to_csv(tmp_path / name, index=False)
    (tmp_path / "notes.txt").write_text("not a table")
    monkeypatch.setattr("forecaster.datasets.reader.files.BLOCK", 10)
    table = open_table(str(tmp_path))
    for _ in range(2):
        read = [(r.file, r.before, r.cells["x"].to_pylist()) for r in table.rows(["x"])]
        numbers = [(file, before + i, x) for file, before, xs in read for i, x in enumerate(xs)]
        assert numbers == [
            *((0, i, str(i)) for i in range(5)),
            *((1, i, str(i)) for i in range(3)),
        ]
    assert len(read) > 2
    assert table.row(1, 2) == f"{tmp_path / 'b.csv'}, row 3"


def test_a_frame_names_what_it_cannot_give():
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match="here: column 'a' stands there twice"):
        frame_table(frame, "t", "here")
