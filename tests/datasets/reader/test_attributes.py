import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader.attributes import Attributes
from forecaster.datasets.reader.files import frame_table


def read(cells, item):
    table = frame_table(pd.DataFrame({"kind": cells}), "t", "here")
    attributes = Attributes(("kind",), 2, table, lambda rows, column: np.array([]))
    for rows in table.rows(["kind"]):
        attributes.add(rows, np.array(item))
    return attributes.values["kind"].tolist()


def test_words_that_are_all_numbers_become_numbers():
    assert read(["7", "8", "7"], [0, 1, 0]) == [7, 8]
    assert read(["7", "b", "7"], [0, 1, 0]) == ["7", "b"]


def test_an_attribute_that_changes_within_a_series_is_refused():
    with pytest.raises(DataError, match="row 3, column 'kind': b, but earlier rows"):
        read(["a", "b", "b"], [0, 1, 0])
