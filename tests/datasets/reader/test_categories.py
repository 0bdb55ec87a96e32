import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.known import MOST_WORDS
from forecaster.datasets.reader.categories import Categories, indicators
from forecaster.datasets.reader.files import frame_table


def complain(row, what):
    return DataError(f"row {row + 1}: {what}")


def found(cells):
    table = frame_table(pd.DataFrame({"sky": cells}), "t", "here")
    categories = Categories(("sky",), ("gone",), "here")
    for rows in table.rows(["sky"]):
        categories.add(rows)
    return categories.words["sky"]


def test_the_words_of_a_column_in_order_but_for_what_is_missing():
    assert found(["rain", " clear ", None, "gone", "rain"]) == ("clear", "rain")


def test_too_many_words_are_no_categories():
    assert len(found([f"w{i}" for i in range(MOST_WORDS)])) == MOST_WORDS
    with pytest.raises(DataError, match="here: column 'sky' has more than 50 different words"):
        found([f"w{i}" for i in range(MOST_WORDS + 1)])


def test_a_word_is_a_column_of_0_and_1_and_no_word_is_missing():
    table = indicators(pa.array(["rain", None, "clear"]), ("clear", "rain"), (), complain)
    expected = [[0, 1], [np.nan, np.nan], [1, 0]]
    np.testing.assert_array_equal(table, expected)


def test_an_unseen_word_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match="row 2: 'snow' is none of the known words: clear, rain"):
        indicators(pa.array(["rain", "snow"]), ("clear", "rain"), (), complain)
