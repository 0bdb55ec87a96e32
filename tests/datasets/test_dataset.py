from dataclasses import replace

import numpy as np
import pandas as pd

from forecaster.datasets.dataset import Dataset
from forecaster.datasets.reading import Reading
from forecaster.datasets.series import Series

SERIES = Series(
    np.arange(6.0).reshape(3, 2), pd.date_range("2020", periods=3, unit="us"), ("a", "b"), "D", "x"
)
DATASET = Dataset(
    name="x",
    reading=Reading(time="day", freq="D", seasons=(7,), timezone="UTC"),
    series=SERIES.select(["a"]),
    targets=("a",),
    features="S",
    main_target="a",
    said=(),
    counts={},
    whole=SERIES,
)


def test_the_digest_is_of_all_columns_whichever_are_used():
    assert DATASET.digest == SERIES.digest != SERIES.select(["a"]).digest
    assert replace(DATASET, whole=None).digest == SERIES.select(["a"]).digest
