import math
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    DifferentialAttention,
    Place,
    differential_attention,
    lambda_init,
)
from forecaster.attention.diff import definition

from .agreement import assert_is, defined, inputs, projected


def pairs(**sizes: Any) -> list[Tensor]:
    """q1, k1, q2, k2 and v."""
    q1, k1, v = inputs(**{"value_width": 6, **sizes})
    q2, k2, _ = inputs(**{"value_width": 6, **sizes, "seed": 1})
    return [q1, k1, q2, k2, v]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_plain_number_keeps_the_digits_that_the_type_holds(dtype: torch.dtype) -> None:
    tensors = pairs(dtype=dtype)
    found, wanted = (
        differential_attention(*tensors, lam=lam) for lam in (0.1, torch.tensor(0.1, dtype=dtype))
    )
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("length", [7, 23])
def test_the_backward_pass_may_run_twice(length: int) -> None:
    tensors = pairs(queries=length, keys=length)
    loss = differential_attention(*tensors, lam=0.3, causal=True).square().sum()
    once = torch.autograd.grad(loss, tensors, retain_graph=True)
    for x, y in zip(once, torch.autograd.grad(loss, tensors), strict=True):
        assert torch.equal(x, y)


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


def test_lambda_rises_with_depth() -> None:
    values = [lambda_init(depth) for depth in (0, 1, 100)]
    assert values == pytest.approx([0.2, 0.35550907, 0.8])
