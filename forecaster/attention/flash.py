"""Mixed-chunk attention (FLASH): squared ReLU within chunks, linear attention across them.

Hua et al., "Transformer Quality in Linear Time", ICML 2022, section 3 and the appendix's code; the
unit around the attention is in forecaster/attention/common/gated.py.

    out_i = Σ_{j in chunk(i)} relu(quad_q_i·quad_k_j / C + b_{i mod C, j mod C})² v_j
            + λ Σ_j (lin_q_i·lin_k_j) v_j
    causal: j <= i in the first sum, chunk(j) < chunk(i) in the second

C is the chunk length; chunk(i) = ⌊i/C⌋, and the last chunk may be short (the divisor stays C).
Without `causal` the second sum includes chunk(i). λ = 1/n, where n is the number of real keys of
the series, with and without `causal`: it is bounded, and the same in encoder and decoder.

Time O(L·C·(s + e) + L·s·e) for s features of the keys and e of the values; memory O(L·e) and one
(s x e) sum per chunk. Strictly causal. It is never full attention; with one chunk and λ = 0 it is
the squared ReLU of gau.

The paper's formula shows no λ; `linear_scale` sets a different one.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen
from forecaster.attention.common.definitions import positions, visible
from forecaster.attention.common.gated import (
    GammaInit,
    GatedUnit,
    add_bias_gradient,
    relu_scores,
    saturate,
    stacks,
)
from forecaster.attention.common.kernels import (
    accumulator,
    at_least_one,
    check_inputs,
    refuse_mix,
    visible_count,
)
from forecaster.base.shapes import Bool, Float


def definition(
    quad_q: Float[Tensor, "B H L E"],
    quad_k: Float[Tensor, "B H S E"],
    lin_q: Float[Tensor, "B H L F"],
    lin_k: Float[Tensor, "B H S F"],
    v: Float[Tensor, "B H S Ev"],
    *,
    chunk_size: int = 256,
    causal: bool = False,
    bias: Float[Tensor, "..."] | None = None,
    linear_scale: float | None = None,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Both sums of the formula, with all L x S weights of each at once."""
    i, j = positions(v.shape[2], v.shape[2], v.device)
    real = visible(quad_q, quad_k, False, key_mask)
    scores = quad_q @ quad_k.mT / chunk_size
    if bias is not None:
        scores = scores + bias[..., i % chunk_size, j % chunk_size]
    own = (i // chunk_size == j // chunk_size) & visible(quad_q, quad_k, causal, key_mask)
    n = real.sum(3, keepdim=True).clamp(min=1).to(v.dtype)
    scale = 1 / n if linear_scale is None else linear_scale
    earlier = real & (j // chunk_size < i // chunk_size) if causal else real
    return (scores.relu() ** 2 * own + scale * (lin_q @ lin_k.mT) * earlier) @ v


def mixed_chunk_attention(
    quad_q: Float[Tensor, "B H L E"],
    quad_k: Float[Tensor, "B H S E"],
    lin_q: Float[Tensor, "B H L F"],
    lin_k: Float[Tensor, "B H S F"],
    v: Float[Tensor, "B H S Ev"],
    *,
    chunk_size: int = 256,
    causal: bool = False,
    bias: Float[Tensor, "..."] | None = None,
    linear_scale: float | None = None,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Mixed-chunk attention; see the module for the formula.

    `bias` is (C, C) or (H, C, C) with C = `chunk_size`. `linear_scale` is λ, 1/n by default.
    `key_mask` True is a real key; a query that sees none gives 0. Results that overflow float16
    become its largest number. Raises ValueError when sizes or options do not fit.
    """
    check_inputs(quad_q, quad_k, v, causal, key_mask)
    check_inputs(lin_q, lin_k, v, causal, key_mask)
    at_least_one(chunk_size=chunk_size)
    B, H, L, _ = quad_q.shape
    if v.shape[2] != L:
        raise ValueError(
            f"mixed-chunk attention needs as many keys as queries, got {L} queries, "
            f"{v.shape[2]} keys"
        )
    square = chunk_size, chunk_size
    if bias is not None and bias.shape not in (square, (H, *square)):
        raise ValueError(
            f"bias must be (C, C) = {square} or (H, C, C) = {(H, *square)}, got {tuple(bias.shape)}"
        )
    given = v.dtype
    tensors = [x.to(accumulator(given)) for x in (quad_q, quad_k, lin_q, lin_k, v)]
    scale = 1 / visible_count(tensors[4], False, key_mask)
    if linear_scale is not None:
        scale = torch.full_like(scale, linear_scale)
    if key_mask is not None:  # mask keys too, because their scores might overflow
        hidden = ~key_mask[:, None, :, None]
        for i in (1, 3, 4):
            tensors[i] = tensors[i].masked_fill(hidden, 0.0)
    if bias is not None:
        bias = bias.to(scale.dtype).view(-1, *square)
    out: Tensor = _MixedChunk.apply(  # type: ignore[no-untyped-call]
        *tensors, bias, scale.expand(B, H, 1, 1), chunk_size, causal
    )
    return saturate(out.to(given))


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, chunk_size: int = 256) -> Call:
    lin_q, lin_k = (draw(*q.transpose(1, 2).shape).transpose(1, 2) for _ in range(2))
    bias = 0.02 * draw(chunk_size, chunk_size)
    tensors = {"quad_q": q, "quad_k": k, "lin_q": lin_q, "lin_k": lin_k, "v": v, "bias": bias}
    return partial(mixed_chunk_attention, chunk_size=chunk_size), tensors


class MixedChunkAttention(GatedUnit):
    """The unit around `mixed_chunk_attention`, with a learned relative bias within the chunk.

    `chunk_size` is C, `linear_scale` λ (None: 1/n); `GatedUnit` describes the other options.
    """

    about = About(
        "Hua et al., Transformer Quality in Linear Time", 2022, "L·(chunk_size + key_width)·D",
        weights="content", stalls=False,
        no_export="it takes series one by one, so their number must be known",
    )  # fmt: skip
    core = Core("summaries of many steps", _call)

    def __init__(
        self,
        place: Place,
        *,
        chunk_size: int = 256,
        key_width: int = 128,
        expansion: int = 2,
        gamma_init: GammaInit = "one",
        rotary: bool = True,
        linear_scale: float | None = None,
        gau_replaces_ffn: bool = False,
    ) -> None:
        refuse_mix(place.mix, "attention 'flash'")
        at_least_one(chunk_size=chunk_size)
        super().__init__(
            place, copies=4, bias_length=chunk_size, key_width=key_width,
            expansion=expansion, gamma_init=gamma_init, rotary=rotary,
            gau_replaces_ffn=gau_replaces_ffn, chunk_size=chunk_size, linear_scale=linear_scale,
        )  # fmt: skip
        self.chunk_size, self.linear_scale = chunk_size, linear_scale

    def attend(self, copies: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        quad_q, lin_q, quad_k, lin_k = copies.split(1, dim=1)
        return mixed_chunk_attention(
            quad_q,
            quad_k,
            lin_q,
            lin_k,
            v,
            chunk_size=self.chunk_size,
            bias=self.relative_bias().unfold(0, self.chunk_size, 1).flip(0),
            linear_scale=self.linear_scale,
            **seen,
        )

    def amounts_to(self) -> Effective:
        length = self.place.key_length
        if length <= self.chunk_size:
            return Effective(f"flash: 1 chunk of {length} steps")
        chunks = math.ceil(length / self.chunk_size)
        return Effective(f"flash: {chunks} chunks of at most {self.chunk_size} steps")


class _MixedChunk(torch.autograd.Function):
    """out = R² v + lin_q Z with R = relu(quad_q quad_kᵀ / C + b), chunk by chunk.

    Z is λ times the sum of lin_kᵀ v over the chunks that a chunk sees. The gradient uses g = ∂out,
    R computed again, T = 2/C R ⊙ (g vᵀ), and Y, λ times the sum of lin_qᵀ g over the chunks that
    see a chunk:

        ∂v = (R²)ᵀ g + lin_k Y      ∂quad_q = T quad_k      ∂quad_k = Tᵀ quad_q
        ∂b = C · T                  ∂lin_q = g Zᵀ           ∂lin_k = v Yᵀ

    `bias` is (1 or H, C, C); `scale` is λ, (B, H, 1, 1), and gets no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        quad_q: Tensor,
        quad_k: Tensor,
        lin_q: Tensor,
        lin_k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        scale: Tensor,
        chunk_size: int,
        causal: bool,
    ) -> Tensor:
        ctx.chunk_size, ctx.causal = chunk_size, causal
        inputs = quad_q, quad_k, lin_q, lin_k, v
        out = v.new_empty(v.shape)
        count = math.ceil(v.shape[2] / chunk_size)
        seen = v.new_empty(*v.shape[:2], count if causal else 1, lin_k.shape[3], v.shape[3])
        with torch.autocast(v.device.type, enabled=False):
            for heads, (factor, sums, *stack) in _stacks(chunk_size, scale, seen, *inputs, out):
                place = heads, 0, 0
                chunks = [x.split(chunk_size, dim=1) for x in stack]
                sums.copy_(_sums(chunks[3], chunks[4], causal)).mul_(factor[:, None])
                zs = sums.expand(-1, count, -1, -1).unbind(1)
                for q, k, q_lin, _, value, total, z in zip(*chunks, zs, strict=True):
                    weights = relu_scores(q / chunk_size, k, bias, place, causal)
                    total.baddbmm_(weights.mul_(weights), value, beta=0).baddbmm_(q_lin, z)
        ctx.save_for_backward(*inputs, bias, scale, seen)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, bias, scale, seen = ctx.saved_tensors
        grads = [torch.empty_like(x) for x in inputs]
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[5] else None
        with torch.autocast(grad.device.type, enabled=False):
            for heads, (factor, sums, *stack) in _stacks(
                ctx.chunk_size, scale, seen, *inputs, grad, *grads
            ):
                place = heads, 0, 0
                stack[5] = stack[5].contiguous()  # a gradient of ones is one number, expanded
                chunks = [x.split(ctx.chunk_size, dim=1) for x in stack]
                count = len(chunks[0])
                zs = sums.expand(-1, count, -1, -1).unbind(1)
                sums = _sums(chunks[2][::-1], chunks[5][::-1], ctx.causal).mul_(factor[:, None])
                ys = sums.flip(1).expand(-1, count, -1, -1).unbind(1)
                for q, k, _, k_lin, value, g, *into, z, y in zip(*chunks, zs, ys, strict=True):
                    weights = relu_scores(q / ctx.chunk_size, k, bias, place, ctx.causal)
                    t = torch.bmm(g, value.mT).mul_(weights).mul_(2 / ctx.chunk_size)
                    weights.mul_(weights)
                    into[0].copy_(torch.bmm(t, k))
                    into[1].copy_(torch.bmm(t.mT, q))
                    into[2].copy_(torch.bmm(g, z.mT))
                    into[3].copy_(torch.bmm(value, y.mT))
                    into[4].copy_(torch.bmm(weights.mT, g).baddbmm_(k_lin, y))
                    if grad_bias is not None:
                        add_bias_gradient(grad_bias, t, place)
        if grad_bias is not None:
            grad_bias *= ctx.chunk_size
        return *grads, grad_bias, None, None, None


def _stacks(chunk_size: int, *tensors: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
    """`stacks` for the scores of one chunk; the last tensor has the full length."""
    return stacks(min(chunk_size, tensors[-1].shape[2]) ** 2, *tensors)


def _sums(k: Sequence[Tensor], v: Sequence[Tensor], causal: bool) -> Tensor:
    """kᵀ v summed over the chunks before each, (pairs, chunks, s, e); or over all, with 1 chunk."""
    products = [torch.bmm(x.mT, y) for x, y in zip(k, v, strict=True)]
    if not causal:
        return torch.stack(products, dim=1).sum(1, keepdim=True)
    # Never subtract the last term from a sum: large future values would leave rounding errors.
    return torch.stack([torch.zeros_like(products[0]), *products[:-1]], dim=1).cumsum(1)
