from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import AFTFullAttention, Place
from forecaster.attention.aft_full import definition

from .agreement import assert_is, defined, projected


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_the_module_is_its_definition_between_projections(role: Any) -> None:
    """One head of all features, and biases that are products of rows of two tables."""
    torch.manual_seed(0)
    attention = AFTFullAttention(Place(6, 2, 7, 7, role=role)).double()
    torch.nn.init.normal_(attention.query_positions)

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        tables = attention.query_positions, attention.key_positions
        out = defined(definition)(*projected(attention, x, y), tables, **seen)
        return attention.out_projection(out[:, 0])

    assert_is(attention, formula)
