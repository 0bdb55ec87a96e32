"""Softmax attention with a bias on the scores, in blocks of rows.

    P = softmax(scale q kᵀ + b)        out = P v

The fused kernel gives no gradient for a bias, and would need it as a whole L x S matrix for every
head and series. Here a block of rows holds its scores and its bias at a time, and the backward pass
computes them again, with g = ∂out and r the row sums of P ⊙ g vᵀ:

    T = P ⊙ (g vᵀ − r)        ∂q = scale T k        ∂k = scale Tᵀ q        ∂v = Pᵀ g        ∂b = T

A mechanism says what b is in a block, and sums T up for the gradient of what it is made from.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.common import kernels
from forecaster.attention.common.tiles import HIDDEN
from forecaster.base.shapes import Bool, Float

_SCORES = 1 << 16  # scores of one map for each thread at a time, to stay in its cache
_MOST_SCORES = 1 << 19  # the limit for long rows, because products of few rows are slow
_CAUSAL_ROWS = 128  # queries of one head at a time, so that a causal block wastes few scores

InBlock = Callable[[Tensor, slice, slice, bool, Tensor], None]
"""What is done in a block: of the maps n, the queries i, and the first keys. Called with a tensor,
n, i, `causal` and the block (n, i, keys), it writes b to the block from what b is made from, or
adds the block, ∂b, which it may change, to the gradient of that."""


def biased_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    tensor: Float[Tensor, "..."],
    write: InBlock,
    add_gradient: InBlock,
    *,
    causal: bool,
    key_mask: Bool[Tensor, "B S"] | None,
    scale: float | None,
) -> Float[Tensor, "B H L Ev"]:
    """softmax(scale q kᵀ + b) v over the visible keys; `scale` is E**-0.5 if None.

    `tensor` is what b is made from, in the type that sums are taken in. A query that sees no key
    gives 0.
    """
    B, H, L, E = q.shape
    kind = kernels.accumulator(v.dtype)
    scale = E**-0.5 if scale is None else scale
    hidden = None
    if key_mask is not None:
        hidden = torch.zeros(key_mask.shape, dtype=kind, device=q.device)
        hidden = hidden.masked_fill_(~key_mask, HIDDEN).repeat_interleave(H, 0)[:, None]
    attend = kernels.outside_graphs(_Biased.apply)  # loops over blocks
    with torch.autocast(q.device.type, enabled=False):
        flat = (x.to(kind).flatten(0, 1) for x in (q, k, v))
        out: Tensor = attend(*flat, tensor, (write, add_gradient), scale, causal, hidden)
    out = out.view(B, H, L, -1).to(v.dtype)
    return out if key_mask is None else without_keys(out, causal, key_mask)


def without_keys(out: Tensor, causal: bool, key_mask: Tensor) -> Tensor:
    """`out`, 0 for the queries that see no key."""
    seen = key_mask.cumsum(1) if causal else key_mask.sum(1, keepdim=True)
    return out.masked_fill((seen == 0)[:, None, :, None], 0.0)


class _Biased(torch.autograd.Function):
    """For q (N, L, E), k (N, S, E), v (N, S, Ev), hidden (N, 1, S)."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        tensor: Tensor,
        bias: tuple[InBlock, InBlock],
        scale: float,
        causal: bool,
        hidden: Tensor | None,
    ) -> Tensor:
        (N, S, Ev), L = v.shape, q.shape[1]
        ctx.save_for_backward(q, k, v, tensor, hidden)
        ctx.bias, ctx.scale, ctx.causal = bias, scale, causal
        pairs, rows = block_size(q, N, L, S, causal)
        scratch, out = v.new_empty(pairs * rows * S), v.new_empty(N, L, Ev)
        for n in parts(N, pairs):
            for i in parts(L, rows):
                weights = _weights(ctx, q[n, i], k[n], tensor, hidden, n, i, scratch)
                out[n, i] = torch.bmm(weights, v[n, : weights.shape[2]])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, tensor, hidden = ctx.saved_tensors
        grad = grad.contiguous()
        (N, S, _), L = v.shape, q.shape[1]
        pairs, rows = block_size(q, N, L, S, ctx.causal)
        one, two = (v.new_empty(pairs * rows * S) for _ in range(2))
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        grad_tensor = torch.zeros_like(tensor) if ctx.needs_input_grad[3] else None
        for n in parts(N, pairs):
            sum_k, sum_v = SumOverQueries(k[n], rows == L), SumOverQueries(v[n], rows == L)
            for i in parts(L, rows):
                p = _weights(ctx, q[n, i], k[n], tensor, hidden, n, i, one)
                g = grad[n, i]
                sum_v.add(p, g)
                t = torch.bmm(g, v[n, : p.shape[2]].mT, out=carve(two, p.shape))
                t.mul_(p)
                t.addcmul_(p, t.sum(2, keepdim=True), value=-1)
                torch.mul(torch.bmm(t, k[n, : t.shape[2]]), ctx.scale, out=grad_q[n, i])
                sum_k.add(t, q[n, i] * ctx.scale)
                if grad_tensor is not None:
                    ctx.bias[1](grad_tensor, n, i, ctx.causal, t)
            grad_k[n], grad_v[n] = sum_k.total(), sum_v.total()
        return grad_q, grad_k, grad_v, grad_tensor, None, None, None, None


def _weights(
    ctx: Any, q: Tensor, k: Tensor, tensor: Tensor, hidden: Tensor | None, n: slice, i: slice,
    scratch: Tensor,
) -> Tensor:  # fmt: skip
    """P of a block in `scratch`; when causal, keys after the last query are left out."""
    keys = k[:, : i.stop] if ctx.causal else k
    p = carve(scratch, (*q.shape[:2], keys.shape[1]))
    ctx.bias[0](tensor, n, i, ctx.causal, p)
    p.baddbmm_(q, keys.mT, alpha=ctx.scale)
    if hidden is not None:
        p += hidden[n, :, : keys.shape[1]]
    if ctx.causal:
        p[..., i.start :] += p.new_full((q.shape[1], q.shape[1]), HIDDEN).triu_(1)
    return torch.softmax(p, 2, out=p)


class SumOverQueries:
    """Σ weightsᵀ x over blocks of queries, in the shape of `keys` (pairs, S, ·)."""

    def __init__(self, keys: Tensor, one_block: bool) -> None:
        # With the keys last, the product is twice as fast for long series.
        self.sums = None if one_block else keys.new_zeros(keys.mT.shape)

    def add(self, weights: Tensor, x: Tensor) -> None:
        if self.sums is None:
            self.product = torch.bmm(weights.mT, x)
        else:
            self.sums[..., : weights.shape[2]].baddbmm_(x.mT, weights)

    def total(self) -> Tensor:
        return self.product if self.sums is None else self.sums.mT


def block_size(x: Tensor, N: int, L: int, S: int, causal: bool) -> tuple[int, int]:
    """How many maps and how many of their queries to compute at a time.

    On a CPU each thread gets a separate map, which splits the work evenly for every operation.
    """
    if x.device.type != "cpu":
        most = kernels.at_once(x, _MOST_SCORES, numbers=4)
        rows = min(L, max(1, most // S))
        return min(N, max(1, most // (rows * S))), rows
    rows = min(L, max(1, _MOST_SCORES // S), _CAUSAL_ROWS if causal else L)
    return min(N, torch.get_num_threads() * max(1, _SCORES // (rows * S))), rows


def parts(total: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, total)) for i in range(0, total, size)]


def carve(scratch: Tensor, shape: tuple[int, ...]) -> Tensor:
    return scratch[: math.prod(shape)].view(shape)
