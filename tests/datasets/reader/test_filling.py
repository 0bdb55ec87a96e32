"""The filling of covariates, against what a person would write into the cells."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError, UsageError
from forecaster.config.run_config import load
from forecaster.datasets import reader
from forecaster.datasets.reading import ALL, Reading

NAN = np.nan


ROWS = """shop,when,y,temp,sky
a,2026-01-01,1,,clear
a,2026-01-02,2,4,
a,2026-01-03,3,,rain
a,2026-01-04,4,8,rain
b,2026-01-01,5,1,rain
b,2026-01-02,6,2,rain
b,2026-01-03,7,3,clear
b,2026-01-04,8,,
"""


def read(fill, covariates=("temp",), **said):
    own = Reading(
        time="when", id=("shop",), targets=("y",), seasons=(2,), fill=fill,
        past_covariates=covariates, **said,
    )  # fmt: skip
    return reader.read_frame(pd.read_csv(StringIO(ROWS)), own, where="it")


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("linear", [4, 4, 6, 8, 1, 2, 3, NAN]),
        ("previous", [4, 4, 4, 8, 1, 2, 3, 3]),
        ("zero", [0, 4, 0, 8, 1, 2, 3, 0]),
        ("season", [4, 4, 4, 8, 1, 2, 3, 2]),
    ],
)
@pytest.mark.parametrize("column", [ALL, "temp"])
def test_gaps_are_filled_within_a_series(how, wanted, column):
    found = read({column: how})
    np.testing.assert_array_equal(found.series.values[:, 1], wanted)
    assert found.reading.fill == {"temp": how}, "a model fills the next file alike"
    assert any(sentence.startswith("Values filled: 'temp' ") for sentence in found.said)
    sky = read({"sky": "linear"}, ("sky",)).series
    clear = sky.values[:, sky.columns.index("sky=clear")]
    assert clear.tolist() == [1, 1, 0, 0, 0, 0, 1, 1], "words are never averaged"


def test_nothing_is_filled_unasked_and_a_gap_known_ahead_names_the_option():
    assert np.isnan(read({}).series.values[:, 1]).sum() == 3
    with pytest.raises(DataError, match=r"2026-01-01 00:00:00 of 'a' \(3 are missing\).*--fill"):
        read({}, (), future_covariates=("temp",))
    with pytest.raises(DataError, match="2026-01-04 00:00:00 of 'b' "):
        read({ALL: "linear"}, (), future_covariates=("temp",))
    assert read({ALL: "zero"}, (), future_covariates=("temp",)).series.known.tolist()[2] == [0]


def test_only_covariates_are_filled_by_rules_that_exist(tmp_path):
    for column, said in (("y", "is a target"), ("tmp", "mean 'temp'")):
        with pytest.raises(UsageError, match=said):
            read({column: "zero"})
    name = f"data.name={tmp_path / 'x.csv'}"
    found = load(None, [name, "data.fill=linear,a=b=zero"]).config.data
    assert found.filled == {ALL: "linear", "a=b": "zero"}
    with pytest.raises(Exception, match="expected linear or previous or zero or season"):
        load(None, [name, "data.fill=mean"])
