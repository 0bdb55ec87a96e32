from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import FastformerAttention, Place
from forecaster.attention.fastformer import definition

from .agreement import assert_is, defined, projected


@pytest.mark.parametrize("share_value", [False, True])
@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_the_module_is_its_formula(role: Any, share_value: bool) -> None:
    torch.manual_seed(0)
    attention = FastformerAttention(Place(6, 2, 11, 11, role=role), share_value=share_value)
    attention.double()
    assert (attention.value_projection is None) is share_value
    values = attention.query_projection if share_value else attention.value_projection

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        q, k, v = projected(attention, x, y, heads=2, value=values)
        weights = attention.query_score.weight, attention.key_score.weight
        u = defined(definition)(q, k, v, *weights, **seen).transpose(1, 2).flatten(2)
        return attention.out_projection(u) + attention.query_projection(x)

    assert_is(attention, formula)


def test_drops_what_is_added_to_the_query_in_training_only() -> None:
    torch.manual_seed(0)
    attention, x = FastformerAttention(Place(6, 2, 11, 11), dropout=0.5), torch.randn(2, 11, 6)
    plain = attention.eval()(x)
    query = attention.query_projection(x)
    dropped = attention.train()(x) - query
    doubled = torch.isclose(dropped, 2 * (plain - query), atol=1e-6)
    assert ((dropped.abs() < 1e-7) | doubled).all()
    assert not doubled.all()
