"""Softmax attention over a part of the keys, and the exact merging of parts.

Where a pattern of visible keys falls into disjoint dense tiles, each tile is one part (o, z): its
output and the log-sum-exp of its scores. Two parts merge exactly:

    z = ln(e^z1 + e^z2)            o = e^(z1 - z) o1 + e^(z2 - z) o2

and the gradient through one part needs only the merged o and z, for P = e^(s - z), g = ∂o:

    ∂v = Pᵀ g        ∂s = P ⊙ (g vᵀ − g·o)        ∂q = scale ∂s k        ∂k = scale ∂sᵀ q

which the backward pass of the fused kernel computes when it gets the merged o and z. That kernel
returns z only through private operators, which are called only here; except on a CPU, public
operations that give the same numbers replace them.
"""

import math

import torch
from torch import Tensor

HIDDEN = -1e30
"""Added to the score of an invisible key: finite, so that no row becomes NaN, yet its weight is
exactly 0 beside any visible key. A row of hidden keys alone has z below HIDDEN / 2."""

_FORWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def softmax_part(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, bias: Tensor, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """(o, z) of q (N, G, L, E), k (N, G, S, E), v (N, G, S, Ev): o (N, G, L, Ev), z (N, G, L).

    `bias` is added to the scores and broadcasts to (N, G, L, S). N and G are any batch axes.
    Autograd does not see the call: it belongs in the forward pass of a `torch.autograd.Function`.
    """
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        if _is_fused(q, v):
            assert _FORWARD is not None
            # The operator assumes that the numbers of a row are contiguous.
            q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
            o, z = _FORWARD(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
            return o, z
        scores = _scores(q, k, scale, bias, causal)
        z = scores.logsumexp(3)
        return (scores - z[..., None]).exp() @ v, z


def softmax_part_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    z: Tensor,
    *,
    scale: float,
    bias: Tensor,
    causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """(∂q, ∂k, ∂v) through this part, given the output `o` and the log-sum-exp `z` after merging.

    `grad` (N, G, L, Ev) is ∂o. A row that saw nothing needs grad 0 and any finite z.
    """
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        if _is_fused(q, v):
            assert _BACKWARD is not None
            grad, q, k, v, o = (
                x if x.stride(-1) == 1 else x.contiguous() for x in (grad, q, k, v, o)
            )
            gradients: tuple[Tensor, Tensor, Tensor] = _BACKWARD(
                grad, q, k, v, o, z, 0.0, causal, attn_mask=bias, scale=scale
            )
            return gradients
        weights = (_scores(q, k, scale, bias, causal) - z[..., None]).exp()
        grad_scores = weights * ((grad @ v.mT) - (grad * o).sum(3, keepdim=True))
        grad_scores *= scale
        return grad_scores @ k, grad_scores.mT @ q, weights.mT @ grad


def merge(o1: Tensor, z1: Tensor, o2: Tensor, z2: Tensor) -> None:
    """Make (o1, z1) a part that sees its keys and those of (o2, z2), which are others."""
    z = torch.logaddexp(z1, z2)
    behind = z2 - z
    weight = behind.clamp(min=-80.0).exp_() * (behind > -80.0)  # exp is slow where it underflows
    o1.lerp_(o2, weight[..., None].to(o1.dtype))
    z1.copy_(z)


def _is_fused(q: Tensor, v: Tensor) -> bool:
    there = _FORWARD is not None and _BACKWARD is not None
    return there and q.device.type == "cpu" and q.shape[3] == v.shape[3]


def _scores(q: Tensor, k: Tensor, scale: float, bias: Tensor, causal: bool) -> Tensor:
    scores = q @ k.mT * scale + bias
    if causal:
        future = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return scores
