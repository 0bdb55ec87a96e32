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


def test_half_precision_keeps_the_reaches() -> None:
    torch.manual_seed(0)
    module = RetentionAttention(Place(32, 8, 2000, 2000), rotary=False)
    x = torch.randn(1, 2000, 32).bfloat16()
    module = module.bfloat16().float()
    exact = module(x.float())
    assert (module.bfloat16()(x) - exact).norm() < 0.02 * exact.norm()


def test_the_shortest_reach_is_the_step_itself() -> None:
    module = RetentionAttention(Place(4, 1, 7, 7), reach=1.0)
    x = torch.randn(2, 7, 4)
    alone = torch.cat([module(x[:, i : i + 1]) for i in range(7)], 1)
    assert module.rate.tolist() == [1.0]
    torch.testing.assert_close(module(x), alone)
    with pytest.raises(ValueError, match="reach must be at least 1"):
        RetentionAttention(Place(4, 1, 7, 7), reach=float("nan"))
