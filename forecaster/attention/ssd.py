"""State space duality: a state space model with one decay per head, computed as attention.

Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
State Space Duality", ICML 2024 (Mamba-2), sections 3 to 7 (arXiv 2405.21060).

    h_t = a_t h_{t-1} + B_t (Δ_t x_t)ᵀ       y_t = C_tᵀ h_t + d x_t       a_t = exp(-A Δ_t)
    x, B, C = SiLU(conv(u W))                Δ = softplus(u W_Δ + b)      z = u W_z
    block = W_o norm(y ⊙ SiLU(z))            norm: RMS, learned

which is out_i = Σ_j a_(j+1) ... a_i C_i·B_j Δ_j x_j: attention with C as the query, B as the key,
Δ x as the value, and weights that fall by what the input says. B and C (n numbers, `state`) are
shared by the heads. It is retention where a is constant, and never full attention.

Without `causal`, a key after the query decays by a_i ... a_(j-1), as if the model also ran from the
end, with the step itself once; this form is ours. A masked step neither writes nor decays.

Time O(L·n·D), memory O(L·D): chunks of steps as products of matrices, one state (n x E) per
chunk and head (common/recurrence.py). Strictly causal; the convolution reads `taps` steps, a step
and those before it, or, without `causal`, those around it. The authors double the width within the
block; here the layer's feed-forward has that place.
"""

from functools import partial
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen, SelfAttention
from forecaster.attention.common.definitions import positions
from forecaster.attention.common.kernels import at_least_one
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.attention.common.recurrence import Decay, ShortConvolution, recurrent
from forecaster.attention.common.rotary import rms_norm
from forecaster.base.shapes import Bool, Float


def definition(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *, seen: Tensor, scale: float = 1.0
) -> Tensor:
    """out_i = Σ_j a_(j+1) ... a_i q_i·k_j v_j, for later keys a_i ... a_(j-1), with all L x L
    weights at once."""
    i, j = positions(q.shape[2], q.shape[2], q.device)
    t = j[:, None, None]
    between = ((j < t) & (t <= i)) | ((i <= t) & (t < j))  # (t, i, j)
    decay = torch.einsum("bht,tij->bhij", log_decay * seen.any(2), between.to(q.dtype)).exp()
    return scale * (q @ k.mT) * decay * seen @ v


def state_space_attention(
    q: Float[Tensor, "B H L n"],
    k: Float[Tensor, "B H L n"],
    v: Float[Tensor, "B H L Ev"],
    log_decay: Float[Tensor, "B H L"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
    scale: float = 1.0,
) -> Float[Tensor, "B H L Ev"]:
    """Σ_j a_(j+1) ... a_i q_i·k_j v_j over the visible keys, `log_decay` = ln a <= 0.

    q is C, k is B and v is Δ x of the paper. `key_mask` True is a real key; a query that sees none
    gives 0. Raises ValueError when the shapes do not fit, or for L != S.
    """
    return recurrent(q, k, v, log_decay, causal=causal, key_mask=key_mask, scale=scale)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    log_decay = F.logsigmoid(3 + draw(*q.shape[:3]))
    function = partial(state_space_attention, scale=q.shape[3] ** -0.5)
    return function, {"q": q, "k": k, "v": v, "log_decay": log_decay}


class StateSpaceAttention(SelfAttention):
    """`state_space_attention` with its convolution of `taps` steps, gate and norm.

    `state` is n, the numbers that a state holds for each feature of a head.
    """

    about = About(
        "Dao and Gu, Transformers are SSMs", 2024, "L·state·D", weights="content", no_export=""
    )
    core = Core("summaries of many steps", _call)

    def __init__(self, place: Place, *, state: int = 64, taps: int = 4) -> None:
        super().__init__(place)
        at_least_one(state=state, taps=taps)
        D, self.state = place.width, state
        self.in_projection = nn.Linear(D, D + 2 * state, bias=False)
        self.convolution = ShortConvolution(D + 2 * state, taps)
        self.decay = Decay(place)
        self.skip = nn.Parameter(torch.ones(place.heads))
        self.gate_projection = nn.Linear(D, D, bias=False)
        self.norm = nn.Parameter(torch.ones(D))
        self.out_projection = nn.Linear(D, D, bias=False)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        D, n, H = self.place.width, self.state, self.place.heads
        x, k, q = self.convolution(self.in_projection(query), **seen).split([D, n, n], 2)
        if (mask := seen["key_mask"]) is not None:  # the convolution's bias is not an observation
            x = x.masked_fill(~mask[..., None], 0.0)
        log_decay, step = self.decay(query)
        v = split_heads(x, H).to(step.dtype)  # sums may exceed float16 before the norm
        q, k = (a[:, None].expand(-1, H, -1, -1) for a in (q, k))
        out = state_space_attention(q, k, step[..., None] * v, log_decay, **seen)
        out = out + self.skip[:, None, None].to(v.dtype) * v
        out = out * split_heads(F.silu(self.gate_projection(query)), H)
        normed = rms_norm(merge_heads(out, self.place.mix), self.norm)
        merged: Tensor = self.out_projection(normed.to(query.dtype))
        return merged
