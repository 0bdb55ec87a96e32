from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import Place, RetentionAttention, retention_attention
from forecaster.attention.common.rotary import rotate
from forecaster.attention.retention import decays, definition

from .agreement import assert_is, defined, inputs, projected


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_the_module_is_its_formula(role: Any, rotary: bool) -> None:
    torch.manual_seed(0)
    module = RetentionAttention(Place(12, 3, 7, 7, role=role), rotary=rotary).double()

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        q, k, v = projected(module, x, y, heads=3)
        if rotary:
            q, k = rotate(q), rotate(k)
        out = defined(definition)(q, k, v, decay=decays(3), **seen)
        normal = out / (out.square().mean(3, keepdim=True) + 1e-5).sqrt()
        gated = F.silu(module.gate_projection(x)) * normal.transpose(1, 2).flatten(2)
        merged: Tensor = module.out_projection(gated)
        return merged

    assert_is(module, formula)


def test_it_is_linear_attention_without_decay() -> None:
    q, k, v = inputs()
    out = retention_attention(q, k, v, decay=torch.ones(2).double(), causal=True, scale=1.0)
    torch.testing.assert_close(out, (q @ k.mT).tril() @ v)


def test_the_reaches_double_from_head_to_head() -> None:
    assert (1 / (1 - decays(4))).tolist() == [32, 64, 128, 256]
