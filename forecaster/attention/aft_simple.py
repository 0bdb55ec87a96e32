"""AFT-simple: an Attention Free Transformer without position biases.

Zhai et al., "An Attention Free Transformer", 2021, equation 5:

    y_t = σ(q_t) ⊙ Σ_s e^(k_s) ⊙ v_s / Σ_s e^(k_s)     for every feature on its own   causal: s <= t

Each feature thus has its own softmax over time, and the query only gates the result, which without
causal is the same vector for all steps. Time and memory O(L·E). It is never full attention, because
no query is compared with a key. Strictly causal (the paper's masked form).

The largest visible k is subtracted first, so that nothing overflows.
"""

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention import aft_full
from forecaster.attention.base import About, Core, Seen
from forecaster.attention.common.aft import check_features, gated
from forecaster.attention.common.kernels import accumulator
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.prefix import masked, parts, prefix_softmax_mean, softmax_weights
from forecaster.base.shapes import Bool, Float


def definition(q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor) -> Tensor:
    """AFT-full with w = 0."""
    return aft_full.definition(q, k, v, q.new_zeros(q.shape[2], k.shape[2]), seen=seen)


def aft_simple_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S E"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L E"]:
    """The gated softmax mean of the values over time; see the module for the formula.

    `key_mask` True is a real key; a query that sees none gives 0. Raises ValueError when the
    shapes do not fit, or for causal with L != S.
    """
    check_features(q, k, v, causal, key_mask)
    kind, dtype = accumulator(v.dtype), v.dtype
    k, v = k.to(kind), v.to(kind)
    if causal:
        return gated(q, prefix_softmax_mean(k, v, key_mask)).to(dtype)
    return gated(q, _SoftmaxMean.apply(*masked(k, v, key_mask))).to(dtype)  # type: ignore[no-untyped-call]


class AFTSimpleAttention(MultiHeadAttention):
    """`aft_simple_attention` between projections; each feature acts as a head."""

    about = About(
        "Zhai et al., An Attention Free Transformer", 2021, "(L + S)·D",
        weights="content",
        no_export="on a CPU, its causal form chooses its next operation by values",
    )  # fmt: skip
    core = Core.plain("summaries of many steps", aft_simple_attention)
    mixes = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        return aft_simple_attention(q, k, v, **seen)


class _SoftmaxMean(torch.autograd.Function):
    """(B, H, 1, E): the values averaged over time, each feature weighted by its own e^k."""

    @staticmethod
    def forward(ctx: Any, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        top = k.amax(2, keepdim=True)
        total, mean = torch.zeros_like(top), torch.zeros_like(top)
        for b, s in parts(k):
            e = _weights(k, top, real, b, s)
            total[b] += e.sum(2, keepdim=True)
            mean[b] += e.mul_(v[b, :, s]).sum(2, keepdim=True)
        total += total == 0  # nothing seen: 0 / 1
        mean /= total
        ctx.save_for_backward(k, v, real, top, total, mean)
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        k, v, real, top, total, mean = ctx.saved_tensors
        grad = grad / total
        grad_k, grad_v = torch.empty_like(k), torch.empty_like(v)
        for b, s in parts(k):
            e = _weights(k, top, real, b, s)
            torch.mul(e, grad[b], out=grad_v[b, :, s])
            torch.mul(v[b, :, s] - mean[b], grad_v[b, :, s], out=grad_k[b, :, s])
        return grad_k, grad_v, None


def _weights(k: Tensor, top: Tensor, real: Tensor | None, b: slice, s: slice) -> Tensor:
    e = softmax_weights(k[b, :, s], top[b])
    return e if real is None else e.mul_(real[b, :, s])
