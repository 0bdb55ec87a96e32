"""Targets as arrays: the same targets are accepted and refused, and they have the same values."""

import json
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from forecaster_service.schemas import ARRAYS, MOST_COLUMNS, ForecastRequest

REQUEST: TypeAdapter[Any] = TypeAdapter(ForecastRequest)
TARGETS = {
    "rows": ("[[1.5, -2], [3e2, 0]]", True),
    "one column": ("[[1.5], [2.5]]", True),
    "numbers": ("[1.5, -0.0, 1, 3]", True),
    "a missing value": ("[1.5, null, 2.5]", True),
    "a missing value in a row": ("[[1.5, null], [2.5, 3]]", True),
    "nothing": ("[[null, null]]", True),
    "a missing value and true": ("[[1.5, null], [2.5, true]]", False),
    "a missing value and NaN": ("[null, NaN]", False),
    "a missing value and a ragged row": ("[[1.5, null], [2.5]]", False),
    "a ragged row": ("[[1.5, 2], [2.5]]", False),
    "true": ("[1.5, true]", False),
    "false in a row": ("[[1.5, 2], [3, false]]", False),
    "a word": ('[1.5, "2.5"]', False),
    "a word in a row": ('[[1.5, "2"]]', False),
    "a word for a row": ('[[1.5], "2"]', False),
    "NaN": ("[1.5, NaN]", False),
    "Infinity": ("[[1.5, Infinity]]", False),
    "too large a number": (f"[1.5, 1{'0' * 400}]", False),
    "too deep": ("[[1.5], [[2]]]", False),
    "a number for a row": ("[[1.5], 2]", False),
    "a row for a number": ("[1.5, [2]]", False),
    "an object": ('[[1.5], {"a": 1}]', False),
    "no number": ("[]", False),
    "no number in a row": ("[[]]", False),
    "no number in any row": ("[[], []]", False),
    "too many columns": (f"[[{'1.5,' * MOST_COLUMNS}2]]", False),
    "no list": ("7.5", False),
}


@pytest.mark.parametrize("form", ["flat", "full"])
@pytest.mark.parametrize(("text", "array"), TARGETS.values(), ids=TARGETS)
def test_the_same_is_taken_and_refused(text: str, array: bool, form: str) -> None:
    body = f'{{"target": {text}}}' if form == "flat" else f'{{"inputs": [{{"target": {text}}}]}}'

    def read(context: Any) -> Any:
        try:
            return REQUEST.validate_python(from_json(body), context=context).inputs[0].target
        except ValidationError as error:
            return [(flaw["loc"], flaw["type"], flaw["msg"]) for flaw in error.errors()]

    plain, found = read(None), read(ARRAYS)
    assert isinstance(found, np.ndarray) == array
    if not array:
        assert found == plain
        return
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array(plain, dtype=np.float64))  # null is NaN
    assert json.loads(text) == plain
