import re

import pyarrow as pa
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.known import MOST_WORDS
from forecaster.datasets.reader.cells import Written, learn, to_numbers, words_of


def complain(row, what):
    return DataError(f"row {row + 1}: {what}")


POINT, COMMA, GAPS = Written(decimal="."), Written(decimal=","), Written(missing=("-9999", "gap"))
OPEN = Written(pointed=False)
"""The numbers of a text that is not separated by commas and does not show its decimal sign."""


@pytest.mark.parametrize(
    ("cells", "how", "expected"),
    [
        (["1", " 2.5 ", "-.5", "+3", "4.", "1e3"], Written(), [1, 2.5, -0.5, 3, 4, 1000]),
        (["true", "False", None], Written(), [1, 0, None]),
        (pa.array([True, None]), Written(), [1, None]),
        (["yes", "No", "", "TRUE"], Written(), [1, 0, None, 1]),
        (pa.array([1, -9999, None], pa.int16()), GAPS, [1, None, None]),
        (pa.array(["1", "NA", "1"]).dictionary_encode(), Written(), [1, None, 1]),
        (pa.array([1.5, None, float("nan")], pa.float32()), Written(), [1.5, None, None]),
        (pa.array([1.25, None]).cast(pa.decimal128(10, 4)), Written(), [1.25, None]),
        (pa.array([None], pa.null()), Written(), [None]),
        (["1,5", "-2,25", ",5", "3", "1e2"], COMMA, [1.5, -2.25, 0.5, 3, 100]),
        (["1 234,5", "1\u00a0234\u202f567", "1'234,5"], COMMA, [1234.5, 1234567, 1234.5]),
        (["1'234.5", "1’234"], POINT, [1234.5, 1234]),
        (["1,500"], COMMA, [1.5]),
        (["1,5", "1,500", "7"], OPEN, [1.5, 1.5, 7]),
        (["1.5", "1.500", "7"], OPEN, [1.5, 1.5, 7]),
        (["1.500", "7", "12"], OPEN, [1500, 7, 12]),
        (["1,500", "7", "12"], Written(), [1500, 7, 12]),
        (["1.500", "7", "12"], Written(), [1.5, 7, 12]),
        (["1,50", "- 2", "\u22123"], OPEN, [1.5, -2, -3]),
        (["-", "--", ".", "..", "?", "n/a", "NULL", "#N/A", "None", "1"], POINT, [None] * 9 + [1]),
        (["", " ", "nan", "NaN", "NA", "null", " 7 "], Written(), [None] * 6 + [7]),
        (["-9999", "-9999.0", "gap", "1"], GAPS, [None] * 3 + [1]),
        (["-9999,0", "1,5"], Written(",", missing=("-9999",)), [None, 1.5]),
        (["-99,9", "-99,90", "1,5"], Written(",", missing=("-99,9",)), [None, None, 1.5]),
    ],
)  # fmt: skip
def test_cells_as_numbers(cells, how, expected):
    written = [pa.array(cells, kind) for kind in (pa.string(), pa.large_string())]
    for array in written if isinstance(cells, list) else [cells]:
        numbers = to_numbers(array, complain, how)
        assert [None if n != n else n for n in numbers.tolist()] == expected


@pytest.mark.parametrize(
    ("cells", "how", "message"),
    [
        (["1", "1.5", "x"], Written(), "row 3: expected a number"),
        (["", "0x1"], Written(), "row 2: expected a number"),
        (["true", "1"], Written(), "row 1: expected a number"),
        ([1.0, float("-inf")], Written(), "row 2: expected a finite number"),
        ([[1]], Written(), "row 1: expected a number"),
        (["x" * 999], Written(), "row 1: expected a number"),
        (["2", "12,345"], OPEN, "row 2: '12,345' may be 12345 or 12.345; name the decimal"),
        (["1,230", "1000"], Written(), "row 1: '1,230' may be 1230 or 1.230; name the decimal"),
        (["1,5", "1.5"], OPEN, "row 2: '1.5', where '1,5' has the other decimal sign"),
        (["1.5", "1,5"], POINT, "row 2: expected a number, got '1,5'; the others have a point"),
        (["1,5", "1.5"], COMMA, "row 2: expected a number, got '1.5'; the others have a comma"),
        (["1,23,456"], POINT, "row 1: expected a number, got '1,23,456'"),
        (["0,123"], POINT, "row 1: expected a number, got '0,123'"),
        (["12 34"], COMMA, "row 1: expected a number, got '12 34'"),
        (["5", "5 %"], POINT, "row 2: expected a number, got '5 %'"),
    ],
)  # fmt: skip
def test_cells_that_are_no_numbers_or_would_be_a_guess(cells, how, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        to_numbers(pa.array(cells), complain, how)
    assert len(str(caught.value)) < 200


def test_what_a_column_tells():
    assert learn(pa.array(["1.234,5", "-", "7", "?"]), OPEN) == ("", "1.234,5", "")
    assert not any(learn(pa.array(["a", "b", "1.5"]), OPEN))
    assert learn(pa.array(["1", "2.5"]), Written()) == ("2.5", "", "")


def test_too_many_words_are_no_categories():
    words = pa.array([" w0 ", None, "gone", *(f"w{i}" for i in range(MOST_WORDS + 1))])
    parts = [words[:9], words[9:-1]]
    assert words_of("sky", parts, ("gone",), "here") == (
        tuple(sorted(f"w{i}" for i in range(MOST_WORDS))), 2,
    )  # fmt: skip
    with pytest.raises(DataError, match="here: column 'sky' has more than 50 different words"):
        words_of("sky", [words], (), "here")
