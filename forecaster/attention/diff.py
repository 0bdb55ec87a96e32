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
from typing import Unpack

import torch
from torch import Tensor, nn

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen
from forecaster.attention.common.definitions import attend
from forecaster.attention.common.kernels import accumulator, check_inputs
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.rotary import QueryKey
from forecaster.attention.common.rows import attention_by_rows
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
    B, H = q1.shape[:2]
    lam = torch.as_tensor(lam, dtype=accumulator(q1.dtype), device=q1.device)
    if lam.shape not in {(), (H,)}:
        raise ValueError(f"lam must be one number or ({H},), one per head, got {tuple(lam.shape)}")
    seen = Seen(causal=causal, key_mask=key_mask)
    if q1.device.type not in _BY_BLOCKS:
        pairs = (q1, k1), (q2, k2)
        first, second = (full_attention(q, k, v, **seen, scale=scale) for q, k in pairs)
        return (first - lam.expand(H)[:, None, None] * second).to(v.dtype)
    q, k = torch.stack((q1, q2)), torch.stack((k1, k2))
    return attention_by_rows(q, k, v, lam=lam.expand(B, H), **seen, scale=scale)


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
        kind, start = accumulator(self.lambda_keys.dtype), lambda_init(self.place.depth)
        one, two = (self.lambda_queries.to(kind) * self.lambda_keys.to(kind)).sum(1).exp()
        out = differential_attention(q1, k1, q2, k2, v, lam=one - two + start, **seen)
        normed: Tensor = (1 - start) * self.norm(out.to(self.norm.weight.dtype))
        return normed
