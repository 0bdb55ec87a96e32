"""Differential attention, one query and one head at a time."""

import math

import torch
from torch import Tensor

from forecaster.attention import DifferentialAttention

from . import rows, softmax_row, visible


def differential(
    q1: Tensor,
    k1: Tensor,
    q2: Tensor,
    k2: Tensor,
    v: Tensor,
    lam: Tensor,
    causal: bool = False,
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """`lam` has one number for each head."""
    scale = q1.shape[3] ** -0.5 if scale is None else scale

    def row(b: int, h: int, i: int) -> Tensor:
        keys = visible(i, k1.shape[2], causal, key_mask, b)
        first = softmax_row(q1[b, h, i], k1[b, h], v[b, h], keys, scale)
        return first - lam[h] * softmax_row(q2[b, h, i], k2[b, h], v[b, h], keys, scale)

    return rows(q1, v, row)


def module(
    attention: DifferentialAttention,
    x: Tensor,
    context: Tensor | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    y = x if context is None else context
    place = attention.place
    H, E = place.heads, place.head_width
    d = E // 2
    (a1, a2), (b1, b2) = attention.lambda_queries, attention.lambda_keys
    start = 0.8 - 0.6 * math.exp(-0.3 * place.depth)
    lam = torch.exp((a1 * b1).sum()) - torch.exp((a2 * b2).sum()) + start

    def heads(z: Tensor, first: int, width: int) -> Tensor:
        """The features of each head from `first` on: (B, H, L, width)."""
        return torch.stack([z[..., h * E + first : h * E + first + width] for h in range(H)], 1)

    q, k, v = (
        z @ layer.weight.T
        for z, layer in (
            (x, attention.query_projection),
            (y, attention.key_projection),
            (y, attention.value_projection),
        )
    )
    out = differential(
        heads(q, 0, d), heads(k, 0, d), heads(q, d, d), heads(k, d, d), heads(v, 0, E),
        lam.expand(H), causal, key_mask,
    )  # fmt: skip
    normal = out / (out.square().mean(3, keepdim=True) + 1e-5).sqrt() * attention.norm.weight
    merged = torch.cat([(1 - start) * normal[:, h] for h in range(H)], dim=2)
    return merged @ attention.out_projection.weight.T
