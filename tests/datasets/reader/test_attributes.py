import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader.attributes import Attributes
from forecaster.datasets.reader.files import frame_table


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
def test_words_that_are_all_numbers_become_numbers(cells, values):
    assert read(cells, [0, 1, 0]) == values


def test_an_attribute_that_changes_within_a_series_is_refused():
    with pytest.raises(DataError, match="row 3, column 'kind': b, but earlier rows"):
        read(["a", "b", "b"], [0, 1, 0])
