import math
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    ForgettingAttention,
    Place,
    forgetting_attention,
    full_attention,
)
from forecaster.attention.forgetting import definition

from .agreement import assert_is, defined, inputs, projected


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_the_module_is_its_formula(role: Any) -> None:
    torch.manual_seed(0)
    module = ForgettingAttention(Place(12, 3, 7, 7, role=role)).double()
    torch.nn.init.normal_(module.gate_projection.weight)

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        log_gate = module.gate_projection(x).sigmoid().log().mT
        out = defined(definition)(*projected(module, x, y, heads=3), log_gate, **seen)
        merged: Tensor = module.out_projection(out.transpose(1, 2).flatten(2))
        return merged

    assert_is(module, formula)


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_full_attention_where_all_gates_are_1(causal: bool) -> None:
    q, k, v = inputs()
    out = forgetting_attention(q, k, v, torch.zeros(2, 2, 7).double(), causal=causal)
    torch.testing.assert_close(out, full_attention(q, k, v, causal=causal))


@pytest.mark.parametrize(("remember", "start"), [(None, math.log(9)), (2.0, 2.0)])
def test_its_gates_start_where_the_option_says(remember: float | None, start: float) -> None:
    module = ForgettingAttention(Place(8, 2, 9, 9), remember=remember)
    bias = module.gate_projection.bias
    torch.testing.assert_close(bias, torch.full_like(bias, start))
    assert not module.gate_projection.weight.any()


def test_a_step_may_forget_all() -> None:
    q, k, v = inputs()
    log_gate = torch.zeros(2, 2, 7).double()
    log_gate[:, :, 4] = -math.inf
    out = forgetting_attention(q, k, v, log_gate, causal=True)
    halves = (
        forgetting_attention(*(x[:, :, cut] for x in (q, k, v, log_gate)), causal=True)
        for cut in (slice(0, 4), slice(4, 7))
    )
    torch.testing.assert_close(out, torch.cat(list(halves), 2))
