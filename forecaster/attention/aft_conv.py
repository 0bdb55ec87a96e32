"""AFT-conv: an Attention Free Transformer whose position biases are a convolution kernel.

Zhai et al., "An Attention Free Transformer", 2021, equation 6, in one dimension: per head

    y_t = σ(q_t) ⊙ Σ_s e^(k_s + w_{s−t}) v_s / Σ_s e^(k_s + w_{s−t})
    w_c from a kernel of `window` taps where it has one, else 0          causal: s <= t

where k_s is one number for each head and step. The taps cover the offsets c = s − t from
−(window − 1)//2 to (window − 1)//2, or from −(window − 1) to 0 when causal; keys elsewhere stay
visible, with bias 0. Each head learns its kernel in the form

    w = γ (r − mean r) / √(var r + 1e-6) + β          r ~ N(0, 1), γ = β = 0 at the start

with the biased variance. At the start it is therefore AFT-simple with one key for all features of
a head.

Time O(L·window·D), memory O(L·D). It is never full attention, because no query is compared with a
key. Strictly causal. The authors published no code, and the 1e-6 is ours; the fraction as they
write it would subtract nearly equal numbers where w is very negative.
"""

from typing import Unpack

import torch
from torch import Tensor, nn

from forecaster.attention import aft_full
from forecaster.attention.base import About, Call, Core, Draw, Place, Seen, SelfAttention
from forecaster.attention.common.aft import gated
from forecaster.attention.common.banded import banded_mean
from forecaster.attention.common.definitions import positions
from forecaster.attention.common.kernels import at_least_one, check_visibility
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.base.shapes import Bool, Float


def aft_conv_kernel(
    raw: Float[Tensor, "H window"],
    gain: Float[Tensor, "H"],  # noqa: F821
    offset: Float[Tensor, "H"],  # noqa: F821
) -> Float[Tensor, "H window"]:
    """Compute w of each head from r, γ and β; see the module for the formula."""
    var, mean = torch.var_mean(raw, dim=1, correction=0, keepdim=True)
    return gain[:, None] * (raw - mean) * (var + 1e-6).rsqrt() + offset[:, None]


def definition(
    q: Tensor, k: Tensor, v: Tensor, kernel: Tensor, *, seen: Tensor, causal: bool = False
) -> Tensor:
    """AFT-full with w_ts = kernel[s − t − the first offset] where the kernel has it, else 0."""
    window = kernel.shape[1]
    t, s = positions(q.shape[2], k.shape[2], q.device)
    tap = s - t + (window - 1 if causal else window // 2)
    w = kernel[:, tap.clamp(0, window - 1)].masked_fill((tap < 0) | (tap >= window), 0.0)
    return aft_full.definition(q, k, v, w, seen=seen)


def aft_conv_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L Ek"],
    v: Float[Tensor, "B H L E"],
    kernel: Float[Tensor, "H window"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B H L E"]:
    """The gated mean of the values under a kernel of biases; see the module for the formula.

    k has width 1, or E for a key of each feature. `key_mask` True is a real key; a query that sees
    none gives 0. Raises ValueError when sizes do not fit, or for an even window without causal.
    """
    if q.ndim != 4 or v.shape != q.shape or k.shape not in (q.shape, (*q.shape[:3], 1)):
        raise ValueError(
            "q, k and v must all be (batch, heads, length, width), where k may have width 1, "
            f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        )
    check_visibility(len(q), q.shape[2], k.shape[2], causal, key_mask)
    if kernel.ndim != 2 or len(kernel) != q.shape[1] or not kernel.shape[1]:
        raise ValueError(
            f"kernel must be (heads, window) with {q.shape[1]} heads and a window of at least 1, "
            f"got {tuple(kernel.shape)}"
        )
    window = kernel.shape[1]
    if not causal:
        _check_odd(window)
    low = 1 - window if causal else -(window // 2)
    mean = banded_mean(k, v, kernel[:, None], low, causal=causal, key_mask=key_mask)
    return gated(q, mean).to(v.dtype)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, window: int = 33) -> Call:
    kernel = 0.1 * draw(q.shape[1], window)
    return aft_conv_attention, {"q": q, "k": k[..., :1], "v": v, "kernel": kernel}


class AFTConvAttention(SelfAttention, MultiHeadAttention):
    """`aft_conv_attention` between projections; the key projection is D -> H.

    The window may be even where the place is causal, as in a decoder; elsewhere it must be odd.
    """

    about = About(
        "Zhai et al., An Attention Free Transformer", 2021, "L·window·D",
        weights="content", no_export="it chooses its next operation by values",
    )  # fmt: skip
    core = Core("summaries of many steps", _call)

    def __init__(self, place: Place, *, window: int = 33) -> None:
        super().__init__(place)
        at_least_one(window=window)
        if not place.causal:
            _check_odd(window)
        self.key_projection = nn.Linear(place.width, place.heads)
        self.raw_kernel = nn.Parameter(torch.randn(place.heads, window))
        self.kernel_gain = nn.Parameter(torch.zeros(place.heads))
        self.kernel_offset = nn.Parameter(torch.zeros(place.heads))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        kernel = aft_conv_kernel(self.raw_kernel, self.kernel_gain, self.kernel_offset)
        return aft_conv_attention(q, k, v, kernel, **seen)


def _check_odd(window: int) -> None:
    if window % 2 == 0:
        raise ValueError(
            f"window must be odd unless causal, so that it has a middle, got window={window}"
        )
