import re

import pandas as pd
import pyarrow as pa
import pytest

from forecaster.datasets.table import find_clock, frame_table, open_table, to_numbers
from forecaster.errors import DataError


def complain(row, what):
    return DataError(f"row {row + 1}: {what}")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pa.array(["1", " 2.5 ", "-.5", "+3", "4.", "1e3"]), [1, 2.5, -0.5, 3, 4, 1000]),
        (pa.array(["true", "False", None]), [1, 0, None]),
        (pa.array([True, None]), [1, None]),
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array(["1", "NA", "1"]).dictionary_encode(), [1, None, 1]),
        (pa.array([1.5, None, float("nan")], pa.float32()), [1.5, None, None]),
        (pa.array(["1.25", None]).cast(pa.float64()).cast(pa.decimal128(10, 4)), [1.25, None]),
        (pa.array(["", "null"], pa.large_string()), [None, None]),
        (pa.array([None, None], pa.null()), [None, None]),
    ],
)
def test_cells_as_numbers(cells, expected):
    numbers = to_numbers(cells, complain)
    assert [None if number != number else number for number in numbers.tolist()] == expected


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (pa.array(["1", "1,5"]), "row 2: expected a number, got '1,5'"),
        (pa.array(["", "0x1"]), "row 2: expected a number, got '0x1'"),
        (pa.array(["true", "1"]), "row 1: expected a number, got 'true'"),
        (pa.array([1.0, float("-inf")]), "row 2: expected a finite number, got -inf"),
        (pa.array([[1]]), "row 1: expected a number"),
        (pa.array(["x" * 999]), "row 1: expected a number, got 'xxxxxx"),
    ],
)
def test_cells_that_are_no_numbers(cells, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        to_numbers(cells, complain)
    assert len(str(caught.value)) < 200


def test_a_table_is_read_again_and_again_and_numbers_its_rows(tmp_path, monkeypatch):
    for name, rows in (("a.csv", 5), ("b.csv", 3)):
        pd.DataFrame({"x": range(rows), "y": "w"}).to_csv(tmp_path / name, index=False)
    (tmp_path / "notes.txt").write_text("not a table")
    monkeypatch.setattr("forecaster.datasets.table.BLOCK", 10)
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


def test_the_kinds_of_columns():
    frame = pd.DataFrame(
        {
            "number": ["1", "2", "x"],
            "real": [1.5, None, 2],
            "flag": ["true", "FALSE", None],
            "yes": [True, False, True],
            "stamp": ["2020-01-01", "2020-1-2", "soon"],
            "day": ["13.1.2020", "14.1.2020", None],
            "time": pd.date_range("2020", periods=3),
            "text": ["a", "b", "1"],
            "empty": ["", "NA", None],
            "other": [[1], [2], [3]],
        }
    )
    kinds = frame_table(frame, "time", "here").kinds
    assert [*kinds.values()] == [
        "number", "number", "flag", "flag", "stamp", "stamp", "stamp", "text", "empty", "other",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "column",
    [
        pd.date_range("2020", periods=3, freq="h"),
        pd.date_range("2020", periods=3, freq="h").as_unit("ns"),
        pd.date_range("2020", periods=3, freq="h").astype(str),
        pd.date_range("2020", periods=3, freq="h").astype(object),
        ["2020-1-1", "2020/01/01 01:00", "2020-01-01T02"],
        ["01.01.2020 0:00:00", "01.01.2020 1:00:00", "13.01.2020 2:00:00"],
        ["1/1/2020", "1/1/2020 01:00", "1/13/2020 02:00"],
        pd.date_range("2020", periods=3, freq="h", tz="UTC").tz_convert("Asia/Tokyo"),
        ["2020-01-01T00:00Z", "2020-01-01T00:00-01:00", "2020-01-01T00:00-02:00"],
    ],
)
def test_stamps_of_many_kinds(column):
    table = frame_table(pd.DataFrame({"t": column}), "t", "here")
    clock = find_clock(table, "t")
    (rows,) = table.rows(["t"])
    hours = clock.read(rows, table) // 3_600_000_000
    assert (hours - hours[0]).tolist()[:2] == [0, 1]
    assert str(pd.Timestamp(int(hours[0]), unit="h")) == "2020-01-01 00:00:00"
    zoned = getattr(column, "tz", None) is not None or str(column[0]).endswith("Z")
    assert clock.zoned == zoned


def test_a_frame_names_what_it_cannot_give():
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match="here: column 'a' stands there twice"):
        frame_table(frame, "t", "here")
