"""What was recorded of bundles, and how close to it a forecast must be."""

import json
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd

from tests.equality.cases import RECORDS, machine

WRITTEN = json.loads((RECORDS / "bundles.json").read_text())
CLOSE = 1e-6 if WRITTEN["machine"] == machine() else 1e-5
"""How far a forecast may be from the kept one, in standard deviations of its series. On another
machine it is what README promises."""


def kept(name: str, file: str) -> str:
    return (RECORDS / "bundles" / name / file).read_text()


def assert_close(found: Any, expected: Any, std: Any, what: str) -> None:
    assert np.shape(found) == np.shape(expected), what
    away = float(np.abs((np.array(found) - np.array(expected)) / std).max())
    assert away <= CLOSE, f"{what} is {away:.2g} standard deviations away"


def assert_same_table(found: pd.DataFrame, name: str) -> None:
    """The forecast of a table is the kept one."""
    expected = pd.read_csv(StringIO(kept(name, "forecast.csv")))
    again = pd.read_csv(StringIO(found.to_csv(index=False)))
    assert list(again) == list(expected)
    for column in expected:
        if pd.api.types.is_float_dtype(expected[column]):
            std = WRITTEN["std"][name][column.split(" ")[0]]
            assert_close(again[column], expected[column], std, column)
        else:
            assert again[column].equals(expected[column]), column
