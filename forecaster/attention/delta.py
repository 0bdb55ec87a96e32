"""Gated delta rule: a memory that forgets, and that replaces what it holds under a key.

Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", ICLR 2025,
section 3 (arXiv 2412.06464).

    S_t = a_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ          out_t = S_tᵀ q_t
    q, k, v = SiLU(conv(x W)), q and k of length 1     β = σ(x W_b)     a = exp(-A softplus(x W_a))
    block = W_o (SiLU(x W_g) ⊙ norm(out))               norm: RMS of each head, learned

S (E x Ev) is a memory for each head: a_t forgets, and before a step writes v_t under k_t, it erases
a share β_t of what is there. It is the plain delta rule for a = 1; for a = 1, β = 1 and orthonormal
keys, unnormalised linear attention; nothing is written for β = 0. It is never full attention.

Without `causal`, the rule also runs from the end, and what a step writes itself, β_t k_t v_tᵀ,
counts once; this form is ours. A masked step neither writes nor forgets.

Time O(L·E²), memory O(L·E): chunks of steps in the WY form, where one triangular system
gives all that a chunk writes (common/recurrence.py). Strictly causal; the convolution reads
`taps` steps, a step and those before it, or, without `causal`, those around it.
"""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen, SelfAttention
from forecaster.attention.common.definitions import real_keys
from forecaster.attention.common.kernels import at_least_one
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.attention.common.recurrence import Decay, ShortConvolution, recurrent
from forecaster.attention.common.rotary import rms_norm
from forecaster.base.shapes import Bool, Float

_EPS = 1e-6  # the least length of a key to divide by, as float16 holds it


def definition(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, *, seen: Tensor, causal: bool
) -> Tensor:
    """The recurrence step by step, in one direction or in both."""
    real = real_keys(seen)[:, :, 0, :, None]
    a, b = (log_decay[..., None] * real).exp(), beta[..., None] * real

    def run(steps: range) -> Tensor:
        state, outs = q.new_zeros(*k.shape[:2], k.shape[3], v.shape[3]), {}
        for t in steps:
            key, value, rate = k[:, :, t, :, None], v[:, :, t, None], b[:, :, t, None]
            state = a[:, :, t, None] * state
            state = state + rate * key @ (value - key.mT @ state)
            outs[t] = (q[:, :, t, None] @ state)[:, :, 0]
        return torch.stack([outs[t] for t in range(len(steps))], 2)

    steps = range(q.shape[2])
    if causal:
        return run(steps)
    return run(steps) + run(steps[::-1]) - b * (q * k).sum(3, keepdim=True) * v


def gated_delta_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    log_decay: Float[Tensor, "B H L"],
    beta: Float[Tensor, "B H L"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """The gated delta rule with `log_decay` = ln a <= 0 and 0 <= `beta` <= 1; see the module.

    Keys should have length 1: beyond √2 a memory may grow without bound. `key_mask` True is a real
    key; a query that sees none gives 0. Raises ValueError when the shapes do not fit, or for
    L != S.
    """
    return recurrent(q, k, v, log_decay, beta, causal=causal, key_mask=key_mask)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    gates = (draw(*q.shape[:3]) for _ in range(2))
    log_decay, beta = (F.logsigmoid(3 + next(gates)), next(gates).sigmoid())
    q, k = F.normalize(q, dim=3), F.normalize(k, dim=3)
    return gated_delta_attention, {"q": q, "k": k, "v": v, "log_decay": log_decay, "beta": beta}


class GatedDeltaAttention(SelfAttention):
    """`gated_delta_attention` with its convolution of `taps` steps, gates and norm."""

    about = About(
        "Yang et al., Gated Delta Networks", 2025, "L·E·D",
        weights="content", no_export="ONNX cannot solve a triangular system",
    )  # fmt: skip
    core = Core("summaries of many steps", _call)

    def __init__(self, place: Place, *, taps: int = 4) -> None:
        super().__init__(place)
        at_least_one(taps=taps)
        D = place.width
        self.in_projection = nn.Linear(D, 3 * D, bias=False)
        self.convolution = ShortConvolution(3 * D, taps)
        self.decay = Decay(place)
        self.beta_projection = nn.Linear(D, place.heads, bias=False)
        self.gate_projection = nn.Linear(D, D, bias=False)
        self.norm = nn.Parameter(torch.ones(place.head_width))
        self.out_projection = nn.Linear(D, D, bias=False)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        heads = self.place.heads
        steps = self.convolution(self.in_projection(query), **seen)
        q, k, v = (split_heads(x, heads) for x in steps.chunk(3, 2))
        q, k = (F.normalize(x, dim=3, eps=_EPS) for x in (q, k))
        log_decay, _ = self.decay(query)
        beta = self.beta_projection(query).mT.sigmoid()
        out = gated_delta_attention(q, k, v, log_decay, beta, **seen)
        gate = split_heads(F.silu(self.gate_projection(query)), heads)
        out = gate * rms_norm(out, self.norm).to(gate.dtype)
        merged: Tensor = self.out_projection(merge_heads(out, self.place.mix))
        return merged
