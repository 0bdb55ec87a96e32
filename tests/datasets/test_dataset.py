from dataclasses import replace

import numpy as np
import pandas as pd

from forecaster.datasets.dataset import Dataset
from forecaster.datasets.reading import Reading
from forecaster.datasets.series import Series

TIMES = pd.date_range("2020", periods=3, unit="us")
SERIES = Series(np.arange(6.0).reshape(3, 2), TIMES, ("a", "b"), "D", "x")


def test_the_digest_is_of_all_columns_whichever_are_used():
    used = SERIES.select(["a"])
    dataset = Dataset("x", Reading(time="day"), used, ("a",), "S", "a", (), {}, whole=SERIES)
    assert dataset.digest == SERIES.digest != used.digest
    assert replace(dataset, whole=None).digest == used.digest
