import math
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    DifferentialAttention,
    Place,
    differential_attention,
    full_attention,
    lambda_init,
)
from forecaster.attention.diff import definition

from .agreement import assert_agree, defined, inputs


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


@pytest.mark.parametrize("causal", [False, True])
def test_is_full_attention_when_lambda_is_zero(causal: bool) -> None:
    q1, k1, q2, k2, v = pairs()
    out = differential_attention(q1, k1, q2, k2, v, lam=0.0, causal=causal)
    want = full_attention(q1, k1, v, causal=causal)
    torch.testing.assert_close(out, want, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize(("role", "keys"), [("encoder", 7), ("decoder", 7), ("cross", 11)])
def test_the_module_is_its_formula(role: Any, keys: int) -> None:
    torch.manual_seed(0)
    attention = DifferentialAttention(Place(12, 3, 7, keys, depth=3, role=role)).double()
    torch.nn.init.normal_(attention.norm.weight)
    options = {"causal": role == "decoder", "key_mask": torch.rand(2, keys) > 0.3}

    def formula(x: Tensor, y: Tensor) -> Tensor:
        (a1, a2), (b1, b2) = attention.lambda_queries, attention.lambda_keys
        q, k, v = (
            (z @ layer.weight.T).unflatten(2, (3, 4)).transpose(1, 2)
            for z, layer in (
                (x, attention.query_projection),
                (y, attention.key_projection),
                (y, attention.value_projection),
            )
        )
        start = 0.8 - 0.6 * math.exp(-0.9)
        lam = (a1 @ b1).exp() - (a2 @ b2).exp() + start
        four = q[..., :2], k[..., :2], q[..., 2:], k[..., 2:]
        out = defined(definition)(*four, v, lam=lam, **options)
        normal = out / (out.square().mean(3, keepdim=True) + 1e-5).sqrt() * attention.norm.weight
        merged = ((1 - start) * normal).transpose(1, 2).flatten(2)
        return merged @ attention.out_projection.weight.T

    x, y = torch.randn(2, 7, 12).double(), torch.randn(2, keys, 12).double()
    if role == "cross":
        assert_agree(lambda x, y: attention(x, y, **options), formula, [x, y], 1e-9)
    else:
        assert_agree(lambda x: attention(x, **options), lambda x: formula(x, x), [x], 1e-9)


def test_lambda_rises_with_depth() -> None:
    values = [lambda_init(depth) for depth in (0, 1, 100)]
    assert values == pytest.approx([0.2, 0.35550907, 0.8])
