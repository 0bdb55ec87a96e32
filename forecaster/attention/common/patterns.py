"""Attention over a fixed pattern of visible keys, by two methods that give the same numbers.

Short series use one call of the fused kernel with the pattern as a mask. Long series use dense
tiles that together hold every visible key once: a mechanism describes its tiles as a list of
`Piece`, merged by their log-sum-exp (tiles.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.common import kernels
from forecaster.attention.common.tiles import HIDDEN, merge, softmax_part, softmax_part_backward
from forecaster.base.shapes import Bool, Float

_AT_ONCE = 1 << 20  # numbers of a part that stay in a CPU's cache: 4 MB in 32 bits
KEPT = 32
"""The number of masks that a process keeps: models of several lengths share few."""

Pattern = Callable[[Tensor, Tensor], Tensor]
"""Whether query i sees key j: for integer tensors i, j that broadcast, a bool tensor. Hashable."""


def pattern_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    patterns: tuple[Pattern, ...],
    tiles: Callable[[], "tuple[Strip, list[Piece]]"],
    *,
    short: int,
    key_mask: Bool[Tensor, "B L"] | None,
    scale: float | None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention over the keys of the pattern of all heads, or of the pattern of each.

    `tiles` makes the tiles of a series longer than `short` on a CPU, or than a GPU's memory allows.
    By itself no pattern leaves a row empty; a query that sees no real key gives 0.
    """
    scale = q.shape[3] ** -0.5 if scale is None else scale
    masks = len(patterns) if key_mask is None else len(patterns) * len(q)
    if suits_mask(q, short, masks):
        visible = pattern_mask(patterns, q.shape[2], q.device)[None]
        real = kernels.visible_keys(False, key_mask)
        if real is not None:
            visible = visible & real
        return kernels.softmax_attention(
            q, k, v, visible=visible, may_be_empty=real is not None, scale=scale
        )
    # a graph loses gradients added to overlapping views
    attend = kernels.outside_graphs(_Tiled.apply)
    out: Tensor = attend(q, k, v, key_mask, *tiles(), scale)
    return out


def suits_mask(q: Tensor, short: int, masks: int) -> bool:
    """Whether to hold so many L x L masks: on a CPU up to `short` steps, on a GPU while a 32nd of
    its memory holds them and what makes them.

    At 8,192 steps one call took 2 ms there, tiles 5 to 15 (benchmarks/results/on-gpu.json).
    """
    return q.shape[2] ** 2 <= kernels.at_once(q, short**2, numbers=4 * masks)


def pattern_mask(
    patterns: tuple[Pattern, ...], length: int, device: torch.device
) -> Bool[Tensor, "patterns L L"]:
    """The masks for series of `length` steps; they are cached, so do not change them."""
    # A mask computed in a trace has no values and must not be cached.
    make = _make_mask if torch.compiler.is_compiling() else _kept_mask
    return make(patterns, length, device)


@torch.inference_mode(False)  # otherwise a mask made in inference could not be used in training
def _make_mask(patterns: tuple[Pattern, ...], length: int, device: torch.device) -> Tensor:
    steps = torch.arange(length, device=device)
    return torch.stack([pattern(steps[:, None], steps) for pattern in patterns])


_kept_mask = lru_cache(KEPT)(_make_mask)


@dataclass(frozen=True)
class Strip:
    """All series of a batch on one strip of steps, (margin + B·P + margin, H, ...).

    The `length` steps of a series are followed by zeros up to P = `padded`, at least `margin` of
    them, so a tile that reaches `margin` steps beyond its series meets zeros and no other series.
    """

    batch: int
    length: int
    padded: int
    margin: int

    @classmethod
    def of(cls, q: Tensor, block: int, margin: int) -> "Strip":
        """The strip of the series of q (B, H, L, E), whose padded length is divided by `block`."""
        B, _, L, _ = q.shape
        return cls(B, L, -(-(L + margin) // block) * block, margin)

    def lay(self, x: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The strip of x (B, H, L, E), with its last axis padded with zeros to `width`."""
        end = self.margin + self.batch * self.padded
        strip = x.new_empty(end + self.margin, x.shape[1], width, dtype=dtype)
        series = self.series(strip)
        series[:, : self.length, :, : x.shape[3]] = x.transpose(1, 2)
        padding = series[:, self.length :], series[..., x.shape[3] :]
        for rest in (strip[: self.margin], strip[end:], *padding):
            rest.zero_()
        return strip

    def lift(self, strip: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """(B, H, L, `width`) from a strip: the inverse of `lay`."""
        return self.series(strip)[:, : self.length, :, :width].transpose(1, 2).to(dtype)

    def series(self, strip: Tensor) -> Tensor:
        inner = strip[self.margin : self.margin + self.batch * self.padded]
        return inner.view(self.batch, self.padded, *strip.shape[1:])


class Piece(ABC):
    """Some queries with some of their visible keys; no key is visible to a query in two parts.

    `strips` are q, k and v, and `real` is the strip (steps, H) of the keys that exist and are not
    masked.
    """

    @abstractmethod
    def queries(self, strip: Tensor) -> Tensor:
        """A view of the queries in a strip (steps, H, ...); no element occurs twice in it."""

    @abstractmethod
    def attend(self, strips: Sequence[Tensor], real: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The part (o, z) of the queries."""

    @abstractmethod
    def add_gradients(
        self, into: Sequence[Tensor], saved: Sequence[Tensor], real: Tensor, scale: float
    ) -> None:
        """Add ∂q, ∂k and ∂v to the strips `into`; `saved` are ∂o, q, k, v, o, z, ∂o·o."""


class KeyTiles(Piece):
    """N·G dense tiles of l queries and s keys, by the fused kernel: `queries` is (N, G, l, ...).

    In `triangular` tiles, key n is visible to query m only if n <= m.
    """

    triangular: bool = False

    def keys(self, strip: Tensor) -> Tensor:
        """(N, G, s, ...) from a strip (steps, H, ...): here, the steps of the queries."""
        return self.queries(strip)

    def add_keys(self, strip: Tensor, tiles: Tensor) -> None:
        """Add tiles (N, G, s, E) to the strip at the positions from which `keys` takes them: here,
        a view in which none occurs twice."""
        self.keys(strip).add_(tiles)

    @abstractmethod
    def visible_keys(self, real: Tensor) -> Tensor:
        """Which keys are visible apart from `triangular`: bool that broadcasts to (N, G, l, s)."""

    def attend(self, strips: Sequence[Tensor], real: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        q, k, v = strips
        bias = self._bias(real, q.dtype)
        tiles = self.queries(q), self.keys(k), self.keys(v)
        return softmax_part(*tiles, scale=scale, bias=bias, causal=self.triangular)

    def add_gradients(
        self, into: Sequence[Tensor], saved: Sequence[Tensor], real: Tensor, scale: float
    ) -> None:
        grad, q, k, v, o, z, _ = saved
        inputs = self.queries(grad), self.queries(q), self.keys(k), self.keys(v)
        bias, outputs = self._bias(real, q.dtype), (self.queries(o), self.queries(z))
        grad_q, grad_k, grad_v = softmax_part_backward(
            *inputs, *outputs, scale=scale, bias=bias, causal=self.triangular
        )
        self.queries(into[0]).add_(grad_q)
        self.add_keys(into[1], grad_k)
        self.add_keys(into[2], grad_v)

    def _bias(self, real: Tensor, dtype: torch.dtype) -> Tensor:
        """The bias on the scores that leaves weight only to visible keys."""
        return (~self.visible_keys(real)).to(dtype).mul_(HIDDEN)


def held_at_once(x: Tensor) -> int:
    """How many numbers a part holds: on a CPU, as many as stay in its cache."""
    return kernels.at_once(x, _AT_ONCE)


@dataclass(frozen=True)
class Window(KeyTiles):
    """Blocks of queries, each with the keys that `shown` shows from `reach` steps before it to its
    end or, if not causal, to `reach` steps after it. These windows overlap."""

    blocks: slice
    block: int
    reach: int
    causal: bool
    shown: Pattern

    @property
    def width(self) -> int:
        return self.block + self.reach * (1 if self.causal else 2)

    def queries(self, strip: Tensor) -> Tensor:
        return self._cut(strip, self.reach, self.reach + self.block)

    def keys(self, strip: Tensor) -> Tensor:
        return self._cut(strip, 0, self.width)

    def add_keys(self, strip: Tensor, tiles: Tensor) -> None:
        for start in range(0, self.width, self.block):  # pieces of different windows do not overlap
            end = min(start + self.block, self.width)
            self._cut(strip, start, end).add_(tiles[:, :, start:end])

    def visible_keys(self, real: Tensor) -> Tensor:
        j = torch.arange(self.width, device=real.device)
        i = j[self.reach : self.reach + self.block, None]
        return self.shown(i, j) & self.keys(real)[:, :1, None]

    def _cut(self, strip: Tensor, start: int, end: int) -> Tensor:
        """Steps start to end of every window; a window starts `reach` steps before its block."""
        return strip[start:].unfold(0, end - start, self.block)[self.blocks].movedim(-1, 2)


def windows(
    strip: Strip, q: Tensor, block: int, reach: int, causal: bool, shown: Pattern
) -> list[Piece]:
    """All blocks of a strip of q (B, H, L, E), as many in a part as stay in a cache."""
    width = block + reach * (1 if causal else 2)
    numbers = q.shape[1] * q.shape[3] + block  # of a key: its gradient and its column of the mask
    most = max(1, held_at_once(q) // (width * numbers))
    blocks = strip.batch * strip.padded // block
    return [Window(cut, block, reach, causal, shown) for cut in kernels.cuts(blocks, most)]


@dataclass(frozen=True)
class FirstKeys(KeyTiles):
    """The queries `rows` of every series with its first `count` keys, if `shown` shows them."""

    strip: Strip
    rows: slice
    count: int
    shown: Pattern

    def queries(self, strip: Tensor) -> Tensor:
        return self.strip.series(strip)[:, self.rows].transpose(1, 2)

    def keys(self, strip: Tensor) -> Tensor:
        return self.strip.series(strip)[:, : self.count].transpose(1, 2)

    def visible_keys(self, real: Tensor) -> Tensor:
        j = torch.arange(self.count, device=real.device)
        i = torch.arange(self.rows.start, self.rows.stop, device=real.device)[:, None]
        return self.keys(real)[:, :, None] & self.shown(i, j)


def first_keys(strip: Strip, queries: int, count: int, rows: int, shown: Pattern) -> list[Piece]:
    """The first `queries` of a series with its first `count` keys, `rows` queries at a time."""
    cuts = kernels.cuts(queries if count else 0, rows)
    return [FirstKeys(strip, cut, count, shown) for cut in cuts]


class _Tiled(torch.autograd.Function):
    """The merged parts, computed in float32 at least."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_mask: Tensor | None,
        strip: Strip,
        parts: list[Piece],
        scale: float,
    ) -> Tensor:
        seen = torch.ones_like(q[:1, 0, :, 0], dtype=torch.bool) if key_mask is None else key_mask
        real = seen[:, None, :, None].expand(*q.shape[:3], 1)
        real = strip.lay(real, 1, torch.bool)[..., 0]
        width, dtype = max(q.shape[3], v.shape[3]), kernels.accumulator(q.dtype)
        laid = [strip.lay(x, width, dtype) for x in (q, k, v)]
        o, z = torch.zeros_like(laid[0]), torch.full_like(laid[0][..., 0], 2 * HIDDEN)
        for part in parts:
            merge(part.queries(o), part.queries(z), *part.attend(laid, real, scale))
        empty = z < HIDDEN / 2
        if key_mask is not None:  # otherwise only steps of the padding see nothing
            o.masked_fill_(empty[..., None], 0.0)
        z.masked_fill_(empty, -HIDDEN)  # so that no key has any weight in the backward pass
        ctx.save_for_backward(*laid, o, z, real)
        ctx.strip, ctx.parts, ctx.scale = strip, parts, scale
        ctx.kinds = [(x.shape[3], x.dtype) for x in (q, k, v)]
        return strip.lift(o, v.shape[3], v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, z, real = ctx.saved_tensors
        grad = ctx.strip.lay(grad, o.shape[2], o.dtype)
        gradients = [torch.zeros_like(x) for x in (q, k, v)]
        saved = grad, q, k, v, o, z, (grad * o).sum(-1)
        for part in ctx.parts:
            part.add_gradients(gradients, saved, real, ctx.scale)
        lifted = [ctx.strip.lift(x, *kind) for x, kind in zip(gradients, ctx.kinds, strict=True)]
        return *lifted, None, None, None, None
