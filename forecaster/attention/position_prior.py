"""Position prior: full attention with a learned score for every pair of positions on top.

Tay et al., "Synthesizer: Rethinking Self-Attention for Transformer Models", ICML 2021, section 3.2,
the mixture of a random table and dot products (arXiv 2005.00743).

    out_i = Σ_j softmax_j(alpha_ij + q_i·k_j / √E) v_j          causal: j <= i

alpha (H, L, S) is learned. It joins `static`, which knows positions alone, and `full`, which knows
contents alone: it is static with softplus(A) = e^alpha where q is 0, and full attention where alpha
is 0, as at the start. A shorter input uses the first rows and columns; a longer input is refused,
as is a place of more positions than `static` takes.

Time O(L·S·E); memory O(L·S) for all series of a batch together: scores are computed in blocks of
rows, and again in the backward pass (common/rows.py). Strictly causal. The authors weigh the two
terms by learned numbers, which alpha and W_q can do by themselves.
"""

from typing import Unpack

import torch
from torch import Tensor, nn

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen
from forecaster.attention.common.definitions import softmax
from forecaster.attention.common.kernels import accumulator, check_inputs
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.rows import attention_by_rows
from forecaster.attention.static import check_length
from forecaster.base.shapes import Bool, Float


def definition(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, *, seen: Tensor, scale: float | None = None
) -> Tensor:
    """out_i = Σ_j softmax_j(alpha_ij + q_i·k_j / √E) v_j, with all L x S weights at once."""
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return softmax(alpha + scale * q @ k.mT, seen) @ v


def position_prior_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    alpha: Float[Tensor, "H L S"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention with `alpha`, a number per pair of positions and head, on the scores.

    `scale` defaults to E**-0.5. `key_mask` True is a real key; a query that sees none gives 0.
    Raises ValueError when the shapes do not fit, or for causal with L != S.
    """
    check_inputs(q, k, v, causal, key_mask)
    if alpha.shape != (shape := (*q.shape[1:3], k.shape[2])):
        raise ValueError(f"alpha must be (H, L, S) = {shape}, got {tuple(alpha.shape)}")
    bias = alpha.to(accumulator(v.dtype)), _write, _add_gradient
    seen = Seen(causal=causal, key_mask=key_mask)
    return attention_by_rows(q[None], k[None], v, bias=bias, **seen, scale=scale)


def _write(alpha: Tensor, n: slice, i: slice, causal: bool, out: Tensor) -> None:
    """alpha (H, L, S) of the maps n = b·H + h."""
    for row, m in enumerate(range(n.start, n.stop)):
        out[row] = alpha[m % len(alpha), i, : out.shape[2]]


def _add_gradient(total: Tensor, n: slice, i: slice, causal: bool, grad: Tensor) -> None:
    for row, m in enumerate(range(n.start, n.stop)):
        total[m % len(total), i, : grad.shape[2]] += grad[row]


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    H, L, S = q.shape[1], q.shape[2], k.shape[2]
    check_length("position-prior", max(L, S))
    return position_prior_attention, {"q": q, "k": k, "v": v, "alpha": draw(H, L, S)}


class PositionPriorAttention(MultiHeadAttention):
    """Multi-head `position_prior_attention`; alpha starts at 0."""

    about = About(
        "Tay et al., Synthesizer", 2021, "L·S·D",
        weights="content",
        no_export="it takes a few series at a time, so their number must be known",
    )  # fmt: skip
    core = Core("every pair of steps", _call)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        check_length("position-prior", max(place.query_length, place.key_length))
        shape = place.heads, place.query_length, place.key_length
        self.alpha = nn.Parameter(torch.zeros(shape))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        L, S = q.shape[2], k.shape[2]
        self.place.hold(L, S, "position-prior has scores")
        return position_prior_attention(q, k, v, self.alpha[:, :L, :S], **seen)
