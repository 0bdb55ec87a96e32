import numpy as np
import pytest

from tests.study.compare.grids import WINDOWS, finished


@pytest.fixture(scope="module", autouse=True)
def _home(home):
    """Every grid is one of the data set `small`."""


@pytest.fixture
def cells(tmp_path):
    """Two seeds of each: `full` is better than `none` by 0.5, `prob` by noise, `lsh` is worse."""
    random = np.random.default_rng(0)
    noise = random.normal(size=(2, WINDOWS))
    made = []
    for seed in (0, 1):
        base = 2 + noise[seed]
        own = {"none": base, "full": base - 0.5, "lsh": base + 1 + seed / 100, "mean": base}
        own["prob"] = base + 0.01 * random.normal(size=WINDOWS)
        own["topk"] = own["full"]
        made += [
            finished(tmp_path, errors, attn=attn, seed=seed, is_full=attn == "topk")
            for attn, errors in own.items()
        ]
    return made
