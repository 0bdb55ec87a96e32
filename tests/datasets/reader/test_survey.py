import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader.files import frame_table
from forecaster.datasets.reader.survey import Attributes, Survey


def test_the_first_row_that_is_out_of_order_is_told_series_by_series():
    survey = Survey()
    survey.add(np.array([0, 1, 0]), np.array([5, 1, 6]), str)
    survey.add(np.array([1, 0, 1]), np.array([2, 4, 3]), str)
    assert (survey.rows, survey.unsorted.count, survey.unsorted.first) == (6, 1, "1")
    assert survey.first.tolist() == [4, 1]
    assert survey.last.tolist() == [6, 3]


def read(cells, item):
    table = frame_table(pd.DataFrame({"kind": cells}), "t", "here")
    attributes = Attributes(("kind",), 2, table)
    for rows in table.rows(["kind"]):
        attributes.add(rows, np.array(item))
    return attributes.values["kind"].tolist()


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["7", "8", "7"], [7, 8]),
        (["7", "b", "7"], ["7", "b"]),
        ([7, 8, 7], [7, 8]),
        ([7.5, 1e-9, 7.5], [7.5, 1e-9]),
        ([True, False, True], [1, 0]),
    ],
)
def test_words_that_are_all_numbers_become_numbers_and_never_change(cells, values):
    assert read(cells, [0, 1, 0]) == values
    with pytest.raises(DataError, match=r"row 3, column 'kind': .*, but earlier rows"):
        read([*cells[:2], cells[1]], [0, 1, 0])
