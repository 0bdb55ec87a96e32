"""Gated attention: full attention, and each head lets through a share of it that the step decides.

Qiu et al., "Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-
Free", NeurIPS 2025, section 2.2, the gate after the softmax attention (arXiv 2505.06708).

    head_i = σ(w·x_i + b) ⊙ Σ_j softmax_j(q_i·k_j / √E) v_j          causal: j <= i

x_i is the input of the layer at the step of the query, after its norm where the layer has it
before. The gate is one number per head or, with `elementwise`, one per feature. A head that finds
nothing can be silent, and need not put its weight on some useless step. It is full attention where
all gates are 1.

Time O(L·S·E), memory O(L·E): one call of the fused kernel, and one product per feature. Strictly
causal. The authors' projection of the gate has no bias in all of their models.
"""

from typing import Unpack

from torch import Tensor, nn

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen
from forecaster.attention.common.definitions import attend
from forecaster.attention.common.kernels import check_probability
from forecaster.attention.common.multihead import ProjectedAttention, split_heads
from forecaster.attention.full import full_attention
from forecaster.base.shapes import Bool, Float


def definition(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor, *, seen: Tensor, scale: float | None = None
) -> Tensor:
    """gate_i ⊙ Σ_j softmax_j(q_i·k_j / √E) v_j, with all L x S weights at once."""
    return gate * attend(q, k, v, seen, scale)


def gated_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    gate: Float[Tensor, "B H L #Ev"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L Ev"]:
    """`full_attention` times `gate`, one number per query and head or one per feature, too.

    Raises ValueError when the shapes do not fit, or for causal with L != S.
    """
    seen = Seen(causal=causal, key_mask=key_mask)
    out = full_attention(q, k, v, **seen, scale=scale, dropout_p=dropout_p)
    if gate.shape not in (out.shape, (*out.shape[:3], 1)):
        raise ValueError(
            f"gate must be (B, H, L, 1 or Ev), here {(*out.shape[:3], 1)} or {tuple(out.shape)}, "
            f"got {tuple(gate.shape)}"
        )
    return gate * out


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    return gated_attention, {"q": q, "k": k, "v": v, "gate": draw(*q.shape[:3], 1).sigmoid()}


class GatedAttention(ProjectedAttention):
    """Multi-head `gated_attention`; `dropout` of the attention weights acts in training only."""

    about = About(
        "Qiu et al., Gated Attention for Large Language Models", 2025, "L·S·D",
        weights="content", no_export="", rows_apart=True,
    )  # fmt: skip
    core = Core("every pair of steps", _call)

    def __init__(self, place: Place, *, elementwise: bool = False, dropout: float = 0.0) -> None:
        super().__init__(place)
        gates = place.width if elementwise else place.heads
        self.gate_projection = nn.Linear(place.width, gates)
        self.dropout = check_probability(dropout=dropout)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        gate = split_heads(self.gate_projection(query).sigmoid(), self.place.heads)
        dropout_p = self.dropout if self.training else 0.0
        q, k, v = self.projected(query, context)
        return self.merged(gated_attention(q, k, v, gate, **seen, dropout_p=dropout_p))
