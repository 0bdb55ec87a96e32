"""Targets as arrays: the same targets are accepted and refused, and they have the same values."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from forecaster_service.request import ARRAYS, MOST_COLUMNS, ForecastRequest

REQUEST: TypeAdapter[Any] = TypeAdapter(ForecastRequest)
NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers()
ODD = st.sampled_from([True, False, "2.5", float("nan"), float("inf"), 10**400, [2], {"a": 1}, []])
CELL = st.one_of(NUMBER, NUMBER, NUMBER, ODD)
TABLE = st.integers(0, 3).flatmap(
    lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), max_size=4)
)
TARGET = st.one_of(TABLE, st.lists(CELL), st.lists(st.lists(CELL)), CELL)


def read(target, form, context):
    """A target as it is read, or its flaws."""
    body = {"target": target} if form == "flat" else {"inputs": [{"target": target}]}
    try:
        return REQUEST.validate_python(body, context=context).inputs[0].target
    except ValidationError as error:
        return [(flaw["loc"], flaw["type"], flaw["msg"]) for flaw in error.errors()]


@settings(max_examples=500, deadline=None, derandomize=True)
@given(TARGET, st.sampled_from(["flat", "full"]))
def test_the_same_is_taken_and_refused(target, form):
    plain, found = read(target, form, None), read(target, form, ARRAYS)
    if isinstance(found, np.ndarray):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.array(plain, dtype=np.float64))  # null is NaN
    else:
        assert json.dumps(found) == json.dumps(plain)


@pytest.mark.parametrize("target", [[1.5, None], [[1.5, -2], [None, 0]], [[None]], [1, 2]])
def test_full_tables_become_arrays(target):
    assert isinstance(read(target, "flat", ARRAYS), np.ndarray)
    assert isinstance(read([[1.5] * (MOST_COLUMNS + 1)], "flat", ARRAYS), list)
