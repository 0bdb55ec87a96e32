import json

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.dataset import Series
from forecaster.datasets.known import MOST_WORDS, Attribute, KnownInputs


def series(**more):
    times = pd.date_range("2026-01-01", periods=4, freq="h")
    return Series(np.zeros((4, 1)), times, ("y",), "h", "made up", **more)


def again(known):
    return KnownInputs.from_dict(json.loads(json.dumps(known.to_dict())))


def test_covariates_are_scaled_by_the_training_rows():
    ahead = {"known": np.array([[1.0], [3.0], [50.0], [9.0]]), "known_columns": ("t",)}
    known = KnownInputs.fit(series(**ahead), slice(0, 2))
    assert known.width == 1
    assert known.scaled(np.array([[[1.0]], [[5.0]]])).tolist() == [[[-1.0]], [[3.0]]]
    assert (known.low, known.high) == ((1.0,), (3.0,)) == (again(known).low, again(known).high)


def test_a_flag_has_the_values_0_and_1_alone():
    columns = {"on": [0, 0, 1, 0], "half": [0, 0.5, 1, 0], "count": [0, 1, 2, 0], "off": [0] * 4}
    known = np.array([*columns.values()], dtype=float).T
    ahead = {"known": known, "known_columns": tuple(columns)}
    assert KnownInputs.fit(series(**ahead), slice(None)).flags == ("on",)
    assert KnownInputs().flags == ()


def test_words_become_one_feature_each_and_numbers_one():
    static = {"kind": np.array(["b", "a", "b"]), "size": np.array([1.0, 2.0, 3.0])}
    known = KnownInputs.fit(series(static=static), slice(None))
    assert known.width == 3
    assert known.encode({"size": [2.0], "kind": ["b"]}).tolist() == [[0, 1, 0]]
    assert again(known) == known
    nothing = KnownInputs.fit(series(), slice(None))
    assert (nothing.width, nothing) == (0, again(nothing))
    shops = Attribute("shop", ("7", "b"))
    assert shops.encode(np.array([7.0])).tolist() == shops.encode(["7"]).tolist() == [[1, 0]]


def test_what_cannot_be_encoded_is_told():
    kind, size = Attribute.fit("kind", np.array(["a", "b"])), Attribute.fit("size", np.arange(3))
    with pytest.raises(DataError, match=r"'kind': 'z' is none of those .* a, b"):
        kind.encode(["a", "z"])
    with pytest.raises(DataError, match="'size': expected a number that stays finite when scaled"):
        size.encode(["large"])
    with pytest.raises(DataError, match="attribute 'size' is missing"):
        KnownInputs(attributes=(kind, size)).encode({"kind": ["a"]})
    with pytest.raises(DataError, match="51 different words"):
        Attribute.fit("name", np.array([f"w{i}" for i in range(MOST_WORDS + 1)]))
