from dataclasses import replace

import pytest

from forecaster.config import load
from forecaster.judge import find_intervals
from forecaster.problem import find_data, make_problem
from forecaster.train import fit
from tests import small


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A working directory of its own, where the data set `small` is known."""
    with small.at_home(tmp_path_factory.mktemp("home")) as folder:
        yield folder


def resolve(*sets, **flags):
    return load("small.yaml", sets, flags, {})


def test_one_window_backs_the_median_alone():
    problem = make_problem(*find_data(resolve(horizon=30), print))
    assert problem.uncalibrated == ""
    found, words = find_intervals(problem, problem.build_model().eval(), "cpu")
    assert found.levels == (0.5,)
    assert "the 1 validation windows" in words
    problem = make_problem(*find_data(resolve("intervals.levels=[0.1, 0.9]", horizon=30), print))
    found, words = find_intervals(problem, problem.build_model().eval(), "cpu")
    assert (found, words) == (None, "none: 1 windows are too few to calibrate any level")


def test_the_test_rows_leave_the_calibration_as_it_is():
    """Every byte of it, and of the weights before it."""

    def calibrated(noise):
        problem = make_problem(*find_data(resolve(), print))
        values = problem.series.values.copy()
        values[small.VALIDATION :] += noise
        problem = replace(problem, series=replace(problem.series, values=values))
        model = problem.build_model()
        fit(
            model, problem.training("cpu"), problem.stopping("cpu"), problem.config.train,
            device="cpu", seed=0,
        )  # fmt: skip
        found, _ = find_intervals(problem, model, "cpu")
        return found.offsets.tobytes(), found.scale.tobytes()

    assert calibrated(0.0) == calibrated(1000.0)
