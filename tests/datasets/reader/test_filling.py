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


def read(fill, covariates=("temp",), **said):
    """Two shops of six days; `temp` has gaps at the beginning, inside and, of 'b', at the end."""
    frame = pd.read_csv(
        StringIO(
            "shop,when,y,temp,sky\n"
            "a,2026-01-01,1,,clear\na,2026-01-02,2,4,\na,2026-01-03,3,,rain\na,2026-01-04,4,8,rain\n"
            "b,2026-01-01,5,1,rain\nb,2026-01-02,6,2,rain\nb,2026-01-03,7,3,clear\nb,2026-01-04,8,,\n"
        )
    )
    own = Reading(time="when", id=("shop",), targets=("y",), seasons=(2,), fill=fill, **said)
    return reader.read_frame(
        frame, Reading(**{**own.__dict__, "past_covariates": covariates}), where="it"
    )


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


def test_words_are_never_averaged():
    found = read({"sky": "linear"}, ("sky",)).series
    clear = found.values[:, found.columns.index("sky=clear")]
    np.testing.assert_array_equal(clear, [1, 1, 0, 0, 0, 0, 1, 1])


def test_nothing_is_filled_unasked_and_a_gap_known_ahead_names_the_option():
    assert np.isnan(read({}).series.values[:, 1]).sum() == 3
    with pytest.raises(DataError, match=r"2026-01-01 00:00:00 of 'a' \(3 are missing\).*--fill"):
        read({}, (), future_covariates=("temp",))
    with pytest.raises(DataError, match="2026-01-04 00:00:00 of 'b' "):
        read({ALL: "linear"}, (), future_covariates=("temp",))
    assert read({ALL: "zero"}, (), future_covariates=("temp",)).series.known.tolist()[2] == [0]


@pytest.mark.parametrize(("column", "said"), [("y", "is a target"), ("tmp", "mean 'temp'")])
def test_only_covariates_are_filled(column, said):
    with pytest.raises(UsageError, match=said):
        read({column: "zero"})


def test_the_configuration_takes_rules_for_all_and_by_column(tmp_path):
    name = f"data.name={tmp_path / 'x.csv'}"
    found = load(None, [name, "data.fill=linear,a=b=zero"]).config.data
    assert found.filled == {ALL: "linear", "a=b": "zero"}
    with pytest.raises(Exception, match="expected linear or previous or zero or season"):
        load(None, [name, "data.fill=mean"])
