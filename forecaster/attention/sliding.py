"""Sliding attention: every step sees its neighbours and the first steps of the series.

Beltagy et al., "Longformer", 2020, section 3.1 (the window); Xiao et al., "Efficient Streaming
Language Models with Attention Sinks", ICLR 2024, section 3.2 (the first steps).

    out_i = Σ_j softmax_j(q_i·k_j / √E) v_j          over j with |i - j| < window or j < sinks
                                                     causal: and j <= i

The first steps are what a head may rest on that finds nothing in its window. Without `causal` the
window reaches to both sides. It is full attention for window >= L.

Time O(L·(window + sinks)·E), memory O(L·E). Strictly causal. In the authors' cache positions are
counted anew within the window; here they are those of the series.
"""

from dataclasses import replace
from typing import Unpack

from torch import Tensor

from forecaster.attention.base import About, Core, Effective, Place, Seen, SelfAttention
from forecaster.attention.common import kernels, patterns
from forecaster.attention.common.definitions import attend, positions
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.full import full_attention
from forecaster.attention.strided import StridedPattern
from forecaster.base.shapes import Bool, Float

_SHORT = 384  # up to this length one masked call is faster than tiles, as for strided
_BLOCK = 128  # queries of a tile: it holds these and the window before and after them
_ROWS = 1024  # queries that meet the sinks at a time


def definition(
    q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor, window: int = 128, sinks: int = 4,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Full attention over the j with |i - j| < window or j < sinks."""
    i, j = positions(q.shape[2], k.shape[2], q.device)
    return attend(q, k, v, seen & (((i - j).abs() < window) | (j < sinks)), scale)


def sliding_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    *,
    window: int = 128,
    sinks: int = 4,
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention over the keys less than `window` away and the first `sinks` keys.

    `scale` defaults to E**-0.5. `key_mask` True is a real key; a query that sees none gives 0.
    Raises ValueError when sizes or options do not fit, or for L != S.
    """
    kernels.check_self_inputs(q, k, v, causal, key_mask)
    _check(window, sinks)
    L = q.shape[2]
    if max(window, sinks) >= L:
        return full_attention(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
    near = StridedPattern(window, causal, "local")
    shown = replace(near, sinks=sinks)

    def alone(i: Tensor, j: Tensor) -> Tensor:
        return shown(i, j) & ~near(i, j)

    def tiles() -> tuple[patterns.Strip, list[patterns.Piece]]:
        block = min(_BLOCK, window)
        reach = -(-(window - 1) // block) * block
        strip = patterns.Strip.of(q, block, margin=reach)
        around = patterns.windows(strip, q, block, reach, causal, near)
        return strip, around + patterns.first_keys(strip, L, sinks, _ROWS, alone)

    return patterns.pattern_attention(
        q, k, v, (shown,), tiles, short=_SHORT, key_mask=key_mask, scale=scale
    )


class SlidingAttention(SelfAttention, MultiHeadAttention):
    """Multi-head `sliding_attention`."""

    about = About(
        "Xiao et al., Efficient Streaming Language Models", 2024, "L·(window + sinks)·D",
        weights="content", no_export="ONNX cannot express its products for long series",
    )  # fmt: skip
    core = Core.plain("a choice of pairs", sliding_attention)

    def __init__(self, place: Place, *, window: int = 128, sinks: int = 4) -> None:
        super().__init__(place)
        _check(window, sinks)
        self.window, self.sinks = window, sinks

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        return sliding_attention(q, k, v, window=self.window, sinks=self.sinks, **seen)

    def amounts_to(self) -> Effective:
        L, window = self.place.query_length, self.window
        if max(window, self.sinks) >= L:
            sizes = f"window {window}, {self.sinks} sinks, length {L}"
            return Effective(f"full: {sizes}", full=True)
        return Effective(
            f"sliding: steps less than {window} apart and the first {self.sinks}, of {L}"
        )


def _check(window: int, sinks: int) -> None:
    kernels.at_least_one(window=window)
    if sinks < 0:
        raise ValueError(f"sinks must be at least 0, got sinks={sinks}")
