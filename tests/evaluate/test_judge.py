import numpy as np
import pytest

from forecaster.evaluate import score
from forecaster.evaluate.judge import find_intervals, forecast_with, validate
from forecaster.parts import Blend, Network
from tests import small

pytestmark = pytest.mark.usefixtures("home")


def test_one_window_backs_the_median_alone():
    problem = small.problem(horizon=30)
    assert problem.uncalibrated == ""
    alone = Blend.alone(Network(problem.build_model().eval()))
    found, words = find_intervals(problem, alone, "cpu")
    assert found.levels == (0.5,)
    assert "the 1 validation windows" in words
    problem = small.problem("intervals.levels=[0.1, 0.9]", horizon=30)
    found, words = find_intervals(problem, alone, "cpu")
    assert (found, words) == (None, "none: of windows that calibrate, 1 of validation is too few")


@pytest.mark.parametrize("loss", ["mse", "pinball"])
def test_one_pass_over_validation_scores_and_calibrates(loss):
    problem = small.problem(f"train.loss={loss}")
    model = problem.build_model().eval()
    windows, asked = problem.validation("cpu"), []
    hook = model.register_forward_hook(lambda module, inputs, output: asked.append(len(output)))
    found, (intervals, words) = validate(problem, model, "cpu")
    hook.remove()
    assert sum(asked) == len(windows)
    own, own_words = find_intervals(problem, model, "cpu")
    assert words == own_words
    np.testing.assert_allclose(intervals.offsets, own.offsets, rtol=1e-5)
    np.testing.assert_allclose(intervals.scale, own.scale, rtol=1e-5)
    assert found.mse == pytest.approx(score(forecast_with(model), windows).mse, rel=1e-6)
