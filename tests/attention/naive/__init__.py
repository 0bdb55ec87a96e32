"""Slow definitions, one query at a time, written from the formulas and used as the truth.

They return tensors that autograd can go through, so gradients are compared with the same loops.
"""

import math
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
    """One query (E,) against the keys (S, E) that are listed."""
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


def prob(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sample: Tensor,
    factor: int,
    variant: str = "paper",
    causal: bool = False,
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    queries, keys = q.shape[2], k.shape[2]
    u = min(queries, max(1, factor * math.ceil(math.log(queries))))
    scale = q.shape[3] ** -0.5 if scale is None else scale

    @torch.no_grad()
    def measure(b: int, h: int, i: int) -> float:
        real = visible(i, keys, False, key_mask, b)
        scores = [float(q[b, h, i] @ k[b, h, j]) for j in sample[i].tolist() if j in real]
        if not scores:
            return -math.inf
        return max(scores) - sum(scores) / (len(scores) if variant == "paper" else len(real))

    active = {}
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            m = [measure(b, h, i) for i in range(queries)]
            active[b, h] = sorted(range(queries), key=lambda i: (-m[i], i))[:u]

    def row(b: int, h: int, i: int) -> Tensor:
        seen = visible(i, keys, causal, key_mask, b)
        if i in active[b, h]:
            return softmax_row(q[b, h, i], k[b, h], v[b, h], seen, scale)
        if causal and variant == "informer2020":
            return mean_row(v[b, h], seen) * len(seen)
        return mean_row(v[b, h], seen)

    return rows(q, v, row)
