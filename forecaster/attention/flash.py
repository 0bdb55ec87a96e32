"""Mixed-chunk attention (FLASH): squared ReLU within chunks, linear attention across them.

Hua et al., "Transformer Quality in Linear Time", ICML 2022, section 3 and the appendix's code; the
unit around the attention is in forecaster/attention/common/unit.py.

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
from functools import partial
from itertools import pairwise
from typing import Unpack

import torch
from torch import Tensor

from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen
from forecaster.attention.common import kernels
from forecaster.attention.common.definitions import positions, real_keys
from forecaster.attention.common.unit import GammaInit, GatedUnit, saturate
from forecaster.attention.gau import relu_squared
from forecaster.base.shapes import Bool, Float


def definition(
    quad_q: Tensor,
    quad_k: Tensor,
    lin_q: Tensor,
    lin_k: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    causal: bool = False,
    chunk_size: int = 256,
    bias: Tensor | None = None,
    linear_scale: float | None = None,
) -> Tensor:
    """Both sums of the formula, with all L x S weights of each at once."""
    i, j = positions(v.shape[2], v.shape[2], v.device)
    scores = quad_q @ quad_k.mT / chunk_size
    if bias is not None:
        scores = scores + bias[..., i % chunk_size, j % chunk_size]
    chunk, real = (i // chunk_size == j // chunk_size) & seen, real_keys(seen)
    n = real.sum(3, keepdim=True).clamp(min=1).to(v.dtype)
    scale = 1 / n if linear_scale is None else linear_scale
    summed = real & (j // chunk_size < i // chunk_size) if causal else real
    return (scores.relu() ** 2 * chunk + scale * (lin_q @ lin_k.mT) * summed) @ v


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
    kernels.check_self_inputs(quad_q, quad_k, v, causal, key_mask)
    kernels.check_self_inputs(lin_q, lin_k, v, causal, key_mask)
    kernels.at_least_one(chunk_size=chunk_size)
    H, L = quad_q.shape[1:3]
    square = chunk_size, chunk_size
    if bias is not None and bias.shape not in (square, (H, *square)):
        raise ValueError(
            f"bias must be (C, C) = {square} or (H, C, C) = {(H, *square)}, got {tuple(bias.shape)}"
        )
    given = v.dtype
    scale = 1 / kernels.visible_count(v, False, key_mask) if linear_scale is None else linear_scale
    quad_q, quad_k, lin_q, lin_k, v = (
        x.to(kernels.accumulator(given)) for x in (quad_q, quad_k, lin_q, lin_k, v)
    )
    if key_mask is not None:  # mask keys too, because their scores might overflow
        hidden = ~key_mask[:, None, :, None]
        quad_k, lin_k, v = (x.masked_fill(hidden, 0.0) for x in (quad_k, lin_k, v))
    if bias is not None:
        bias = bias.to(v.dtype).view(-1, *square)
    with torch.autocast(v.device.type, enabled=False):
        out = _within_chunks(quad_q, quad_k, v, bias, chunk_size, causal)
        if not causal:
            out = out + lin_q @ (scale * (lin_k.mT @ v))
        elif chunk_size < L:
            out = _add_earlier_chunks(out, lin_q, lin_k, v, scale, chunk_size)
    return saturate(out.to(given))


def _within_chunks(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, chunk_size: int, causal: bool
) -> Tensor:
    """The first sum: squared ReLU of every chunk with itself, the chunks side by side as series."""
    scale = q.new_full((1, 1, 1, 1), 1 / chunk_size)
    outs, L = [], q.shape[2]
    for start, stop in pairwise(sorted({0, L - L % chunk_size, L})):
        chunks = math.ceil((stop - start) / chunk_size)
        q_some, k_some, v_some = (
            x[:, :, start:stop].unflatten(2, (chunks, -1)).transpose(1, 2).flatten(0, 1)
            for x in (q, k, v)
        )
        B, H, C = q_some.shape[:3]
        square = None if bias is None else bias[:, :C, :C]
        out = relu_squared(q_some, k_some, v_some, square, scale.expand(B, H, 1, 1), causal)
        outs.append(out.unflatten(0, (-1, chunks)).transpose(1, 2).flatten(2, 3))
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def _add_earlier_chunks(
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: Tensor | float, chunk_size: int
) -> Tensor:
    """`out` plus the second sum when causal, with the running sum of kᵀ v over the chunks."""
    outs, queries, keys, values = (list(x.split(chunk_size, dim=2)) for x in (out, q, k, v))
    total = scale * (keys[0].mT @ values[0])
    for n in range(1, len(outs)):
        outs[n] = outs[n] + queries[n] @ total
        total = total + scale * (keys[n].mT @ values[n])
    return torch.cat(outs, dim=2)


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
        weights="content", no_export="it takes series one by one, so their number must be known",
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
        kernels.at_least_one(chunk_size=chunk_size)
        super().__init__(
            place, copies=4, bias_length=chunk_size, key_width=key_width,
            expansion=expansion, gamma_init=gamma_init, rotary=rotary,
            gau_replaces_ffn=gau_replaces_ffn, chunk_size=chunk_size, linear_scale=linear_scale,
        )  # fmt: skip
        self.chunk_size, self.linear_scale = chunk_size, linear_scale

    def attend(self, copies: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        quad_q, lin_q, quad_k, lin_k = copies.split(1, dim=1)
        size, scale = self.chunk_size, self.linear_scale
        bias = self.relative_bias().unfold(0, size, 1).flip(0)
        return mixed_chunk_attention(
            quad_q, quad_k, lin_q, lin_k, v, chunk_size=size, bias=bias, linear_scale=scale, **seen
        )

    def amounts_to(self) -> Effective:
        length = self.place.key_length
        if length <= self.chunk_size:
            return Effective(f"flash: 1 chunk of {length} steps")
        chunks = math.ceil(length / self.chunk_size)
        return Effective(f"flash: {chunks} chunks of at most {self.chunk_size} steps")
