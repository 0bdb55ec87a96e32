"""Single-headed attention: one head as wide as the model, and only the query is projected.

Merity, "Single Headed Attention RNN: Stop Thinking With Your Head", 2019, and its code.

    q_i = σ(a_q) ⊙ LayerNorm(W_q x_i + b_q)        k_j = σ(a_k) ⊙ y_j        v_j = g ⊙ y_j
    [c; f] = W_1 σ(a_v) + b_1                      g = σ(f) ⊙ tanh(c)
    out_i = Σ_j softmax_j(q_i·k_j / √D) v_j        causal: j <= i

y is the context; in self-attention it is x. W_q (D, D) is the only product with the sequence. The
gates a_q, a_k, a_v (D,) start at 0; W_q and W_1 (2D, D) start as N(0, (0.1/√D)²), their biases as
0, and the LayerNorm (eps 1e-12, in half precision 1e-5) as 1 and 0. So g starts near ±0.025: at
first the block adds almost nothing, and the residual path carries the signal. g does not depend on
the input.

Time O(L·S·D), memory O(L·D). The core is full attention with one head. Strictly causal. The
authors' further gate of the values and their dropout of q and v are not implemented.
"""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import About, Attention, Call, Core, Draw, Place, Seen
from forecaster.attention.common.rotary import QueryKey
from forecaster.attention.full import definition as definition
from forecaster.attention.full import full_attention
from forecaster.base.shapes import Bool, Float


def single_head_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """`full_attention` with H = 1. Raises ValueError for more heads or shapes that do not fit."""
    if q.ndim == 4 and q.shape[1] != 1:
        raise ValueError(
            f"single-headed attention has one head, got q {tuple(q.shape)}: {q.shape[1]} heads"
        )
    return full_attention(q, k, v, causal=causal, key_mask=key_mask, scale=scale)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    # one head as wide as all heads together
    tensors = {
        name: x.transpose(1, 2).flatten(2)[:, None] for name, x in {"q": q, "k": k, "v": v}.items()
    }
    return single_head_attention, tensors


class SingleHeadAttention(Attention):
    """`single_head_attention` with its gates; it has one head, whatever the place has.

    `rotary` and `qk_norm` are those of full, of the whole width; they come after the gates.
    """

    about = About(
        "Merity, Single Headed Attention RNN", 2019, "L·S·D", weights="content", no_export=""
    )
    core = Core("every pair of steps", _call)
    mixes = False

    def __init__(self, place: Place, *, rotary: bool = False, qk_norm: bool = False) -> None:
        super().__init__(place)
        D = place.width
        self.query_key = QueryKey(place, D, rotary=rotary, qk_norm=qk_norm)
        self.query_projection = nn.Linear(D, D)
        self.query_norm = nn.LayerNorm(D, eps=1e-12)
        self.query_gate = nn.Parameter(torch.zeros(D))
        self.key_gate = nn.Parameter(torch.zeros(D))
        self.value_gate = nn.Parameter(torch.zeros(D))
        self.value_projection = nn.Linear(D, 2 * D)
        for layer in (self.query_projection, self.value_projection):
            nn.init.normal_(layer.weight, std=0.1 * D**-0.5)
            nn.init.zeros_(layer.bias)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        q, norm = self.query_projection(query), self.query_norm
        eps = norm.eps if q.dtype in (torch.float32, torch.float64) else 1e-5
        q = F.layer_norm(q, norm.normalized_shape, norm.weight, norm.bias, eps)
        q = q * self.query_gate.sigmoid()
        candidate, gate = self.value_projection(self.value_gate.sigmoid()).chunk(2)
        k = context * self.key_gate.sigmoid()
        v = context * (gate.sigmoid() * candidate.tanh())  # g (D,), the same for every input
        kind = q.dtype  # autocast may have lowered it
        q, k, v = (x.to(kind)[:, None] for x in (q, k, v))
        q, k = self.query_key(q, k)
        return single_head_attention(q, k, v, **seen)[:, 0]
