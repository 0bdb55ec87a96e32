import numpy as np
import torch

from forecaster.datasets import Windows
from forecaster.evaluate import score
from forecaster.evaluate.examples import PICKED, examples


def test_the_best_the_median_and_the_worst_of_what_was_observed() -> None:
    values = np.arange(12, dtype=np.float32)[:, None].repeat(2, axis=1)
    values[9:, :] = np.nan  # the last window has no truth
    values[2, 1] = np.nan
    windows = Windows(
        values=torch.from_numpy(values), calendar=torch.zeros(12, 1), past=3, horizon=2,
        first=3, last=12, targets=(1,),
    )  # fmt: skip

    def zero(batch):  # type: ignore[no-untyped-def]
        return torch.zeros_like(batch.target)

    scored = score(zero, windows)
    found = examples(zero, windows, scored)
    assert tuple(found) == PICKED
    numbers = [found[name].number for name in PICKED]
    errors = scored.by_window[numbers]
    assert errors[0] == np.nanmin(scored.by_window)
    assert errors[2] == np.nanmax(scored.by_window)
    assert errors[0] < errors[1] < errors[2]
    best = found["best"]
    assert best.number == 0
    np.testing.assert_array_equal(best.past, [[0], [1], [np.nan]])
    np.testing.assert_array_equal(best.truth, [[3], [4]])
    np.testing.assert_array_equal(best.forecast, [[0], [0]])
