import re

import pyarrow as pa
import pytest

from forecaster.datasets.reader.cells import to_numbers
from forecaster.errors import DataError


def complain(row, what):
    return DataError(f"row {row + 1}: {what}")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pa.array(["1", " 2.5 ", "-.5", "+3", "4.", "1e3"]), [1, 2.5, -0.5, 3, 4, 1000]),
        (pa.array(["true", "False", None]), [1, 0, None]),
        (pa.array([True, None]), [1, None]),
        (pa.array(["yes", "No", "", "TRUE"]), [1, 0, None, 1]),
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
