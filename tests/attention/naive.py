"""Slow definitions, one query at a time, written from the formulas and used as the truth.

They return tensors that autograd can go through, so gradients are compared with the same loops.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def visible(i: int, keys: int, causal: bool, key_mask: Tensor | None, b: int) -> list[int]:
    """The keys that query i of batch row b may see."""
    return [
        j
        for j in range(keys)
        if (not causal or j <= i) and (key_mask is None or bool(key_mask[b, j]))
    ]


def rows(q: Tensor, v: Tensor, row: Callable[[int, int, int], Tensor]) -> Tensor:
    """The output (B, H, L, Ev) whose row (b, h, i) is `row(b, h, i)`."""
    batch, heads, queries = q.shape[:3]
    out = [row(b, h, i) for b in range(batch) for h in range(heads) for i in range(queries)]
    return torch.stack(out).reshape(batch, heads, queries, v.shape[3])


def softmax_row(q: Tensor, k: Tensor, v: Tensor, keys: list[int], scale: float) -> Tensor:
    """One query (E,) against the keys (S, E), of which only those listed take part."""
    if not keys:
        return v.new_zeros(v.shape[1])
    weights = torch.stack([scale * (q * k[j]).sum() for j in keys]).softmax(dim=0)
    return torch.stack([w * v[j] for w, j in zip(weights, keys, strict=True)]).sum(dim=0)


def mean_row(v: Tensor, keys: list[int]) -> Tensor:
    return torch.stack([v[j] for j in keys]).mean(dim=0) if keys else v.new_zeros(v.shape[1])


def full(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def row(b: int, h: int, i: int) -> Tensor:
        keys = visible(i, k.shape[2], causal, key_mask, b)
        return softmax_row(q[b, h, i], k[b, h], v[b, h], keys, scale)

    return rows(q, v, row)


def mean(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, key_mask: Tensor | None = None
) -> Tensor:
    def row(b: int, h: int, i: int) -> Tensor:
        return mean_row(v[b, h], visible(i, k.shape[2], causal, key_mask, b))

    return rows(q, v, row)
