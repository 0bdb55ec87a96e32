from typing import Any

import pytest
from pydantic import ValidationError

from forecaster_service.foreign import Cell, ScoringRequest
from forecaster_service.schemas import Strict


class Holder(Strict):
    cell: Cell


@pytest.mark.parametrize("value", [1, 1.5, -(2**63), "2026-01-01", "", True, None, 1e300])
def test_cells_stay_as_they_came(value: Any) -> None:
    got = Holder(cell=value).cell
    assert got == value
    assert type(got) is type(value)


def test_numbers_beyond_64_bits_lose_no_more_than_floats_do() -> None:
    assert Holder(cell=2**63).cell == 2.0**63
    assert isinstance(Holder(cell=2**63).cell, float)


@pytest.mark.parametrize("value", [[], {}, float("nan"), float("inf"), 10**400, "x" * 257])
def test_what_is_no_cell_is_one_error(value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Holder(cell=value)
    (error,) = caught.value.errors()
    assert (error["type"], error["loc"]) == ("cell", ("cell",))


def test_a_request_has_one_table() -> None:
    records, columns = [{"a": 1}, {"a": None}], {"a": [1, None]}
    split = {"columns": ["a"], "data": [[1]], "index": [0]}
    assert ScoringRequest(dataframe_split=split, params={}).tables[0].data == [[1]]
    for key in ("dataframe_records", "instances", "inputs"):
        assert ScoringRequest(**{key: records}).tables == [records]
    assert ScoringRequest(inputs=columns).tables == [columns]
    wrong: Any
    for wrong in ({"inputs": [1]}, {"inputs": {"a": 1}}, {"instances": columns}, {"a": 1}, {}):
        with pytest.raises(ValidationError):
            ScoringRequest(**wrong)
