import numpy as np

from forecaster.evaluate.examples import picked


def test_the_best_the_median_and_the_worst_of_what_was_observed() -> None:
    errors = np.array([2.0, np.nan, 5.0, 1.0, 3.0, 4.0])
    assert picked(errors) == {"best": 3, "median": 4, "worst": 2}
