"""The gated attention unit (GAU, "FLASH-Quad"): squared ReLU instead of softmax, and a gate.

Hua et al., "Transformer Quality in Linear Time", ICML 2022, section 2 and the appendix's code; the
unit around the attention is in forecaster/attention/common/unit.py.

    out_i = Σ_j relu(q_i·k_j / n + b_ij)² v_j                            normalizer "n"
    out_i = (1/n) Σ_j relu(q_i·k_j / √s + b_ij)² v_j                     normalizer "ns"
    causal: j <= i;   b_ij = w[j − i + M − 1];   n = number of real keys of the series

Time O(L·S·(s + e)) for s features of the keys and e of the values; memory O(L·e): one tile of the
weights at a time, computed again for the gradient. The rows are not normalised, so causal rows
keep the n of the whole series. Strictly causal. It is never full attention.

The authors divide by the longest possible length; here n is the actual length, so padding changes
nothing. Above M = 512 the relative bias starts with the same spread as the learned one.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, Unpack

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen
from forecaster.attention.common import kernels, unit
from forecaster.attention.common.definitions import positions, real_keys
from forecaster.base.shapes import Bool, Float

Normalizer = Literal["n", "ns"]


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    bias: Tensor | None = None,
    relative_bias: Tensor | None = None,
    normalizer: Normalizer = "n",
) -> Tensor:
    """out_i = Σ_j relu(q_i·k_j / n + b_ij)² v_j, with all L x S weights at once."""
    n = real_keys(seen).sum(3, keepdim=True).clamp(min=1).to(v.dtype)
    if relative_bias is not None:
        i, j = positions(q.shape[2], k.shape[2], q.device)
        bias = relative_bias[..., j - i + (relative_bias.shape[-1] - 1) // 2]
    scores = q @ k.mT / (n if normalizer == "n" else q.shape[3] ** 0.5)
    weights = (scores if bias is None else scores + bias).relu() ** 2
    return (weights if normalizer == "n" else weights / n) * seen @ v


def relu_squared_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    causal: bool = False,
    bias: Float[Tensor, "..."] | None = None,
    relative_bias: Float[Tensor, "..."] | None = None,
    normalizer: Normalizer = "n",
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Squared-ReLU attention; see the module for the formula.

    `bias` is (L, S) or (H, L, S). `relative_bias`, given instead, is (2M − 1,) or (H, 2M − 1) with
    M >= L, S: one number per distance, never expanded to L x S for long series. `key_mask` True is
    a real key; a query that sees none gives 0. Results that overflow float16 become its largest
    number. Raises ValueError when sizes or options do not fit.
    """
    kernels.check_inputs(q, k, v, causal, key_mask)
    kernels.check_one_of(Normalizer, normalizer=normalizer)
    _check_bias(q, k, bias, relative_bias)
    given = v.dtype
    q, k, v = (x.to(kernels.accumulator(given)) for x in (q, k, v))
    n = kernels.visible_count(v, False, key_mask)
    if key_mask is not None:  # mask keys too, because their scores might overflow
        hidden = ~key_mask[:, None, :, None]
        k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
    if normalizer == "n":
        scale = 1 / n
    else:
        scale, v = torch.full_like(n, q.shape[3] ** -0.5), v / n
    if bias is not None:
        bias = bias.to(v.dtype).view(-1, *bias.shape[-2:])
    elif relative_bias is not None:
        bias = relative_bias.to(v.dtype).view(-1, relative_bias.shape[-1])
        L, S = q.shape[2], k.shape[2]
        if max(L, S) <= _largest_tile(q):  # expand once for all series; otherwise tile by tile
            first = (bias.shape[1] + 1) // 2 - L
            bias = bias[:, first : first + L + S - 1].unfold(1, S, 1).flip(1)
    out = relu_squared(q, k, v, bias, scale.expand(*q.shape[:2], 1, 1), causal)
    return unit.saturate(out.to(given))


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    bias = 0.02 * draw(2 * q.shape[2] - 1)
    tensors = {"q": q, "k": k, "v": v, "relative_bias": bias}
    return relu_squared_attention, tensors


class GatedAttentionUnit(unit.GatedUnit):
    """The unit around `relu_squared_attention`, with a learned relative bias.

    `normalizer` is the divisor of the scores, see the module; `GatedUnit` describes the others.
    """

    about = About(
        "Hua et al., Transformer Quality in Linear Time", 2022, "L·S·D",
        weights="content", no_export="it takes series one by one, so their number must be known",
    )  # fmt: skip
    core = Core("every pair of steps", _call)

    def __init__(
        self,
        place: Place,
        *,
        key_width: int = 128,
        expansion: int = 2,
        normalizer: Normalizer = "n",
        gamma_init: unit.GammaInit = "one",
        rotary: bool = True,
        gau_replaces_ffn: bool = False,
    ) -> None:
        super().__init__(
            place, copies=2, bias_length=place.key_length, key_width=key_width,
            expansion=expansion, gamma_init=gamma_init, rotary=rotary,
            gau_replaces_ffn=gau_replaces_ffn, normalizer=normalizer,
        )  # fmt: skip
        self.normalizer: Normalizer = normalizer
        kernels.check_one_of(Normalizer, normalizer=normalizer)

    def attend(self, copies: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        self.place.hold(copies.shape[2], copies.shape[2], "gau has a relative bias")
        q, k = copies.split(1, dim=1)
        return relu_squared_attention(
            q, k, v, relative_bias=self.relative_bias(), normalizer=self.normalizer, **seen
        )


class _ReluSquared(torch.autograd.Function):
    """out = relu(scale · q kᵀ + b)² v, one tile of the scores at a time.

    Tensors are of one type, float32 at least. `bias` is (1 or H, L, S), or (1 or H, 2M - 1) when
    relative; `scale` is (B, H, 1, 1) and gets no gradient. With g = ∂out, R = relu(..) computed
    again, and T = R ⊙ (g vᵀ):

        ∂v = (R²)ᵀ g        ∂q = 2 scale · T k        ∂k = 2 scale · Tᵀ q        ∂b = 2 T

    The first tile of a row or column overwrites the sum; the others add to it (beta).
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: Tensor, causal: bool
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, bias, scale)
        ctx.causal = causal
        out = v.new_empty(*q.shape[:3], v.shape[3])
        height, width = _tile(q), _tile(k)
        with torch.autocast(q.device.type, enabled=False):
            for heads, stack in unit.stacks(height * width, q, k, v, scale, out):
                queries, keys, values, factor, sums = stack
                rows = _cut(height, factor * queries, sums)
                columns = _cut(width, keys, values)
                for i, (query, total) in enumerate(rows):
                    for j, (key, value) in enumerate(columns[: i + 1] if causal else columns):
                        place = heads, i * height, j * width
                        weights = unit.relu_scores(query, key, bias, place, causal)
                        total.baddbmm_(weights.mul_(weights), value, beta=int(j > 0))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, scale = ctx.saved_tensors
        grads = [torch.empty_like(x) for x in (q, k, v)]
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        height, width = _tile(q), _tile(k)
        with torch.autocast(q.device.type, enabled=False):
            for heads, stack in unit.stacks(height * width, q, k, v, scale, grad, *grads):
                queries, keys, values, factor, g, *into = stack
                sums = [x if x.is_contiguous() else x.new_empty(x.shape) for x in into]
                rows = _cut(height, factor * queries, g.contiguous(), sums[0])
                columns = _cut(width, keys, values, *sums[1:])
                for i, (query, g_row, sum_q) in enumerate(rows):
                    seen = columns[: i + 1] if ctx.causal else columns
                    for j, (key, value, sum_k, sum_v) in enumerate(seen):
                        place = heads, i * height, j * width
                        weights = unit.relu_scores(query, key, bias, place, ctx.causal)
                        t = torch.bmm(g_row, value.mT).mul_(weights)
                        beta = int(i > (j if ctx.causal else 0))
                        sum_v.baddbmm_(weights.mul_(weights).mT, g_row, beta=beta)
                        sum_k.baddbmm_(t.mT, query, beta=beta)
                        sum_q.baddbmm_(t, key, beta=int(j > 0))
                        if grad_bias is not None:
                            unit.add_bias_gradient(grad_bias, t, place)
                sums[0].mul_(2 * factor)
                sums[1].mul_(2)
                for x, total in zip(into, sums, strict=True):
                    if x is not total:
                        x.copy_(total)
        return *grads, None if grad_bias is None else grad_bias.mul_(2), None, None


relu_squared: Callable[..., Tensor] = _ReluSquared.apply


def _tile(x: Tensor) -> int:
    """The side of equal tiles along the length of x that are small enough for a CPU's cache."""
    length = x.shape[2]
    return math.ceil(length / math.ceil(length / _largest_tile(x)))


def _largest_tile(x: Tensor) -> int:
    return 384 if x.device.type == "cpu" else 2048


def _cut(size: int, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Views of tensors (pairs, length, width) in steps of `size` along the length."""
    return list(zip(*(x.split(size, dim=1) for x in tensors), strict=True))


def _check_bias(q: Tensor, k: Tensor, bias: Tensor | None, relative_bias: Tensor | None) -> None:
    H, L, S = q.shape[1], q.shape[2], k.shape[2]
    if bias is not None and relative_bias is not None:
        raise ValueError("give bias or relative_bias, not both")
    if bias is not None and bias.shape not in ((L, S), (H, L, S)):
        raise ValueError(
            f"bias must be (L, S) = {(L, S)} or (H, L, S) = {(H, L, S)}, got {tuple(bias.shape)}"
        )
    if relative_bias is None:
        return
    shape = tuple(relative_bias.shape)
    if shape[:-1] not in ((), (H,)) or shape[-1] % 2 == 0 or shape[-1] < 2 * max(L, S) - 1:
        raise ValueError(
            f"relative_bias must be (2M - 1,) or (H, 2M - 1) with H = {H} and M >= {max(L, S)}, "
            f"got {shape}"
        )
