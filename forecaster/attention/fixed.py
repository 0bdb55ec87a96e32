"""Fixed attention: every step sees its own block and the summary steps at the end of each block.

Child, Gray, Radford, Sutskever, "Generating Long Sequences with Sparse Transformers", 2019,
sections 4.2 to 4.4. With blocks of l steps, the last c of which are its summary, query i sees key
j (if causal: j <= i) in

    ⌊j/l⌋ = ⌊i/l⌋          or          l - c <= j mod l

    out_i = Σ_j softmax_j(q_i·k_j / √E) v_j        over the keys that it sees

Strided attention suits a series with a period, fixed attention one without. Time
O(L·(l + c·L/l)·E), memory O(L·(l + E)). It is full attention when l >= L or c = l. Strictly causal;
the form without `causal` is ours, because the paper is causal throughout.

With `distinct_heads`, head h reads a different part of the block, l - c(t+1) <= j mod l < l - ct
for t = h mod ⌊l/c⌋, which the paper found better than one part for all. The paper uses l = 128 or
256 and c = 8, 16 or 32.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen, SelfAttention
from forecaster.attention.common import kernels, patterns
from forecaster.attention.common.definitions import attend, positions
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.full import full_attention
from forecaster.base.shapes import Bool, Float

_SHORT = 224  # up to this length one masked call is faster than tiles (measured)
_ROWS = 512  # queries that read summaries in one call, unless all do


@dataclass(frozen=True)
class FixedPattern:
    """Which steps see which.

    `slot` is the part of a block that serves as its summary, counted from the end of the block.
    """

    stride: int
    summary: int
    causal: bool = True
    slot: int = 0

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        """Whether query i sees key j: a bool tensor for positions that broadcast."""
        visible = (i // self.stride == j // self.stride) | self.summarises(j)
        return visible & (j <= i) if self.causal else visible

    def summarises(self, j: Tensor) -> Tensor:
        """Whether step j belongs to the summary of its block."""
        place = j % self.stride - self.first
        return (place >= 0) & (place < self.summary)

    @property
    def first(self) -> int:
        """The first step of the summary, counted from the first step of the block."""
        return self.stride - self.summary * (self.slot + 1)


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    stride: int,
    summary: int,
    distinct_heads: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Full attention over the j with ⌊j/l⌋ = ⌊i/l⌋ or in the summary of their block."""
    i, j = positions(q.shape[2], k.shape[2], q.device)
    heads = range(q.shape[1] if distinct_heads else 1)
    shown = (FixedPattern(stride, summary, False, h % (stride // summary)) for h in heads)
    return attend(q, k, v, seen & torch.stack([pattern(i, j) for pattern in shown]), scale)


def fixed_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    *,
    stride: int,
    summary: int,
    causal: bool = True,
    distinct_heads: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention over the query's block and all summaries; see the module for the formula.

    `stride` is l, `summary` c. `scale` defaults to E**-0.5. `key_mask` True is a real key; a query
    that sees none gives 0. Raises ValueError when sizes or options do not fit, or for L != S.
    """
    kernels.check_self_inputs(q, k, v, causal, key_mask)
    _check_summary(stride, summary)
    H, L = q.shape[1:3]
    if _is_full(L, stride, summary):
        return full_attention(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
    slots = stride // summary
    shown = tuple(
        FixedPattern(stride, summary, causal, h % slots) for h in range(H if distinct_heads else 1)
    )

    def tiles() -> tuple[patterns.Strip, list[patterns.Piece]]:
        strip = patterns.Strip.of(q, stride, margin=0)
        blocks = strip.padded // stride
        start = 1 if causal else 0  # block 0 has no earlier summary to read
        # The kernel expands masks that differ by query or head, so take a few queries at a time.
        at_once = math.ceil(_ROWS / stride) if causal or distinct_heads else blocks
        blockwise: list[patterns.Piece] = [_Own(shown, triangular=causal)]
        return strip, blockwise + [
            _Summaries(shown, strip, cut, read=cut.stop - 1 if causal else blocks)
            for cut in kernels.cuts(blocks, at_once, start)
        ]

    return patterns.pattern_attention(
        q, k, v, shown, tiles, short=_SHORT, key_mask=key_mask, scale=scale
    )


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, stride: int | None = None) -> Call:
    stride = stride or max(1, round(math.sqrt(q.shape[2])))
    function = partial(fixed_attention, stride=stride, summary=max(1, stride // 8))
    return function, {"q": q, "k": k, "v": v}


class FixedAttention(SelfAttention, MultiHeadAttention):
    """Multi-head `fixed_attention`.

    `stride` defaults to √L of the place, rounded; `summary` to an eighth of the stride, at least 1.
    """

    about = About(
        "Child et al., Sparse Transformer", 2019, "L·(l + c·L/l)·D",
        weights="content", no_export="ONNX cannot express its products for long series",
    )  # fmt: skip
    core = Core("a choice of pairs", _call)

    def __init__(
        self,
        place: Place,
        *,
        stride: int | None = None,
        summary: int | None = None,
        distinct_heads: bool = False,
    ) -> None:
        super().__init__(place)
        self.stride = round(place.query_length**0.5) if stride is None else stride
        self.summary = max(1, self.stride // 8) if summary is None else summary
        _check_summary(self.stride, self.summary)
        self.distinct_heads = distinct_heads

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        sizes = {"stride": self.stride, "summary": self.summary}
        return fixed_attention(q, k, v, **sizes, distinct_heads=self.distinct_heads, **seen)

    def amounts_to(self) -> Effective:
        L, stride, summary = self.place.query_length, self.stride, self.summary
        if _is_full(L, stride, summary):
            return Effective(f"full: stride {stride}, summary {summary}, length {L}", full=True)
        read = f"{summary} of every block by head"
        if not self.distinct_heads:
            read = f"the last {summary} of every block"
        return Effective(f"fixed: the own block of {stride} and {read}, of {L}")


def _check_summary(stride: int, summary: int) -> None:
    kernels.at_least_one(stride=stride, summary=summary)
    if summary > stride:
        raise ValueError(f"summary must be at most stride, got summary={summary}, stride={stride}")


def _is_full(L: int, stride: int, summary: int) -> bool:
    return stride >= L or summary == stride


@dataclass(frozen=True)
class _Own(patterns.KeyTiles):
    """Each block with itself; if not causal, without its summary, which all blocks read."""

    shown: tuple[FixedPattern, ...]
    triangular: bool

    def queries(self, strip: Tensor) -> Tensor:
        return strip.view(-1, self.shown[0].stride, *strip.shape[1:]).transpose(1, 2)

    def visible_keys(self, real: Tensor) -> Tensor:
        seen = self.keys(real[:, :1])
        if not self.triangular:
            place = torch.arange(seen.shape[2], device=real.device)
            seen = seen & ~torch.stack([pattern.summarises(place) for pattern in self.shown])
        return seen[:, :, None]


@dataclass(frozen=True)
class _Summaries(patterns.KeyTiles):
    """The queries of the blocks `cut` and the summaries of the first `read` blocks."""

    shown: tuple[FixedPattern, ...]
    strip: patterns.Strip
    cut: slice
    read: int

    def queries(self, strip: Tensor) -> Tensor:
        return self._blocks(strip)[:, self.cut].flatten(1, 2).transpose(1, 2)

    def keys(self, strip: Tensor) -> Tensor:
        return self._blocks(strip)[self._summaries(strip)].flatten(1, 2).transpose(1, 2)

    def add_keys(self, strip: Tensor, tiles: Tensor) -> None:
        tiles = tiles.transpose(1, 2).unflatten(1, (self.read, -1))
        self._blocks(strip)[self._summaries(strip)] += tiles

    def visible_keys(self, real: Tensor) -> Tensor:
        seen = self.keys(real[:, :1])[:, :, None]
        if not self.shown[0].causal:
            return seen
        of_query = torch.arange(self.cut.start, self.cut.stop, device=real.device)
        of_query = of_query.repeat_interleave(self.shown[0].stride)
        of_key = torch.arange(self.read, device=real.device)
        of_key = of_key.repeat_interleave(self.shown[0].summary)
        return seen & (of_key < of_query[:, None])

    def _blocks(self, strip: Tensor) -> Tensor:
        """The view (B, blocks, l, H, ...)."""
        series = self.strip.series(strip)
        return series.view(series.shape[0], -1, self.shown[0].stride, *strip.shape[1:])

    def _summaries(self, strip: Tensor) -> tuple[slice | Tensor, ...]:
        """The index of the summaries in `_blocks`, which may differ from head to head."""
        summary, everywhere = self.shown[0].summary, (slice(None), slice(self.read))
        if len(self.shown) == 1:
            first = self.shown[0].first
            return *everywhere, slice(first, first + summary)
        firsts = [pattern.first for pattern in self.shown]
        ranges = [torch.arange(i, i + summary, device=strip.device) for i in firsts]
        steps = torch.stack(ranges, 1)  # torch.tensor(list) would be copied to the device
        return *everywhere, steps, torch.arange(strip.shape[1], device=strip.device)
