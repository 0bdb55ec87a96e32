import numpy as np

from forecaster.datasets.reader.survey import Survey


def test_the_first_row_that_is_out_of_order_is_told_series_by_series():
    survey = Survey()
    survey.add(np.array([0, 1, 0]), np.array([5, 1, 6]), str)
    survey.add(np.array([1, 0, 1]), np.array([2, 4, 3]), str)
    assert (survey.rows, survey.unsorted.count, survey.unsorted.first) == (6, 1, "1")
    assert survey.first.tolist() == [4, 1]
    assert survey.last.tolist() == [6, 3]
