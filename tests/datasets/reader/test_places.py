import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader import read_frame
from forecaster.datasets.reader.places import survey
from forecaster.datasets.reading import Reading


def test_rows_are_out_of_order_series_by_series():
    codes = [np.array([0, 1, 0]), np.array([1, 0, 1])]
    stamps = [np.array([5, 1, 6]), np.array([2, 4, 3])]
    first, last, unsorted = survey(codes, stamps, 2)
    assert (first.tolist(), last.tolist(), unsorted.tolist()) == ([4, 1], [6, 3], [4])


def read(cells, item):
    frame = pd.DataFrame({"t": np.arange(2020, 2020 + len(cells)), "v": 1, "id": item})
    reading = Reading(
        time="t", id=("id",), targets=("v",), static=("kind",), freq="YS", policy="sort"
    )
    return read_frame(frame.assign(kind=cells), reading, where="it").series.static["kind"].tolist()


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
