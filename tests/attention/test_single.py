from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    Place,
    SingleHeadAttention,
    single_head_attention,
)
from forecaster.attention.single import definition

from .agreement import assert_agree, inputs

MASK = torch.tensor([[True, True, False, True, True, False, True], [False] * 7])


def module(dtype: torch.dtype = torch.float64, **place: Any) -> SingleHeadAttention:
    """With gates, norm and biases changed from their initial values."""
    torch.manual_seed(0)
    attention = SingleHeadAttention(Place(6, 2, 7, 7, **place))
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    return attention.to(dtype)


def series(length: int = 7, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, 6, generator=generator, dtype=torch.float64)


def defined(
    module: SingleHeadAttention, x: Tensor, context: Tensor | None = None, **seen: Any
) -> Tensor:
    """The module by the formulas of its file."""
    y = x if context is None else context
    projected = x @ module.query_projection.weight.T + module.query_projection.bias
    centred = projected - projected.mean(2, keepdim=True)
    normal = centred / (centred.square().mean(2, keepdim=True) + 1e-12).sqrt()
    normal = normal * module.query_norm.weight + module.query_norm.bias
    both = module.value_projection.weight @ module.value_gate.sigmoid()
    candidate, gate = (both + module.value_projection.bias).chunk(2)
    q, k = module.query_gate.sigmoid() * normal, module.key_gate.sigmoid() * y
    v = gate.sigmoid() * candidate.tanh() * y
    return definition(q[:, None], k[:, None], v[:, None], **seen)[:, 0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_module_equals_its_definition(causal: bool, masked: bool) -> None:
    exact, rounded = module(), module(torch.float32)
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK if masked else None}
    for attention, dtype, tolerance in (
        (exact, torch.float64, 1e-9),
        (rounded, torch.float32, 1e-4),
    ):
        assert_agree(
            lambda x, attention=attention: attention(x, **options),
            lambda x: defined(exact, x, **options),
            [series().to(dtype)],
            tolerance,
        )


@pytest.mark.parametrize("length", [1, 11])
def test_looks_at_another_series(length: int) -> None:
    attention = module(role="cross")
    assert_agree(
        attention,
        lambda x, y: defined(attention, x, y),
        [series(), series(length, seed=2)],
        1e-9,
    )


def test_the_gradients_of_the_gates_equal_those_of_the_definition() -> None:
    attention = module()
    parameters = list(attention.parameters())
    for got, want in zip(
        torch.autograd.grad(attention(series(), causal=True).square().sum(), parameters),
        torch.autograd.grad(defined(attention, series(), causal=True).square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-9)


def test_starts_almost_silent_with_half_open_gates() -> None:
    torch.manual_seed(0)
    attention = SingleHeadAttention(Place(64, 8, 50, 50))
    assert attention.query_gate.sigmoid().unique().item() == 0.5
    x = torch.randn(4, 50, 64)
    assert 0 < attention(x).abs().mean() < 0.05 * x.abs().mean()
    assert sum(p.numel() for p in attention.parameters()) == 64**2 + 64 * 6 + 2 * 64**2 + 2 * 64


def test_refuses_several_heads_and_mixing() -> None:
    with pytest.raises(ValueError, match=r"has one head, got q \(2, 2, 7, 3\): 2 heads"):
        single_head_attention(*inputs())
    with pytest.raises(ValueError, match="attention 'single' does not use the model's heads and"):
        SingleHeadAttention(Place(6, 2, 7, 7, mix=True))
