import math
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import DifferentialAttention, Place
from forecaster.attention.diff import definition

from .agreement import assert_is, defined, projected


@pytest.mark.parametrize(("role", "keys"), [("encoder", 7), ("decoder", 7), ("cross", 11)])
def test_the_module_is_its_formula(role: Any, keys: int) -> None:
    torch.manual_seed(0)
    attention = DifferentialAttention(Place(12, 3, 7, keys, depth=3, role=role)).double()
    torch.nn.init.normal_(attention.norm.weight)

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        (a1, a2), (b1, b2) = attention.lambda_queries, attention.lambda_keys
        q, k, v = projected(attention, x, y, heads=3)
        start = 0.8 - 0.6 * math.exp(-0.9)
        lam = (a1 @ b1).exp() - (a2 @ b2).exp() + start
        four = q[..., :2], k[..., :2], q[..., 2:], k[..., 2:]
        out = defined(definition)(*four, v, lam=lam, **seen)
        normal = out / (out.square().mean(3, keepdim=True) + 1e-5).sqrt() * attention.norm.weight
        merged = ((1 - start) * normal).transpose(1, 2).flatten(2)
        return merged @ attention.out_projection.weight.T

    assert_is(attention, formula)
