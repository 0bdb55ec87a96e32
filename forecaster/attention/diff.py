"""Differential attention: the difference of two softmax maps, so that what both attend to cancels.

Ye et al., "Differential Transformer", ICLR 2025, section 2.

    A = softmax(q1 k1ᵀ / √d) − λ softmax(q2 k2ᵀ / √d)       head = A v
    λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ_init            λ_init = 0.8 − 0.6 e^(−0.3 depth)
    out = W_o concat((1 − λ_init) RMSNorm(head))

q and k have width d = D / 2H, v has 2d; `depth` counts the layers of the stack from 0 (the paper
counts from 1 and subtracts 1). The four λ vectors (d,) belong to all heads of a layer and start as
N(0, 0.1²). RMSNorm is per head, with eps 1e-5 and one weight (2d,) for all heads. No projection
has a bias. Features h·2d .. (h+1)·2d of W_q and W_k hold the pair of head h, first q1, then q2.

The weights of a row sum to 1 − λ and may be negative. With λ = 0 it is full attention before the
norm. Time O(L·S·D), memory O(L·D): the maps are computed in blocks of rows, and again in the
backward pass unless the series is short. Strictly causal. The authors rotate q and k by position;
here the embedding encodes the position unless `rotary` is set.
"""

import math
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen
from forecaster.attention.common.definitions import attend
from forecaster.attention.common.kernels import accumulator, check_inputs, outside_graphs
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.rotary import QueryKey
from forecaster.attention.common.rows import (
    SumOverQueries,
    block_size,
    carve,
    parts,
    without_keys,
)
from forecaster.attention.common.tiles import HIDDEN
from forecaster.attention.full import full_attention
from forecaster.base.shapes import Bool, Float

_BY_BLOCKS = {"cpu"}  # devices on which blocks are faster than two calls of the fused kernel


def lambda_init(depth: int) -> float:
    """λ at the start of training in layer `depth`, counted from 0."""
    return 0.8 - 0.6 * math.exp(-0.3 * depth)


def definition(
    q1: Tensor,
    k1: Tensor,
    q2: Tensor,
    k2: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    lam: float | Tensor,
    scale: float | None = None,
) -> Tensor:
    """(softmax(q1 k1ᵀ / √d) − λ softmax(q2 k2ᵀ / √d)) v, each map with all its L x S weights."""
    lam = torch.as_tensor(lam, dtype=v.dtype, device=v.device).view(-1, 1, 1)
    return attend(q1, k1, v, seen, scale) - lam * attend(q2, k2, v, seen, scale)


def differential_attention(
    q1: Float[Tensor, "B H L d"],
    k1: Float[Tensor, "B H S d"],
    q2: Float[Tensor, "B H L d2"],
    k2: Float[Tensor, "B H S d2"],
    v: Float[Tensor, "B H S Ev"],
    *,
    lam: float | Float[Tensor, "..."],
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention by (q1, k1) minus `lam` times that by (q2, k2), both over the values v.

    `lam` is one number or one per head; `scale` defaults to d**-0.5. `key_mask` True is a real key;
    a query that sees none gives 0. Raises ValueError when the shapes do not fit, or for causal with
    L != S. The norm of the heads is not included.
    """
    check_inputs(q1, k1, v, causal, key_mask)
    if q1.shape != q2.shape or k1.shape != k2.shape:
        raise ValueError(
            f"both pairs must have the same shapes, got q1 {tuple(q1.shape)}, q2 "
            f"{tuple(q2.shape)}, k1 {tuple(k1.shape)}, k2 {tuple(k2.shape)}"
        )
    B, H, L, d = q1.shape
    kind = accumulator(q1.dtype)
    lam = torch.as_tensor(lam, dtype=kind, device=q1.device)
    if lam.shape not in {(), (H,)}:
        raise ValueError(f"lam must be one number or ({H},), one per head, got {tuple(lam.shape)}")
    scale = d**-0.5 if scale is None else scale
    if q1.device.type not in _BY_BLOCKS:
        first, second = (
            full_attention(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
            for q, k in ((q1, k1), (q2, k2))
        )
        return (first - lam.expand(H)[:, None, None] * second).to(v.dtype)
    hidden = None
    if key_mask is not None:
        hidden = torch.zeros(key_mask.shape, dtype=kind).masked_fill_(~key_mask, HIDDEN)
        hidden = hidden.repeat_interleave(H, 0)[:, None]
    attend = outside_graphs(_Difference.apply)  # loops over blocks
    with torch.autocast("cpu", enabled=False):
        q, k = (torch.stack(pair).to(kind).flatten(1, 2) for pair in ((q1, q2), (k1, k2)))
        values = v.to(kind).flatten(0, 1)
        out: Tensor = attend(q, k, values, lam.expand(B, H).flatten(), scale, causal, hidden)
    out = out.view(B, H, L, -1).to(v.dtype)
    return out if key_mask is None else without_keys(out, causal, key_mask)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    # the pairs halve the width of q and k, but not of v
    (q1, q2), (k1, k2) = (x.chunk(2, dim=3) for x in (q, k))
    lam = torch.full((), 0.5, device=q.device)
    tensors = {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "v": v, "lam": lam}
    return differential_attention, tensors


class DifferentialAttention(MultiHeadAttention):
    """`differential_attention` between projections without bias; each head is normalised alone.

    `rotary` and `qk_norm` are those of full, for each half of a head.
    """

    about = About(
        "Ye et al., Differential Transformer", 2024, "L·S·D",
        weights="content",
        no_export="it takes a few series at a time, so their number must be known",
    )  # fmt: skip
    core = Core("every pair of steps", _call)

    def __init__(self, place: Place, *, rotary: bool = False, qk_norm: bool = False) -> None:
        D, E = place.width, place.head_width
        if E % 2:
            raise ValueError(
                "differential attention halves each head and needs an even head width, got "
                f"width={D} and heads={place.heads}, which gives heads of width {E}"
            )
        super().__init__(place, bias=False)
        self.query_key = QueryKey(place, E // 2, rotary=rotary, qk_norm=qk_norm)
        self.lambda_queries = nn.Parameter(0.1 * torch.randn(2, E // 2))
        self.lambda_keys = nn.Parameter(0.1 * torch.randn(2, E // 2))
        self.norm = nn.RMSNorm(E, eps=1e-5)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        halves = zip(q.chunk(2, dim=3), k.chunk(2, dim=3), strict=True)
        (q1, k1), (q2, k2) = (self.query_key(*half) for half in halves)
        start = lambda_init(self.place.depth)
        out = differential_attention(q1, k1, q2, k2, v, lam=self._lambda() + start, **seen)
        normed: Tensor = (1 - start) * self.norm(out.to(self.norm.weight.dtype))
        return normed

    def _lambda(self) -> Tensor:
        """The learned part of λ, in float32 at least."""
        queries, keys = (
            x.to(accumulator(x.dtype)) for x in (self.lambda_queries, self.lambda_keys)
        )
        exponentials = (queries * keys).sum(1).exp()
        return exponentials[0] - exponentials[1]


class _Difference(torch.autograd.Function):
    """(P1 − λ P2) v for q (2, N, L, d), k (2, N, S, d), v (N, S, Ev), lam (N,) on a CPU.

    With g = ∂out, G = g vᵀ, c = 1 and −λ, and r the row sums of P ⊙ G, for each of the two maps:

        T = P ⊙ (G − r)      ∂q = c scale T k      ∂k = c scale Tᵀ q      ∂c = Σ r
        ∂v = (P1 − λ P2)ᵀ g

    Both maps of a block are computed together, so that threads wait less for each other. They use
    the same memory for every block, because new memory is slow on a CPU. Maps of short series, no
    larger than q, k, v and out together, are kept for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lam: Tensor,
        scale: float,
        causal: bool,
        hidden: Tensor | None,
    ) -> Tensor:
        maps_of = _Maps(scale, causal, hidden)
        (N, S, Ev), L = v.shape, q.shape[2]
        pairs, rows = block_size(v, N, L, S, causal)
        keep = rows == L and 2 * Ev >= S and any(ctx.needs_input_grad)
        maps = v.new_empty(2 * (N if keep else pairs) * rows * S)
        scratch = v.new_empty(pairs * rows * S)
        out = v.new_empty(N, L, Ev)
        for n in parts(N, pairs):
            keys = k[:, n].flatten(0, 1)
            for i in parts(L, rows):
                into = maps[2 * n.start * L * S :] if keep else maps
                weights = _difference(maps_of(q, keys, n, i, into), lam[n], scratch)
                torch.bmm(weights, v[n, : weights.shape[2]], out=out[n, i])
        ctx.save_for_backward(q, k, v, lam, maps if keep else None)
        ctx.maps_of = maps_of
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, lam, saved = ctx.saved_tensors
        maps_of: _Maps = ctx.maps_of
        grad = grad.contiguous()
        (_, N, L, _), S = q.shape, k.shape[2]
        pairs, rows = block_size(v, N, L, S, maps_of.causal)
        maps, both = (v.new_empty(2 * pairs * rows * S) for _ in range(2))
        scratch = v.new_empty(pairs * rows * S)
        grad_q, grad_k, grad_v, grad_lam = (torch.empty_like(x) for x in (q, k, v, lam))
        factor = maps_of.scale * torch.stack([torch.ones_like(lam), -lam])[..., None, None]
        for n in parts(N, pairs):
            keys = k[:, n].flatten(0, 1)
            sum_k = SumOverQueries(keys, rows == L)
            sum_v = SumOverQueries(v[n], rows == L)
            grad_lam[n] = 0
            for i in parts(L, rows):
                if saved is None:
                    p = maps_of(q, keys, n, i, maps)
                else:
                    p = carve(saved[2 * n.start * L * S :], (2, len(lam[n]), L, S))
                g = torch.bmm(grad[n, i], v[n, : p.shape[3]].mT, out=carve(scratch, p.shape[1:]))
                t = torch.mul(p, g, out=carve(both, p.shape))
                r = t.sum(3, keepdim=True)
                t.addcmul_(p, r, value=-1)
                grad_lam[n] -= r[1].sum((1, 2))
                t, c = t.flatten(0, 1), factor[:, n]
                torch.mul(
                    torch.bmm(t, keys[:, : t.shape[2]]).view(2, -1, *q[0, 0, i].shape), c,
                    out=grad_q[:, n, i],
                )  # fmt: skip
                sum_k.add(t, (q[:, n, i] * c).flatten(0, 1))
                sum_v.add(_difference(p, lam[n], scratch), grad[n, i])
            grad_k[:, n] = sum_k.total().view_as(grad_k[:, n])
            grad_v[n] = sum_v.total()
        return grad_q, grad_k, grad_v, grad_lam, None, None, None


@dataclass(frozen=True)
class _Maps:
    scale: float
    causal: bool
    hidden: Tensor | None  # (N, 1, S), HIDDEN for a masked key, else 0

    def __call__(self, q: Tensor, keys: Tensor, n: slice, i: slice, scratch: Tensor) -> Tensor:
        """(2, n, i, keys) in `scratch`; when causal, keys after the last query are left out.

        `keys` (2n, S, d) holds the keys of the series and heads n, those of the first map first.
        """
        queries = q[:, n, i]
        keys = keys[:, : i.stop] if self.causal else keys
        p = carve(scratch, (*queries.shape[:3], keys.shape[1]))
        flat = p.flatten(0, 1)
        torch.baddbmm(flat, queries.flatten(0, 1), keys.mT, beta=0, alpha=self.scale, out=flat)
        if self.hidden is not None:
            p += self.hidden[n, :, : keys.shape[1]]
        if self.causal:
            rows = queries.shape[2]
            p[..., i.start :] += p.new_full((rows, rows), HIDDEN).triu_(1)
        return torch.softmax(p, 3, out=p)


def _difference(p: Tensor, lam: Tensor, scratch: Tensor) -> Tensor:
    """P1 − λ P2 of p (2, pairs, ·, ·) in `scratch`, for lam (pairs,)."""
    out = carve(scratch, p.shape[1:])
    return torch.addcmul(p[0], p[1], lam[:, None, None], value=-1, out=out)
