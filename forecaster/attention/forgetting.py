"""Forgetting attention: full attention whose scores fall by what the steps in between forget.

Lin, Nikishin, He, Courville, "Forgetting Transformer: Softmax Attention with a Forget Gate", ICLR
2025, section 3 (arXiv 2503.02130).

    f_t = σ(w_f·x_t + b_f)                                          one gate per head, 0 < f_t < 1
    out_i = Σ_j softmax_j(q_i·k_j / √E + Σ_{t = j+1..i} ln f_t) v_j          causal: j <= i

Without `causal`, a key after the query counts the gates i+1..j, so both sides lose what lies
between; this form is ours, because the paper is causal throughout. It is full attention where all
gates are 1. A masked step forgets nothing.

Time O(L·S·E); memory O(L·E): scores are computed in blocks of rows, and again in the backward pass
(common/rows.py). The sum of gates is a difference of two prefix sums, taken before it is added to a
score, so it is exact to the precision of the sums themselves. Strictly causal.

The gates start at f = 1 - 1/(L + 1), with w_f = 0 and b_f = ln L: near full attention, where the
first step weighs 1/e of what the last does. The authors start w_f as any projection and b_f at 0,
so that f is about a half, which hides all but ten steps. Their output gate and norm, and their
shift of keys and values, are not part of the mechanism.
"""

import math
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen, SelfAttention
from forecaster.attention.common import kernels
from forecaster.attention.common.definitions import positions, softmax
from forecaster.attention.common.multihead import ProjectedAttention
from forecaster.attention.common.rows import attention_by_rows
from forecaster.base.shapes import Bool, Float

_LEAST = -1e3  # of ln f: hides all before a step, and leaves sums that hold it four digits


def definition(
    q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor, *, seen: Tensor, scale: float | None = None
) -> Tensor:
    """Full attention with the sum of the gates between i and j added to each score."""
    real = seen.any(2)
    i, j = positions(q.shape[2], q.shape[2], q.device)
    t = j[:, None, None]
    between = (torch.minimum(i, j) < t) & (t <= torch.maximum(i, j))  # (t, i, j)
    lost = torch.einsum("bht,tij->bhij", log_gate * real, between.to(q.dtype))
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return softmax(scale * q @ k.mT + lost, seen) @ v


def forgetting_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    log_gate: Float[Tensor, "B H L"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention with the logarithms of forget gates, `log_gate` <= 0; see the module.

    `scale` defaults to E**-0.5. `key_mask` True is a real key; a query that sees none gives 0.
    Raises ValueError when the shapes do not fit, or for L != S.
    """
    kernels.check_self_inputs(q, k, v, causal, key_mask)
    if log_gate.shape != q.shape[:3]:
        raise ValueError(
            f"log_gate must be (B, H, L) = {tuple(q.shape[:3])}, got {tuple(log_gate.shape)}"
        )
    log_gate = log_gate.to(kernels.accumulator(v.dtype)).clamp(min=_LEAST)
    if key_mask is not None:
        log_gate = log_gate.masked_fill(~key_mask[:, None], 0.0)
    sums = kernels.prefix_sum(log_gate[..., None])[..., 0].flatten(0, 1)
    seen = Seen(causal=causal, key_mask=key_mask)
    bias = sums, _write, _add_gradient
    return attention_by_rows(q[None], k[None], v, bias=bias, **seen, scale=scale)


def _write(sums: Tensor, n: slice, i: slice, causal: bool, out: Tensor) -> None:
    """F_i - F_j for keys before the query, F_j - F_i for others, from prefix sums F (N, L)."""
    torch.sub(sums[n, i, None], sums[n, None, : out.shape[2]], out=out)
    if not causal:
        out.mul_(_side(out, i))


def _add_gradient(total: Tensor, n: slice, i: slice, causal: bool, grad: Tensor) -> None:
    if not causal:  # otherwise a row adds up to 0, as F_i is the same for all its keys
        grad = grad.mul_(_side(grad, i))
        total[n, i] += grad.sum(2)
    total[n, : grad.shape[2]] -= grad.sum(1)


def _side(x: Tensor, i: slice) -> Tensor:
    """1 for keys up to the query, -1 for later ones, (queries, keys)."""
    return 1 - 2 * torch.ones_like(x[0]).triu_(i.start + 1)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    log_gate = F.logsigmoid(3.5 + draw(*q.shape[:3]))
    return forgetting_attention, {"q": q, "k": k, "v": v, "log_gate": log_gate}


class ForgettingAttention(SelfAttention, ProjectedAttention):
    """Multi-head `forgetting_attention`; `remember` is b_f at the start (None: ln L)."""

    about = About(
        "Lin et al., Forgetting Transformer", 2025, "L·S·D",
        weights="content",
        no_export="it takes a few series at a time, so their number must be known",
    )  # fmt: skip
    core = Core("every pair of steps", _call)

    def __init__(self, place: Place, *, remember: float | None = None) -> None:
        super().__init__(place)
        self.gate_projection = nn.Linear(place.width, place.heads)
        nn.init.zeros_(self.gate_projection.weight)
        start = math.log(place.key_length) if remember is None else remember
        nn.init.constant_(self.gate_projection.bias, start)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        log_gate = F.logsigmoid(self.gate_projection(context).mT)
        q, k, v = self.projected(query, context)
        return self.merged(forgetting_attention(q, k, v, log_gate, **seen))
