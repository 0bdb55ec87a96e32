"""Strided attention: every step sees its neighbours and every l-th step before it.

Child, Gray, Radford, Sutskever, "Generating Long Sequences with Sparse Transformers", 2019,
sections 4.2 and 4.3. With the stride l and the distance d = i - j >= 0, query i sees key j in

    local:  d < l          column:  d mod l = 0          merged:  either of them

    out_i = Σ_j softmax_j(q_i·k_j / √E) v_j        over the keys that it sees

Without `causal`, d = |i - j|; this form is ours, because the paper is causal throughout. Time
O(L·(l + L/l)·E), which is O(L·√L·E) at l = √L, the default; memory O(L·(l + E)). Merged and local
attention are full attention when l >= L, and merged attention also when l = 1. Strictly causal.

The paper's local set ends with step i - l, the set in the authors' code with i - l + 1, as here;
merged attention sees step i - l in any case. The option `heads` of the module offers the paper's
three ways to distribute the two sets over heads and layers.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, Unpack

import torch
from torch import Tensor

from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen, SelfAttention
from forecaster.attention.common import kernels, patterns
from forecaster.attention.common.definitions import attend, positions
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.full import full_attention
from forecaster.base.shapes import Bool, Float

Keys = Literal["merged", "local", "column"]
Heads = Literal["merged", "interleaved", "split"]

_SHORT = 384  # up to this length one masked call is faster than tiles (measured)
_BLOCK = 64  # the fewest queries of a local tile; with fewer, the fused kernel is slow


@dataclass(frozen=True)
class StridedPattern:
    stride: int
    causal: bool = True
    keys: Keys = "merged"
    sinks: int = 0
    """The first steps, which every query sees (sliding.py)."""

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        """Whether query i sees key j: a bool tensor for positions that broadcast."""
        distance = (i - j).abs()
        local, column = distance < self.stride, distance % self.stride == 0
        visible = {"merged": local | column, "local": local, "column": column}[self.keys]
        visible = visible | (j < self.sinks) if self.sinks else visible
        return visible & (j <= i) if self.causal else visible


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    stride: int,
    pattern: Keys = "merged",
    scale: float | None = None,
) -> Tensor:
    """Full attention over the j with d < l, or d mod l = 0, or either."""
    shown = StridedPattern(stride, False, pattern)(*positions(q.shape[2], k.shape[2], q.device))
    return attend(q, k, v, seen & shown, scale)


def strided_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    *,
    stride: int,
    causal: bool = True,
    pattern: Keys = "merged",
    key_mask: Bool[Tensor, "B L"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention over the keys of `pattern`; see the module for the formula.

    `scale` defaults to E**-0.5. `key_mask` True is a real key; a query that sees none gives 0.
    Raises ValueError when sizes or options do not fit, or for L != S.
    """
    kernels.check_self_inputs(q, k, v, causal, key_mask)
    kernels.at_least_one(stride=stride)
    kernels.check_one_of(Keys, pattern=pattern)
    L = q.shape[2]
    if _is_full(L, stride, pattern):
        return full_attention(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
    shown, near = StridedPattern(stride, causal, pattern), StridedPattern(stride, causal, "local")

    def apart(i: Tensor, j: Tensor) -> Tensor:
        """A query sees its own step in the column, if that is a part."""
        return near(i, j) & (i != j)

    def tiles() -> tuple[patterns.Strip, list[patterns.Piece]]:
        block = stride * math.ceil(_BLOCK / stride)
        strip = patterns.Strip.of(q, block, margin=stride)
        if pattern == "local":
            return strip, patterns.windows(strip, q, block, stride, causal, near)
        column: list[patterns.Piece] = [_SameRemainder(strip, stride, causal)]
        if pattern == "column":
            return strip, column
        return strip, column + patterns.windows(strip, q, block, stride, causal, apart)

    return patterns.pattern_attention(
        q, k, v, (shown,), tiles, short=_SHORT, key_mask=key_mask, scale=scale
    )


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, stride: int | None = None) -> Call:
    stride = stride or max(1, round(math.sqrt(q.shape[2])))
    return partial(strided_attention, stride=stride), {"q": q, "k": k, "v": v}


class StridedAttention(SelfAttention, MultiHeadAttention):
    """Multi-head `strided_attention`; `stride` defaults to √L of the place, rounded.

    `heads`: "merged" heads see both sets; "interleaved" heads see the local set in layers of even
    depth and the column in the others; with "split", the first half of the heads sees the local
    set, the rest the column.
    """

    about = About(
        "Child et al., Sparse Transformer", 2019, "L·√L·D",
        weights="content",
        no_export="it takes a few long series at a time, so their number must be known",
    )  # fmt: skip
    core = Core("a choice of pairs", _call)

    def __init__(self, place: Place, *, stride: int | None = None, heads: Heads = "merged") -> None:
        super().__init__(place)
        self.stride = round(place.query_length**0.5) if stride is None else stride
        kernels.at_least_one(stride=self.stride)
        kernels.check_one_of(Heads, heads=heads)
        if heads == "split" and place.heads < 2:
            raise ValueError("heads='split' needs at least 2 heads, got 1")
        self.heads = heads

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        def see(pattern: Keys, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return strided_attention(q, k, v, stride=self.stride, pattern=pattern, **seen)

        if self.heads != "split":
            return see(self._pattern(), q, k, v)
        half = self.place.heads // 2
        local = see("local", q[:, :half], k[:, :half], v[:, :half])
        return torch.cat([local, see("column", q[:, half:], k[:, half:], v[:, half:])], dim=1)

    def amounts_to(self) -> Effective:
        L, stride, half = self.place.query_length, self.stride, self.place.heads // 2
        if self.heads != "split" and _is_full(L, stride, self._pattern()):
            return Effective(f"full: stride {stride}, length {L}", full=True)
        near, far = f"less than {stride} apart", f"multiples of {stride} apart"
        if self.heads == "split":
            seen = f"{near} in {half} heads, {far} in {self.place.heads - half}"
        else:
            seen = {"merged": f"{near} or {far}", "local": near, "column": far}[self._pattern()]
        return Effective(f"strided: steps {seen}, of {L}")

    def _pattern(self) -> Keys:
        """The pattern of all heads, when they share one."""
        if self.heads == "merged":
            return "merged"
        return "column" if self.place.depth % 2 else "local"


def _is_full(L: int, stride: int, pattern: Keys) -> bool:
    return (stride >= L and pattern != "column") or (stride == 1 and pattern != "local")


@dataclass(frozen=True)
class _SameRemainder(patterns.KeyTiles):
    """All steps with equal remainders modulo the stride: a view of the strip across its heads."""

    strip: patterns.Strip
    stride: int
    triangular: bool

    def queries(self, strip: Tensor) -> Tensor:
        shape = self.strip.batch, -1, self.stride * strip.shape[1], *strip.shape[2:]
        return self.strip.series(strip).view(shape).transpose(1, 2)

    def visible_keys(self, real: Tensor) -> Tensor:
        return self.keys(real)[:, :, None]
