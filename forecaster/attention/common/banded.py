"""The mean of AFT-local and AFT-conv, in which only steps near each other have a bias.

    m_t = Σ_s e^(k_s + w_ts) ⊙ v_s / Σ_s e^(k_s + w_ts)       per feature; causal: s <= t
    w_ts = band[t, s − t − low] where that column exists, else 0

It is computed as a plain fraction: e^k relative to the largest k of its feature, then one matmul
with e^w for each tile of queries and the keys near it, plus sums of whole blocks for the keys
further away. With x = (e^k v, e^k), y = W x and m = y₁ / y₂, the gradient has the same form, with W
read from the keys:

    ∂y = (∂m / y₂, −m ∂m / y₂)                  ∂x = Wᵀ ∂y          ∂W = ∂y xᵀ
    ∂v = e^k ∂x₁                                ∂k = e^k (v ∂x₁ + ∂x₂)

One shift for all queries underflows where a causal series has keys far below its largest, or where
biases differ by as much. Such a call is computed in float64 or, where even that cannot hold e^k,
query by query, which is slow but correct for any finite input.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.common import kernels
from forecaster.attention.common.aft import mean_by_queries
from forecaster.attention.common.tiles import HIDDEN
from forecaster.base.shapes import Bool, Float

_TILE = 32  # queries that share one matmul with the keys near them, about a usual window
_DENSE = 128  # up to this length, one tile holds all queries and keys
_AT_ONCE = 400_000  # elements of x computed at a time, to stay in a CPU's cache


def banded_mean(
    k: Float[Tensor, "B H L Ek"],
    v: Float[Tensor, "B H L Ev"],
    band: Float[Tensor, "G N taps"],
    low: int,
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """The mean m of the module's docstring, in float32 at least; 0 for a query that sees no key.

    Ek is Ev, or 1 for one key for all features of a head. `band` holds the biases of the offsets
    s − t = low, low + 1, ..., low + taps − 1, where low <= 0; the last is >= 0, and 0 if causal.
    G is 1 or H; N is L, or 1 for biases that are the same for every query.
    """
    # control flow that depends on values; overlapping views
    return kernels.outside_graphs(_banded_mean)(k, v, band, low, causal, key_mask)  # type: ignore[no-any-return]


def _banded_mean(
    k: Tensor, v: Tensor, band: Tensor, low: int, causal: bool, key_mask: Tensor | None
) -> Tensor:
    kind = kernels.accumulator(v.dtype)
    k, v, band = k.to(kind), v.to(kind), band.to(kind)
    lowest = k
    if key_mask is not None:
        hidden = ~key_mask[:, None, :, None]
        lowest = k.masked_fill(hidden, -HIDDEN)
        k, v = k.masked_fill(hidden, HIDDEN), v.masked_fill(hidden, 0.0)
    with torch.no_grad():
        top = k.amax(2, keepdim=True)
        least, most = band.aminmax()
        span = most.clamp(min=0.0) - least.clamp(max=0.0)
        if causal:
            span = span + (top - lowest.amin(2, keepdim=True)).amax().clamp(min=0.0)
        is_ordinary = bool(span <= 0.75 * _reach(kind))
    if not is_ordinary and kind is torch.float32:
        k, v, band = k.double(), v.double(), band.double()
        return _banded_mean(k, v, band, low, causal, key_mask).to(kind)

    layout = _Layout.of(v.shape[2], low, band.shape[2], causal)
    with torch.autocast(v.device.type, enabled=False):
        if is_ordinary:
            mean: Tensor = _BandedMean.apply(  # type: ignore[no-untyped-call]
                k, v, band, top, layout, key_mask is not None
            )
            return mean
        biases = partial(_biases, band, low, v.shape[2])
        steps = torch.arange(v.shape[2], device=v.device)
        return mean_by_queries(k, v, biases, steps, causal, key_mask)


def _biases(band: Tensor, low: int, length: int, t: Tensor) -> Tensor:
    """(G, n, L): the biases of all keys for the queries t."""
    tap = torch.arange(length, device=t.device) - t[:, None] - low
    w = band[:, t[:, None] if band.shape[1] > 1 else 0, tap.clamp(0, band.shape[2] - 1)]
    return w.masked_fill((tap < 0) | (tap >= band.shape[2]), 0.0)


def diagonals(tiles: Float[Tensor, "*N rows columns"], first: int, count: int) -> Tensor:
    """A view (*N, rows, count): row r holds the columns first + r to first + r + count − 1."""
    *outer, row, column = tiles.stride()
    shape, start = (*tiles.shape[:-1], count), tiles.storage_offset() + first * column
    return tiles.as_strided(shape, (*outer, row + column, column), start)


def _reach(kind: torch.dtype) -> float:
    """The largest x for which e^-x is an ordinary number, with room to spare."""
    return 80.0 if kind is torch.float32 else 700.0


class _Layout(NamedTuple):
    """How `length` queries are cut into `tiles` of `size`.

    A tile meets the block of keys at its own place, `before` blocks before it and `after` after it,
    which hold the offsets s − t of the band, `low` to `high`. It sees the other earlier blocks only
    if `past`, the other later ones only if `future`.
    """

    length: int
    size: int
    tiles: int
    before: int
    after: int
    low: int
    high: int
    past: bool
    future: bool

    @classmethod
    def of(cls, length: int, low: int, taps: int, causal: bool) -> "_Layout":
        high = low + taps - 1
        if length <= _DENSE:
            return cls(length, length, 1, 0, 0, low, high, True, not causal)
        count, before, after = (math.ceil(x / _TILE) for x in (length, -low, high))
        return cls(length, _TILE, count, before, after, low, high, True, not causal)

    def turned(self) -> "_Layout":
        """The same with queries and keys exchanged."""
        return self._replace(
            before=self.after, after=self.before, low=-self.high, high=-self.low,
            past=self.future, future=self.past,
        )  # fmt: skip


def _turn(band: Tensor, layout: _Layout) -> Tensor:
    """The band as seen from the keys: a row for each s, a column for each t − s."""
    G, steps, taps = band.shape
    if steps == 1:
        return band.flip(2)
    padded = F.pad(band, (0, 0, layout.high, -layout.low))
    outer, row, column = padded.stride()
    return padded.as_strided((G, steps, taps), (outer, row, row - column), (taps - 1) * column)


def _fill(band: Tensor, layout: _Layout) -> Tensor:
    """(G, N, size, keys of a tile): the band; around it 1 for visible keys, else 0.

    N is the number of tiles, or 1 when one tile serves all.
    """
    G, steps, taps = band.shape
    count, size = layout.tiles, layout.size
    left, right = layout.before * size, layout.after * size
    if count == 1:  # pad with keys that do not exist, for the ends of the band; cut off again
        left, right = -layout.low, layout.high
    around = band.new_ones(size, left + size + right)
    if not layout.past:
        around.triu_(left)
    if not layout.future:
        around.tril_(left)
    if steps > 1:
        band = F.pad(band, (0, 0, 0, count * size - steps))
    band = band.view(G, -1, size if steps > 1 else 1, taps)
    tiles = around.expand(*band.shape[:2], *around.shape).clone()
    diagonals(tiles, left + layout.low, taps).copy_(band)
    return tiles[..., left : left + size] if count == 1 else tiles


class _Columns:
    """x or y of the module's docstring for some series and heads: one column for each series and
    feature, the values first, then the keys; the rows are steps.

    `all` is (G, rows, columns), with rows of 0 for the blocks before the first step and after the
    last; `values` and `keys` are views (G, L, B, H/G, E) of the other rows.
    """

    def __init__(self, x: Tensor, values: torch.Size, keys: torch.Size, layout: _Layout) -> None:
        self.all, self.layout = x, layout
        start, wide = layout.before * layout.size, values[2:].numel()
        steps = x[:, start : start + layout.length]
        self.values: Tensor = steps[:, :, :wide].unflatten(2, values[2:])
        self.keys: Tensor = steps[:, :, wide:].unflatten(2, keys[2:])

    @classmethod
    def empty(cls, values: Tensor, keys: Tensor, layout: _Layout) -> "_Columns":
        """Columns without contents, in the shapes of `values` and `keys`, (G, L, B, H/G, E)."""
        rows = (layout.before + layout.tiles + layout.after) * layout.size
        columns = values.shape[2:].numel() + keys.shape[2:].numel()
        x = values.new_empty(len(values), rows, columns)
        if layout.tiles > 1:
            start = layout.before * layout.size
            x[:, :start] = 0.0
            x[:, start + layout.length :] = 0.0
        return cls(x, values.shape, keys.shape, layout)

    def weighted(self, weights: Tensor) -> "_Columns":
        """W x for the tiles of W that `_fill` gives."""
        tiles, size = self.layout.tiles, self.layout.size
        if tiles == 1:
            out = weights[:, 0] @ self.all
        else:
            out = self.all.new_empty(len(self.all), tiles * size, self.all.shape[2])
            beyond = self._beyond()
            for g in range(len(out)):
                to = out[g].unflatten(0, (tiles, size))
                far, near = beyond[g, :, None].expand_as(to), weights[g].expand(tiles, -1, -1)
                torch.baddbmm(far, near, self._near(g), out=to)
        only = self.layout._replace(before=0, after=0)
        return _Columns(out, self.values.shape, self.keys.shape, only)

    def add_products(self, grad: "_Columns", tiles: Tensor) -> None:
        """Add ∂W = ∂y xᵀ to `tiles`, which holds every tile of W separately; `grad` is ∂y."""
        start, layout = grad.layout.before, self.layout
        for g in range(len(tiles)):
            blocks = grad.all[g].unflatten(0, (-1, layout.size))[start : start + layout.tiles]
            torch.baddbmm(tiles[g], blocks, self._near(g).mT, out=tiles[g])

    def _near(self, g: int) -> Tensor:
        """(tiles, keys of a tile, columns): the blocks that each tile meets; they overlap."""
        x, size = self.all[g], self.layout.size
        seen = (self.layout.before + 1 + self.layout.after) * size
        strides = (size * x.stride(0), *x.stride())
        return x.as_strided((self.layout.tiles, seen, x.shape[1]), strides, x.storage_offset())

    def _beyond(self) -> Tensor:
        """(G, tiles, columns): for each tile, the sum of visible blocks that it does not meet."""
        n = self.layout.tiles
        blocks = self.all.unflatten(1, (-1, self.layout.size)).sum(2)
        sums = torch.zeros_like(blocks[:, :n])
        if self.layout.past:
            sums[:, 1:] += blocks[:, : n - 1].cumsum(1)
        if self.layout.future:
            sums[:, :-1] += blocks[:, 1 - n :].flip(1).cumsum(1).flip(1)
        return sums


class _BandedMean(torch.autograd.Function):
    """Keeps x, m and y₂."""

    @staticmethod
    def forward(
        ctx: Any, k: Tensor, v: Tensor, band: Tensor, top: Tensor, layout: _Layout, masked: bool
    ) -> Tensor:
        mean, below = kernels.empty_heads_last(v), kernels.empty_heads_last(k)
        weights = _fill(band.exp(), layout)
        columns = []
        steps = [_by_step(x, len(band)) for x in (k, v, top, mean, below)]
        for part in _parts(k, v, len(band)):
            keys, values, shift, out, y2 = (x[part] for x in steps)
            x = _Columns.empty(values, keys, layout)
            # Exponents whose weight would be negligible are clamped.
            torch.sub(keys, shift, out=x.keys).clamp_(min=-_reach(k.dtype)).exp_()
            if masked:
                x.keys *= keys > HIDDEN / 2
            torch.mul(x.keys, values, out=x.values)
            y = x.weighted(weights)
            y2.copy_(y.keys)
            if masked:
                y2 += y2 == 0.0  # nothing seen: 0 / 1
            torch.div(y.values, y2, out=out)
            columns.append(x.all)
        ctx.save_for_backward(v, band, mean, below, *columns)
        ctx.layout = layout
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        v, band, mean, below, *columns = ctx.saved_tensors
        G, layout, turned = len(band), ctx.layout, ctx.layout.turned()
        weights = _fill(_turn(band, layout).exp(), turned)
        grad_k, grad_v = kernels.empty_heads_last(below), kernels.empty_heads_last(v)
        seen = (layout.before + 1 + layout.after) * layout.size
        grad_tiles = band.new_zeros(G, layout.tiles, layout.size, seen)
        steps = [_by_step(x, G) for x in (v, mean, below, grad, grad_k, grad_v)]
        for part, x_all in zip(_parts(below, v, G), columns, strict=True):
            values, out, y2, g, dk, dv = (x[part] for x in steps)
            x = _Columns(x_all, values.shape, y2.shape, layout)
            dy = _Columns.empty(values, y2, turned)
            torch.div(g, y2, out=dy.values)
            torch.neg((dy.values * out).sum_to_size(y2.shape), out=dy.keys)
            if ctx.needs_input_grad[2]:
                x.add_products(dy, grad_tiles)
            dx = dy.weighted(weights)
            torch.mul(x.keys, dx.values, out=dv)
            dx.keys += dx.values.mul_(values).sum_to_size(y2.shape)
            torch.mul(x.keys, dx.keys, out=dk)
        return grad_k, grad_v, _band_gradient(grad_tiles, band, layout), None, None, None


def _band_gradient(tiles: Tensor, band: Tensor, layout: _Layout) -> Tensor:
    """The diagonals of ∂W that the band fills, times e^w."""
    first = layout.before * layout.size + layout.low
    if layout.tiles == 1:
        tiles, first = F.pad(tiles, (-layout.low, layout.high)), 0
    gradient = diagonals(tiles, first, band.shape[2]).flatten(1, 2)[:, : layout.length]
    return gradient.sum_to_size(band.shape) * band.exp()


def _parts(k: Tensor, v: Tensor, G: int) -> list[tuple[slice, ...]]:
    """The parts of (G, L, B, H/G, E) to compute together: on a CPU, as many series and heads as fit
    its cache, but always all heads that have separate bands."""
    B, H = v.shape[:2]
    if v.device.type != "cpu":
        return [()]
    one = k.shape[2:].numel() + v.shape[2:].numel()
    parts = kernels.slices(B, H // G, G * one, _AT_ONCE)
    return [(slice(None), slice(None), *part) for part in parts]


def _by_step(x: Tensor, G: int) -> Tensor:
    """(B, H, L, E) -> (G, L, B, H/G, E), a view."""
    grouped: Tensor = x.unflatten(1, (G, -1))
    return grouped.permute(1, 3, 0, 2, 4)
