import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.base.errors import DataError
from forecaster.datasets.dataset import Series
from forecaster.datasets.limits import ends, find_limits
from forecaster.datasets.windows import Windows
from forecaster.evaluate.metrics import score
from tests.test_own_files import HORIZON, TIMES, trained

COUNTS = Series(
    np.array([[0, 3.0], [4, -1], [1, 2], [np.nan, 5]]), TIMES[:4], ("a", "b"), "D", "the file"
)


def test_limits_are_said_or_those_of_counts_before_the_last_step():
    for last, low, high, counts, found in (
        (4, None, None, True, ((0.0, None), (None, None))),
        (1, None, None, True, ((0.0, None), (0.0, None))),
        (4, None, None, False, ()),
        (4, -1.5, 7.0, True, ((-1.5, 7.0), (-1.5, 7.0))),
    ):
        assert find_limits(COUNTS, ("a", "b"), last, low, high, counts=counts) == found


def test_a_value_beyond_what_is_said_is_an_error():
    below, above = "no value of 'b' below 0, got -1; .*--min", "'a' above 3, got 4; .*--max"
    for low, high, match in ((0, None, below), (None, 3, above)):
        with pytest.raises(DataError, match=match):
            find_limits(COUNTS, ("a", "b"), 4, low, high, counts=True)


def test_scores_are_those_of_forecasts_within_the_limits_whatever_was_taken_out():
    values, shift = torch.zeros(6, 1), torch.tensor([0.0, 0, 0, 0, 2, -2])[:, None]
    windows = Windows(
        values, torch.zeros(6, 1), past=2, horizon=2, first=4, last=6, targets=(0,), shift=shift,
        limits=torch.tensor([[-1.0, torch.inf]]),
    )  # fmt: skip
    found = score(lambda batch: torch.full((1, 2, 1), -4.0), windows)
    assert found.squared.tolist() == [[9.0], [1.0]]  # -4 + 2 and -4 - 2 are raised to -1 with it
    quantiles = windows.batch(torch.tensor([0])).within(
        torch.tensor([-4.0, 4.0]).expand(1, 2, 1, 2)
    )
    assert quantiles.tolist() == [[[[-3.0, 4.0]], [[1.0, 4.0]]]]


def test_a_model_of_counts_forecasts_no_less_than_zero_unless_its_history_did(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rare = np.random.default_rng(0).poisson(0.3, 200)
    table = pd.DataFrame({"when": TIMES[:200], "sold": rare})
    table.to_csv("rare.csv", index=False)
    problem, forecaster = trained("rare.csv")
    assert ends(problem.schema.limits).tolist() == [[0.0, np.inf]]
    levels = sorted(forecaster.levels)
    found = forecaster.predict(table, levels=levels)
    names = [f"sold {level:g}" for level in levels]
    assert len(found) == HORIZON
    assert (found[names[0]] == 0).all()
    assert (found[names] >= 0).all(axis=None)
    below = forecaster.predict(table.assign(sold=table["sold"] - 1), levels=levels)
    assert (below[names[0]] < 0).any()
