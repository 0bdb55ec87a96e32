import math
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    DifferentialAttention,
    Place,
    diff,
    differential_attention,
    full_attention,
    lambda_init,
)

from .agreement import assert_agree, inputs

MASK = torch.tensor([[True, True, False, True, True, False, True], [False] * 7])
TYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def pairs(**sizes: Any) -> list[Tensor]:
    """q1, k1, q2, k2, v and one lam for each head."""
    q1, k1, v = inputs(**{"value_width": 6, **sizes})
    q2, k2, _ = inputs(**{"value_width": 6, **sizes, "seed": 1})
    lam = torch.linspace(-0.3, 0.7, q1.shape[1], dtype=q1.dtype).requires_grad_()
    return [q1, k1, q2, k2, v, lam]


def core(options: dict[str, Any]) -> Any:
    return lambda q1, k1, q2, k2, v, lam: differential_attention(
        q1, k1, q2, k2, v, lam=lam, **options
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_plain_number_keeps_the_digits_that_the_type_holds(dtype: torch.dtype) -> None:
    q1, k1, q2, k2, v, _ = pairs(dtype=dtype)
    found, wanted = (
        differential_attention(q1, k1, q2, k2, v, lam=lam)
        for lam in (0.1, torch.tensor(0.1, dtype=dtype))
    )
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("length", [7, 23])
def test_the_backward_pass_may_run_twice(length: int) -> None:
    tensors = pairs(queries=length, keys=length)
    loss = core({"causal": True})(*tensors).square().sum()
    once = torch.autograd.grad(loss, tensors, retain_graph=True)
    for x, y in zip(once, torch.autograd.grad(loss, tensors), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("causal", [False, True])
def test_is_full_attention_when_lambda_is_zero(causal: bool) -> None:
    q1, k1, q2, k2, v, _ = pairs()
    out = differential_attention(q1, k1, q2, k2, v, lam=0.0, causal=causal)
    want = full_attention(q1, k1, v, causal=causal)
    torch.testing.assert_close(out, want, atol=1e-12, rtol=1e-10)


def test_weights_of_a_row_sum_to_one_less_lambda() -> None:
    q1, k1, q2, k2, v, _ = pairs()
    out = differential_attention(q1, k1, q2, k2, torch.ones_like(v), lam=0.3)
    torch.testing.assert_close(out, torch.full_like(out, 0.7))


def place(**changes: Any) -> Place:
    return Place(**{"width": 12, "heads": 3, "query_length": 7, "key_length": 7, **changes})


def defined(
    attention: DifferentialAttention, x: Tensor, context: Tensor | None = None, **seen: Any
) -> Tensor:
    """The module by the formulas of its file."""
    y, at, d = x if context is None else context, attention.place, attention.place.head_width // 2
    (a1, a2), (b1, b2) = attention.lambda_queries, attention.lambda_keys
    start = 0.8 - 0.6 * math.exp(-0.3 * at.depth)
    lam = (a1 @ b1).exp() - (a2 @ b2).exp() + start
    q, k, v = (
        (z @ layer.weight.T).unflatten(2, (at.heads, 2 * d)).transpose(1, 2)
        for z, layer in (
            (x, attention.query_projection),
            (y, attention.key_projection),
            (y, attention.value_projection),
        )
    )
    pairs = q[..., :d], k[..., :d], q[..., d:], k[..., d:]
    out = diff.definition(*pairs, v, lam=lam, **seen)
    normal = out / (out.square().mean(3, keepdim=True) + 1e-5).sqrt() * attention.norm.weight
    merged = torch.cat([(1 - start) * normal[:, h] for h in range(at.heads)], dim=2)
    return merged @ attention.out_projection.weight.T


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("causal", [False, True])
@TYPES
def test_the_module_equals_its_definition(
    depth: int, causal: bool, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    exact = DifferentialAttention(place(depth=depth)).double()
    torch.nn.init.normal_(exact.norm.weight)
    rounded = DifferentialAttention(place(depth=depth)).to(dtype)
    rounded.load_state_dict(exact.state_dict())
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_agree(
        lambda x: rounded(x, causal=causal, key_mask=MASK),
        lambda x: defined(exact, x, causal=causal, key_mask=MASK),
        [x.to(dtype)],
        tolerance,
    )


def test_the_module_looks_at_another_series() -> None:
    torch.manual_seed(0)
    attention = DifferentialAttention(place(key_length=11, role="cross")).double()
    x, y = torch.randn(2, 7, 12).double(), torch.randn(2, 11, 12).double()
    assert_agree(attention, lambda x, y: defined(attention, x, y), [x, y], 1e-9)


def test_lambda_rises_with_depth() -> None:
    assert lambda_init(0) == pytest.approx(0.2)
    assert lambda_init(1) == pytest.approx(0.35550907)
    assert lambda_init(100) == pytest.approx(0.8)


def test_refuses_what_does_not_fit() -> None:
    q1, k1, q2, k2, v, _ = pairs()
    with pytest.raises(ValueError, match="both pairs must have the same shapes"):
        differential_attention(q1, k1, q2[..., :2], k2[..., :2], v, lam=0.1)
    with pytest.raises(ValueError, match=r"lam must be one number or \(2,\).* got \(3,\)"):
        differential_attention(q1, k1, q2, k2, v, lam=torch.zeros(3))
    with pytest.raises(ValueError, match="width=10 and heads=2, which gives heads of width 5"):
        DifferentialAttention(place(width=10, heads=2))
