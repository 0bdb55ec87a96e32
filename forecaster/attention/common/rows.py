"""Softmax attention with a bias on the scores, or the difference of two, in blocks of rows.

    P = softmax(scale q kᵀ + b)        out = P v        of two maps: out = (P1 − λ P2) v

The fused kernel gives no gradient for a bias, and would need it as a whole L x S matrix for every
head and series. Here a block of rows holds its scores and its bias at a time, and the backward pass
computes them again, with g = ∂out, r the row sums of P ⊙ g vᵀ, and c = 1, for the second map −λ:

    T = P ⊙ (g vᵀ − r)      ∂q = c scale T k      ∂k = c scale Tᵀ q      ∂v = (Σ c P)ᵀ g
    ∂b = T                  ∂c = Σ r

A mechanism says what b is in a block, and sums T up for the gradient of what it is made from. Both
maps of a block are computed together, so that threads wait less for each other.
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
Bias = tuple[Tensor, InBlock, InBlock]
"""What b is made from, in the type that sums are taken in; how to write b, and to add ∂b."""


def attention_by_rows(
    q: Float[Tensor, "M B H L E"],
    k: Float[Tensor, "M B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    bias: Bias | None = None,
    lam: Float[Tensor, "B H"] | None = None,
    causal: bool,
    key_mask: Bool[Tensor, "B S"] | None,
    scale: float | None,
) -> Float[Tensor, "B H L Ev"]:
    """out of the module's docstring over the visible keys; `scale` is E**-0.5 if None.

    There are M = 2 maps with `lam`, else one. A query that sees no key gives 0.
    """
    B, H, L, E = q.shape[1:]
    kind = kernels.accumulator(v.dtype)
    scale = E**-0.5 if scale is None else scale
    hidden = None
    if key_mask is not None:
        hidden = torch.zeros(key_mask.shape, dtype=kind, device=q.device)
        hidden = hidden.masked_fill_(~key_mask, HIDDEN).repeat_interleave(H, 0)[:, None]
    tensor, *in_block = bias or (None,)
    attend = kernels.outside_graphs(_ByRows.apply)  # loops over blocks
    with torch.autocast(q.device.type, enabled=False):
        q, k = (x.to(kind).flatten(1, 2) for x in (q, k))
        values, shares = v.to(kind).flatten(0, 1), None if lam is None else lam.flatten()
        out: Tensor = attend(q, k, values, shares, tensor, in_block, scale, causal, hidden)
    out = out.view(B, H, L, -1).to(v.dtype)
    if key_mask is None:
        return out
    seen = key_mask.cumsum(1) if causal else key_mask.sum(1, keepdim=True)
    return out.masked_fill((seen == 0)[:, None, :, None], 0.0)


class _ByRows(torch.autograd.Function):
    """For q (M, N, L, E), k (M, N, S, E), v (N, S, Ev), lam (N,) or None, hidden (N, 1, S).

    All blocks use the same memory, because new memory is slow on a CPU. Two maps of short series,
    no larger than q, k, v and out together, are kept for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, lam: Tensor | None, tensor: Tensor | None,
        bias: list[InBlock], scale: float, causal: bool, hidden: Tensor | None,
    ) -> Tensor:  # fmt: skip
        (M, N, L, _), (_, S, Ev) = q.shape, v.shape
        ctx.bias, ctx.scale, ctx.causal = bias, scale, causal
        pairs, rows = block_size(v, N, L, S, causal)
        keep = M == 2 and rows == L and 2 * Ev >= S and any(ctx.needs_input_grad)
        maps = v.new_empty(M * (N if keep else pairs) * rows * S)
        scratch = maps if M == 1 else v.new_empty(pairs * rows * S)
        out = v.new_empty(N, L, Ev)
        for n in kernels.cuts(N, pairs):
            keys = k[:, n].flatten(0, 1)
            for i in kernels.cuts(L, rows):
                into = maps[2 * n.start * L * S :] if keep else maps
                p = _weights(ctx, q[:, n, i], keys, tensor, hidden, n, i, into)
                torch.bmm(_mixed(p, lam, n, scratch), v[n, : p.shape[3]], out=out[n, i])
        ctx.save_for_backward(q, k, v, lam, tensor, hidden, maps if keep else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, lam, tensor, hidden, saved = ctx.saved_tensors
        (M, N, L, _), S, grad = q.shape, v.shape[1], grad.contiguous()
        pairs, rows = block_size(v, N, L, S, ctx.causal)
        maps, both = (v.new_empty(M * pairs * rows * S) for _ in range(2))
        scratch = both if M == 1 else v.new_empty(pairs * rows * S)
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        grad_lam = None if lam is None else torch.zeros_like(lam)
        grad_tensor = torch.zeros_like(tensor) if ctx.needs_input_grad[4] else None
        for n in kernels.cuts(N, pairs):
            keys, c = k[:, n].flatten(0, 1), ctx.scale
            if lam is not None:
                c = c * torch.stack([torch.ones_like(lam[n]), -lam[n]])[..., None, None]
            sum_k, sum_v = SumOverQueries(keys, rows == L), SumOverQueries(v[n], rows == L)
            for i in kernels.cuts(L, rows):
                queries, g = q[:, n, i], grad[n, i]
                if saved is None:
                    p = _weights(ctx, queries, keys, tensor, hidden, n, i, maps)
                else:
                    p = carve(saved[2 * n.start * L * S :], (2, len(g), L, S))
                t = torch.bmm(g, v[n, : p.shape[3]].mT, out=carve(scratch, p.shape[1:]))
                t = t.mul_(p[0])[None] if M == 1 else torch.mul(p, t, out=carve(both, p.shape))
                r = t.sum(3, keepdim=True)
                t.addcmul_(p, r, value=-1)
                product = torch.bmm(t.flatten(0, 1), keys[:, : p.shape[3]])
                torch.mul(product.view_as(queries), c, out=grad_q[:, n, i])
                sum_k.add(t.flatten(0, 1), (queries * c).flatten(0, 1))
                sum_v.add(_mixed(p, lam, n, scratch), g)
                if grad_lam is not None:
                    grad_lam[n] -= r[1].sum((1, 2))
                if grad_tensor is not None:
                    ctx.bias[1](grad_tensor, n, i, ctx.causal, t[0])
            grad_k[:, n] = sum_k.total().view_as(grad_k[:, n])
            grad_v[n] = sum_v.total()
        return grad_q, grad_k, grad_v, grad_lam, grad_tensor, None, None, None, None


def _weights(
    ctx: Any, q: Tensor, keys: Tensor, tensor: Tensor | None, hidden: Tensor | None, n: slice,
    i: slice, scratch: Tensor,
) -> Tensor:  # fmt: skip
    """P (M, n, i, keys) in `scratch`; when causal, keys after the last query are left out."""
    keys = keys[:, : i.stop] if ctx.causal else keys
    p = carve(scratch, (*q.shape[:3], keys.shape[1]))
    if ctx.bias:
        ctx.bias[0](tensor, n, i, ctx.causal, p[0])
    beta = 1 if ctx.bias else 0
    p.flatten(0, 1).baddbmm_(q.flatten(0, 1), keys.mT, beta=beta, alpha=ctx.scale)
    if hidden is not None:
        p += hidden[n, :, : keys.shape[1]]
    if ctx.causal:
        p[..., i.start :] += p.new_full((q.shape[2], q.shape[2]), HIDDEN).triu_(1)
    return torch.softmax(p, 3, out=p)


def _mixed(p: Tensor, lam: Tensor | None, n: slice, scratch: Tensor) -> Tensor:
    """P, or P1 − λ P2 in `scratch`, of p (M, n, ·, ·)."""
    if lam is None:
        return p[0]
    return torch.addcmul(p[0], p[1], lam[n, None, None], value=-1, out=carve(scratch, p.shape[1:]))


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


def carve(scratch: Tensor, shape: tuple[int, ...]) -> Tensor:
    return scratch[: math.prod(shape)].view(shape)
