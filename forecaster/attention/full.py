"""Full attention: every query sees every key.

Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1:

    out_i = Σ_j softmax_j(q_i·k_j / √E) v_j          causal: j <= i

Time O(L·S·E), memory O(L): one call of the fused kernel, never the L x S matrix of weights (but a
padded causal batch needs an L x S mask, and on a CPU dropout of weights needs the weights).
Strictly causal. The authors of Informer mask first and scale inside the softmax, which is the same.
"""

from typing import Unpack

from torch import Tensor

from forecaster.attention.base import About, Core, Effective, Place, Seen
from forecaster.attention.common import kernels
from forecaster.attention.common.definitions import attend
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.rotary import QueryKey
from forecaster.base.shapes import Bool, Float


def definition(
    q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor, scale: float | None = None
) -> Tensor:
    """out_i = Σ_j softmax_j(q_i·k_j / √E) v_j, with all L x S weights at once."""
    return attend(q, k, v, seen, scale)


def full_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention over all visible keys; `scale` defaults to E**-0.5.

    `key_mask` True is a real key; a query that sees none gives 0. `dropout_p` drops weights.
    Raises ValueError when the shapes do not fit, or for causal with L != S.
    """
    kernels.check_inputs(q, k, v, causal, key_mask)
    visible = kernels.visible_keys(causal, key_mask)
    causal = causal and visible is None  # otherwise the mask has it
    return kernels.softmax_attention(
        q, k, v, visible=visible, causal=causal, scale=scale, dropout_p=dropout_p
    )


class FullAttention(MultiHeadAttention):
    """Multi-head `full_attention`; `dropout` of the attention weights acts in training only.

    `rotary` and `qk_norm` turn and normalise queries and keys (common/rotary.py).
    """

    about = About(
        "Vaswani et al., Attention Is All You Need", 2017, "L·S·D",
        weights="content", no_export="", rows_apart=True,
    )  # fmt: skip
    core = Core.plain("every pair of steps", full_attention)

    def __init__(
        self, place: Place, *, dropout: float = 0.0, rotary: bool = False, qk_norm: bool = False
    ) -> None:
        super().__init__(place)
        self.query_key = QueryKey(place, place.head_width, rotary=rotary, qk_norm=qk_norm)
        self.dropout = kernels.check_probability(dropout=dropout)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        q, k = self.query_key(q, k)
        dropout_p = self.dropout if self.training else 0.0
        return full_attention(q, k, v, **seen, dropout_p=dropout_p)

    def amounts_to(self) -> Effective:
        return Effective("full", full=True)
