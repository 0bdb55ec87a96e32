from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import GatedAttention, Place, full_attention, gated_attention
from forecaster.attention.gated import definition

from .agreement import assert_is, defined, inputs, projected


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize(("role", "keys"), [("encoder", 7), ("decoder", 7), ("cross", 11)])
def test_the_module_is_its_formula(role: Any, keys: int, elementwise: bool) -> None:
    torch.manual_seed(0)
    place = Place(12, 3, 7, keys, role=role)
    module = GatedAttention(place, elementwise=elementwise).double()

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        gate = module.gate_projection(x).unflatten(2, (3, -1)).transpose(1, 2).sigmoid()
        out = defined(definition)(*projected(module, x, y, heads=3), gate, **seen)
        merged: Tensor = module.out_projection(out.transpose(1, 2).flatten(2))
        return merged

    assert_is(module, formula)


def test_it_is_full_attention_where_all_gates_are_1() -> None:
    q, k, v = inputs()
    out = gated_attention(q, k, v, torch.ones(2, 2, 7, 1).double(), causal=True)
    assert torch.equal(out, full_attention(q, k, v, causal=True))
