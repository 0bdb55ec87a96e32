"""Retention: linear attention whose weights fall by a fixed factor per step, one for each head.

Sun et al., "Retentive Network: A Successor to Transformer for Large Language Models", 2023, section
2 (arXiv 2307.08621).

    out_i = Σ_j γ^(i - j) q_i·k_j / √E v_j          causal: j <= i          γ_h = 1 - 2^(-5 - h)
    block = W_o (SiLU(x W_g) ⊙ norm(out))           norm: RMS of each head

Queries and keys turn by their positions (`rotary`). Nothing is divided by the sum of the weights:
the norm of each head does that. Without `causal` the exponent is |i - j|; this form is ours. It is
unnormalised linear attention for γ = 1, and never full attention. A masked step decays nothing.

Time O(L·E²), memory O(L·E): chunks of steps as products of matrices, and one state (E x E) per
chunk (common/recurrence.py). Strictly causal. The authors normalise the heads by GroupNorm, in
their later code by RMSNorm, as here; their scaling of weights and of sums cancels in the norm.
"""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention import ssd
from forecaster.attention.base import About, Call, Core, Draw, Place, Seen, SelfAttention
from forecaster.attention.common.kernels import accumulator, at_least_one
from forecaster.attention.common.multihead import ProjectedAttention, split_heads
from forecaster.attention.common.recurrence import recurrent
from forecaster.attention.common.rotary import QueryKey, rms_norm
from forecaster.base.shapes import Bool, Float


def definition(
    q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor, decay: Tensor, scale: float | None = None
) -> Tensor:
    """out_i = Σ_j γ^(i - j) q_i·k_j / √E v_j, with all L x L weights at once."""
    log_decay = decay.to(q.dtype).log()[:, None].expand(*q.shape[:3])
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return ssd.definition(q, k, v, log_decay, seen=seen, scale=scale)


def retention_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    *,
    decay: Float[Tensor, "..."],
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Σ_j γ^(i - j) q_i·k_j v_j over the visible keys, `decay` = γ of each head, 0 <= γ <= 1.

    `scale` defaults to E**-0.5. `key_mask` True is a real key; a query that sees none gives 0.
    Raises ValueError when the shapes do not fit, or for L != S.
    """
    if decay.shape != q.shape[1:2]:
        raise ValueError(f"decay must be (H,) = {(q.shape[1],)}, got {tuple(decay.shape)}")
    log_decay = decay.to(accumulator(v.dtype)).log()[:, None].expand(*q.shape[:3])
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return recurrent(q, k, v, log_decay, causal=causal, key_mask=key_mask, scale=scale)


def decays(heads: int, reach: float = 32.0) -> Tensor:
    """γ of heads that reach 32, 64, 128 steps and so on: 1 - 2^(-5 - h)."""
    return 1 - 0.5 ** torch.arange(heads, dtype=torch.float32) / reach


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    return retention_attention, {"q": q, "k": k, "v": v, "decay": decays(q.shape[1]).to(q.device)}


class RetentionAttention(SelfAttention, ProjectedAttention):
    """Multi-scale `retention_attention` with its norm and gate; `rotary` turns q and k.

    `reach` is 1 / (1 - γ) of the first head, at least 1; that of each further head is twice as far.
    """

    about = About("Sun et al., Retentive Network", 2023, "L·E·D", weights="content", no_export="")
    core = Core("summaries of many steps", _call)

    def __init__(self, place: Place, *, rotary: bool = True, reach: float = 32.0) -> None:
        super().__init__(place)
        at_least_one(reach=reach)
        self.query_key = QueryKey(place, place.head_width, rotary=rotary, qk_norm=False)
        self.gate_projection = nn.Linear(place.width, place.width)
        self.rate: Tensor  # 1 - γ, as half precision would round γ to 1
        self.register_buffer("rate", 1 - decays(place.heads, reach), persistent=False)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        q, k, v = self.projected(query, context)
        q, k = self.query_key(q, k)
        v = v.to(accumulator(v.dtype))  # sums may exceed float16 before the norm
        decay = 1 - self.rate.to(v.dtype)
        out = rms_norm(retention_attention(q, k, v, decay=decay, **seen))
        gate = split_heads(F.silu(self.gate_projection(query)), self.place.heads)
        return self.merged(gate * out.to(gate.dtype))
