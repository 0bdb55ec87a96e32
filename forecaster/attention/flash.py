"""Mixed-chunk attention (FLASH): squared ReLU within chunks, linear attention across them.

Hua et al., "Transformer Quality in Linear Time", ICML 2022, section 3 and the appendix's code; the
unit around the attention is in forecaster/attention/gated.py.

    out_i = Σ_{j in chunk(i)} relu(quad_q_i·quad_k_j / C + b_{i mod C, j mod C})² v_j
            + λ Σ_j (lin_q_i·lin_k_j) v_j
    causal: j <= i in the first sum, chunk(j) < chunk(i) in the second

C is the chunk length; chunk(i) = ⌊i/C⌋, and the last chunk may be short (the divisor stays C).
Without `causal` the second sum includes the own chunk. λ = 1/n, n = number of real keys of the
series, in either direction: bounded, and the same in encoder and decoder.

Time O(L·C·(s + e) + L·s·e) for s features of the keys and e of the values; memory O(L·e) and one
(s x e) sum per chunk. Strictly causal. It is full attention in no setting; with one chunk and
λ = 0 it is the squared ReLU of gau.

The paper's formula shows no λ. lucidrains' port has 1/n, but 1/C when causal, which
`linear_scale` can restore.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Place
from forecaster.attention.gated import (
    GammaInit,
    GatedUnit,
    add_bias_gradient,
    relu_scores,
    saturate,
    stacks,
)
from forecaster.attention.kernels import accumulator, at_least_one, check_inputs, visible_count
from forecaster.shapes import Bool, Float


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
    `key_mask` True is a real key; a query that sees none gives 0. In float16, what is too large
    for it becomes its largest number. Raises ValueError when sizes or options do not fit.
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
    if key_mask is not None:
        hidden = ~key_mask[:, None, :, None]
        for i in (1, 3, 4):
            tensors[i] = tensors[i].masked_fill(hidden, 0.0)
    if bias is not None:
        bias = bias.to(scale.dtype).view(-1, *square)
    out: Tensor = _MixedChunk.apply(  # type: ignore[no-untyped-call]
        *tensors, bias, scale.expand(B, H, 1, 1), chunk_size, causal
    )
    return saturate(out.to(given))


class MixedChunkAttention(GatedUnit):
    """The unit around `mixed_chunk_attention`, with a learned relative bias within the chunk.

    Args:
        chunk_size: C, steps of a chunk.
        key_width: s, width of queries and keys; even.
        expansion: e / D, width of gate and values in widths of the model.
        gamma_init: centre of γ at the start, "one" or the "paper"'s 0.
        rotary: encode positions in queries and keys.
        linear_scale: λ, 1/n when None.
        gau_replaces_ffn: stack a second unit in place of the layer's feed-forward.
    """

    about = About("Hua et al., Transformer Quality in Linear Time", 2022, "L·C·D + L·s·D")

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
        at_least_one(chunk_size=chunk_size)
        options: dict[str, Any] = {
            "key_width": key_width,
            "expansion": expansion,
            "gamma_init": gamma_init,
            "rotary": rotary,
        }
        again = partial(
            type(self), place, chunk_size=chunk_size, linear_scale=linear_scale, **options
        )
        super().__init__(
            place,
            copies=4,
            bias_length=chunk_size,
            second=again if gau_replaces_ffn else None,
            **options,
        )
        self.chunk_size, self.linear_scale = chunk_size, linear_scale

    def attend(self, copies: Tensor, v: Tensor, *, causal: bool, key_mask: Tensor | None) -> Tensor:
        quad_q, lin_q, quad_k, lin_k = copies.split(1, dim=1)
        return mixed_chunk_attention(
            quad_q,
            quad_k,
            lin_q,
            lin_k,
            v,
            chunk_size=self.chunk_size,
            causal=causal,
            bias=self.relative_bias().unfold(0, self.chunk_size, 1).flip(0),
            linear_scale=self.linear_scale,
            key_mask=key_mask,
        )

    def amounts_to(self) -> str:
        length = self.place.key_length
        if length <= self.chunk_size:
            return f"flash: 1 chunk of {length} steps"
        chunks = math.ceil(length / self.chunk_size)
        return f"flash: {chunks} chunks of at most {self.chunk_size} steps"


class _MixedChunk(torch.autograd.Function):
    """out = R² v + λ lin_q Z with R = relu(quad_q quad_kᵀ / C + b), chunk by chunk.

    Z, the sum of lin_kᵀ v over the chunks that a chunk sees, is computed again for the gradient.
    With g = ∂out, T = 2 R ⊙ (g vᵀ) and Y the sum of λ lin_qᵀ g over the chunks that see a chunk:

        ∂v = (R²)ᵀ g + lin_k Y      ∂quad_q = T quad_k / C      ∂quad_k = Tᵀ quad_q / C
        ∂lin_q = λ g Zᵀ             ∂lin_k = v Yᵀ               ∂b = T

    `bias` is (1 or H, C, C); `scale` is λ, (B, 1, 1, 1), and gets no gradient.
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
        out = torch.empty_like(v, memory_format=torch.contiguous_format)
        chunks = _chunks(v.shape[2], chunk_size)
        inputs = quad_q, quad_k, lin_q, lin_k, v, scale
        sums = []
        with torch.autocast(v.device.type, enabled=False):
            for heads, (q, k, q_lin, k_lin, values, factor, result) in stacks(
                chunks[0].stop ** 2, *inputs, out
            ):
                sums.append(_sums(k_lin, values, chunks, causal))
                for chunk, z in zip(chunks, sums[-1], strict=True):
                    rows = slice(0, chunk.stop - chunk.start)
                    weights = relu_scores(
                        q[:, chunk] / chunk_size, k[:, chunk], bias, heads, rows, causal
                    )
                    result[:, chunk] = torch.bmm(weights.mul_(weights), values[:, chunk]).baddbmm_(
                        factor * q_lin[:, chunk], z
                    )
        ctx.save_for_backward(*inputs, bias, *sums)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, scale, bias = ctx.saved_tensors[:7]
        sums = iter(ctx.saved_tensors[7:])
        grads = [torch.empty_like(x) for x in inputs]
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[5] else None
        chunks = _chunks(grad.shape[2], ctx.chunk_size)
        with torch.autocast(grad.device.type, enabled=False):
            for heads, (q, k, q_lin, k_lin, values, factor, g, *into) in stacks(
                chunks[0].stop ** 2, *inputs, scale, grad, *grads
            ):
                seen = next(sums)
                seeing = _sums(q_lin, factor * g, chunks[::-1], ctx.causal).flip(0)
                for chunk, z, y in zip(chunks, seen, seeing, strict=True):
                    rows = slice(0, chunk.stop - chunk.start)
                    some_q, some_k, some_v = (
                        q[:, chunk] / ctx.chunk_size,
                        k[:, chunk],
                        values[:, chunk],
                    )
                    some_g = g[:, chunk]
                    weights = relu_scores(some_q, some_k, bias, heads, rows, ctx.causal)
                    t = torch.bmm(some_g, some_v.mT).mul_(weights)
                    weights.mul_(weights)
                    results = (
                        torch.bmm(t, some_k).mul_(2 / ctx.chunk_size),
                        torch.bmm(t.mT, some_q).mul_(2),
                        torch.bmm(some_g, z.mT).mul_(factor),
                        torch.bmm(some_v, y.mT),
                        torch.bmm(weights.mT, some_g).baddbmm_(k_lin[:, chunk], y),
                    )
                    for x, result in zip(into, results, strict=True):
                        x[:, chunk] = result
                    if grad_bias is not None:
                        add_bias_gradient(grad_bias, t, heads, rows)
        return *grads, None if grad_bias is None else grad_bias.mul_(2), None, None, None


def _chunks(L: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, L)) for i in range(0, L, size)]


def _sums(k: Tensor, v: Tensor, chunks: Sequence[slice], causal: bool) -> Tensor:
    """For every chunk the sum of kᵀ v (s, e) over the chunks before it, or over all of them."""
    products = torch.stack([torch.bmm(k[:, c].mT, v[:, c]) for c in chunks])
    if not causal:
        return products.sum(0).expand_as(products)
    sums = products.cumsum(0).roll(1, 0)
    sums[0] = 0
    return sums
