"""Mean attention: every query gives all visible keys the same weight.

    out_i = (1/n) Σ_j v_j                            causal: (1/(i+1)) Σ_{j<=i} v_j

The control that shows the value of attention weights: it moves information through time like the
others, but cannot choose. Time and memory O(L·E). Strictly causal.
"""

from typing import Unpack

from torch import Tensor, nn

from forecaster.attention.base import About, Attention, Core, Place, Seen
from forecaster.attention.common.kernels import check_inputs, visible_mean
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.base.shapes import Bool, Float


def definition(q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor) -> Tensor:
    """out_i = (1/n) Σ_j v_j, with all L x S weights at once."""
    weights = seen.to(v.dtype)
    return weights / weights.sum(3, keepdim=True).clamp(min=1) @ v


def mean_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """The mean of the visible values; of q and k only the shapes matter.

    `key_mask` True is a real key; a query that sees none gives 0. Raises ValueError when the
    shapes do not fit, or for causal with L != S.
    """
    check_inputs(q, k, v, causal, key_mask)
    mean = visible_mean(v, causal, key_mask)
    return mean.to(v.dtype).expand(-1, -1, q.shape[2], -1)


class MeanAttention(Attention):
    """`mean_attention` between W_v and W_o, without W_q and W_k, which it does not use."""

    about = About(cost="L·D", weights="nothing", no_export="")
    core = Core.plain("summaries of many steps", mean_attention)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.value_projection = nn.Linear(place.width, place.width)
        self.out_projection = nn.Linear(place.width, place.width)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        q, k = (split_heads(x, self.place.heads) for x in (query, context))
        v = split_heads(self.value_projection(context), self.place.heads)
        out = mean_attention(q, k, v, **seen)
        projected: Tensor = self.out_projection(merge_heads(out, self.place.mix))
        return projected
