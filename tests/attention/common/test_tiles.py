from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention.common import tiles
from forecaster.attention.common.tiles import (
    HIDDEN,
    merge,
    softmax_part,
    softmax_part_backward,
)
from tests.attention.agreement import inputs


def draws(value_width: int = 3) -> tuple[Tensor, ...]:
    q, k, v = (x.detach() for x in inputs(queries=5, keys=5, value_width=value_width))
    return q, k, v, torch.randn(v.shape, generator=torch.Generator().manual_seed(1)).double()


def everything(*tensors: Tensor, **options: Any) -> list[Tensor]:
    q, k, v, grad = tensors
    o, z = softmax_part(q, k, v, scale=0.7, **options)
    return [o, z, *softmax_part_backward(grad, q, k, v, o, z, scale=0.7, **options)]


BIAS = torch.randn(1, 1, 5, 5, generator=torch.Generator().manual_seed(2)).double()


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"bias": BIAS}], ids=str)
def test_the_private_operators_and_the_public_ones_agree(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tiles._FORWARD is not None, "this torch has lost the private operator"
    fused = everything(*draws(), **options)
    monkeypatch.setattr(tiles, "_FORWARD", None)
    for x, y in zip(fused, everything(*draws(), **options), strict=True):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("hidden_first", [False, True])
def test_a_hidden_part_adds_exactly_nothing(hidden_first: bool) -> None:
    q, k, v, _ = draws()
    bias = q.new_full((1, 1, 5, 5), HIDDEN)
    parts = [softmax_part(q, k, v, scale=0.7), softmax_part(q, k, v, scale=0.7, bias=bias)]
    assert (parts[1][1] < HIDDEN / 2).all()
    (o1, z1), (o2, z2) = parts[::-1] if hidden_first else parts
    want = [x.clone() for x in parts[0]]
    merge(o1, z1, o2, z2)
    assert torch.equal(o1, want[0])
    assert torch.equal(z1, want[1])


@pytest.mark.parametrize("fused", [False, True])
def test_hidden_keys_have_no_weight_and_no_gradient(
    fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fused:
        monkeypatch.setattr(tiles, "_FORWARD", None)
    q, k, v, grad = draws()
    real = torch.tensor([True, False, True, True, False])
    bias = q.new_zeros(1, 1, 5, 5).masked_fill(~real, HIDDEN)
    got = everything(q, k, v, grad, bias=bias)
    want = everything(q, k[:, :, real], v[:, :, real], grad)
    for x, y in zip(got[:3], want[:3], strict=True):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-10)
    for x, y in zip(got[3:], want[3:], strict=True):
        assert (x[:, :, ~real] == 0).all()
        torch.testing.assert_close(x[:, :, real], y, atol=1e-12, rtol=1e-10)
