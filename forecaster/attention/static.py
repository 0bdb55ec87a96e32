"""Static attention: learned weights for every pair of positions, the same for every series.

    W_ij = softplus(A_ij) / Σ_j' softplus(A_ij')        over the keys j' that query i sees
    out_i = Σ_j W_ij v_j

A (H, L, S) is learned. It is the control that shows the value of content: it learns which position
looks where, but no query is compared with a key. Yue et al., "OLinear", NeurIPS 2025, mix series
with such a matrix (NormLin) and find it as good as attention there; here it stands between W_v and
W_o, with one matrix for each head.

A starts at -3 everywhere, so training starts from `mean`; OLinear draws N(0, 1). Far below zero, a
step of A moves ln W as much as in a softmax; at zero by 0.72 of that, and above by less and less.
A shorter input uses the first rows and columns; a longer input is refused. Below -87, softplus(A)
is 0 in float32.

Time O(L·S·E); memory O(L·S) for all series of a batch together. Strictly causal. It is never full
attention.
"""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import About, Attention, Call, Core, Draw, Place, Seen
from forecaster.attention.common.kernels import accumulator, check_visibility
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.base.shapes import Bool, Float

START = -3.0  # of A: below zero a step of it moves ln W as in a softmax (see above)
LONGEST = 2048
"""The largest number of positions, with 4 million weights for each head."""


def definition(v: Tensor, A: Tensor, *, seen: Tensor) -> Tensor:
    """out_i = Σ_j softplus(A_ij) v_j / Σ_j softplus(A_ij), with weights for each series."""
    weights = A.exp().log1p() * seen
    total = weights.sum(3, keepdim=True)
    return weights / (total + (total == 0)) @ v


def static_attention(
    v: Float[Tensor, "B H S Ev"],
    A: Float[Tensor, "H L S"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """The mean of the visible values with the weights softplus(A) >= 0, in float32 at least.

    `key_mask` True is a real key; a query that sees none gives 0. Raises ValueError when the
    shapes do not fit, or for causal with L != S.
    """
    if v.ndim != 4 or A.ndim != 3 or (A.shape[0], A.shape[2]) != (v.shape[1], v.shape[2]):
        raise ValueError(
            "v must be (batch, heads, keys, width) and A (heads, queries, keys), got "
            f"v {tuple(v.shape)}, A {tuple(A.shape)}"
        )
    check_visibility(v.shape[0], A.shape[1], A.shape[2], causal, key_mask)
    kind = accumulator(v.dtype)
    with torch.autocast(v.device.type, enabled=False):
        weights = F.softplus(A.to(kind))
        if causal:
            weights = weights.tril()
        values = v.to(kind)
        if key_mask is None:
            total = weights.sum(2)[None, :, :, None]
        else:
            values = values.masked_fill(~key_mask[:, None, :, None], 0.0)
            total = torch.einsum("hls,bs->bhl", weights, key_mask.to(kind))[..., None]
        out = torch.einsum("hls,bhse->bhle", weights, values) / (total + (total == 0))
    return out.to(v.dtype)


def check_length(name: str, length: int) -> None:
    """Raise ValueError for more positions than the mechanism takes."""
    if length > LONGEST:
        raise ValueError(
            f"attention {name!r} learns a weight for every pair of positions and takes at most "
            f"{LONGEST} positions, got {length}: cut windows into fewer tokens, or choose another "
            "attention"
        )


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    H, L, S = q.shape[1], q.shape[2], k.shape[2]
    check_length("static", max(L, S))
    return static_attention, {"v": v, "A": draw(H, L, S)}


class StaticAttention(Attention):
    """`static_attention` between W_v and W_o, without W_q and W_k, which it does not use."""

    about = About(cost="L·S·D", weights="positions", no_export="")
    core = Core("every pair of steps", _call)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        check_length("static", max(place.query_length, place.key_length))
        self.value_projection = nn.Linear(place.width, place.width)
        self.out_projection = nn.Linear(place.width, place.width)
        shape = place.heads, place.query_length, place.key_length
        self.scores = nn.Parameter(torch.full(shape, START))

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        L, S = query.shape[1], context.shape[1]
        self.place.hold(L, S, "static has weights")
        v = split_heads(self.value_projection(context), self.place.heads)
        out = static_attention(v, self.scores[:, :L, :S], **seen)
        projected: Tensor = self.out_projection(merge_heads(out, self.place.mix))
        return projected
