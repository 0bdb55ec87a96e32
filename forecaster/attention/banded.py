"""The mean that AFT-local and AFT-conv take, in which only steps near each other have a bias.

    m_t = Σ_s e^(k_s + w_ts) ⊙ v_s / Σ_s e^(k_s + w_ts)       per feature; causal: s <= t
    w_ts = band[t, s − t − low] where that column exists, else 0

It is computed as a plain fraction: e^k relative to the largest k of its feature, once; then one
matmul with e^w for each tile of queries and the keys near it, plus sums of whole blocks for the
keys further away. Nothing is subtracted, so nothing cancels. With x = (e^k v, e^k), y = W x and
m = y₁ / y₂ the gradient has the same form, W being turned so that it is read from the keys:

    ∂y = (∂m / y₂, −m ∂m / y₂)                  ∂x = Wᵀ ∂y          ∂W = ∂y xᵀ
    ∂v = e^k ∂x₁                                ∂k = e^k (v ∂x₁ + ∂x₂)

One shift for all queries underflows where a causal series has keys far below its largest, or where
biases differ by as much. Such a call is computed in float64, and where even that cannot hold e^k,
with a softmax for each query and feature: slower, but right for any finite input.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from forecaster.attention.kernels import accumulator
from forecaster.attention.tiles import HIDDEN
from forecaster.shapes import Bool, Float

_TILE = 32  # queries that share one matmul with the keys near them
_DENSE = 128  # up to this length, one tile holds all queries and keys
_AT_ONCE = 1 << 19  # elements of x computed at a time, to stay in a CPU's cache


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

    Ek is Ev, or 1: one key for all features of a head. `band` holds the biases of the offsets
    s − t = low, low + 1, ..., low + taps − 1, where low <= 0; the last is >= 0, and 0 if causal.
    G is 1 or H; N is L, or 1 for biases that are the same for every query.
    """
    kind = accumulator(v.dtype)
    k, v, band = k.to(kind), v.to(kind), band.to(kind)
    real, lowest = None, k
    if key_mask is not None:
        real = key_mask[:, None, :, None].expand(-1, v.shape[1], -1, -1)
        lowest = k.masked_fill(~real, -HIDDEN)
        k, v = k.masked_fill(~real, HIDDEN), v.masked_fill(~real, 0.0)
    with torch.no_grad():
        top = k.amax(2, keepdim=True)
        least, most = band.aminmax()
        span = most.clamp(min=0.0) - least.clamp(max=0.0)
        if causal:
            span = span + (top - lowest.amin(2, keepdim=True)).amax().clamp(min=0.0)
        is_ordinary = bool(span <= 0.75 * _reach(kind))
    if not is_ordinary and kind is torch.float32:
        k, v, band = k.double(), v.double(), band.double()
        return banded_mean(k, v, band, low, causal=causal, key_mask=key_mask).to(kind)

    layout = _Layout.of(v.shape[2], low, band.shape[2], causal)
    with torch.autocast(v.device.type, enabled=False):
        if is_ordinary:
            mean: Tensor = _BandedMean.apply(  # type: ignore[no-untyped-call]
                k, v, band, top, real, layout
            )
            return mean
        series = zip(k.split(1), v.split(1), strict=True)
        return torch.cat([_softmax_mean(*one, band, layout) for one in series])


def diagonals(tiles: Float[Tensor, "*N rows columns"], first: int, count: int) -> Tensor:
    """A view (*N, rows, count): of row r the columns first + r to first + r + count − 1."""
    *outer, row, column = tiles.stride()
    return tiles.as_strided(
        (*tiles.shape[:-1], count),
        (*outer, row + column, column),
        tiles.storage_offset() + first * column,
    )


def _reach(kind: torch.dtype) -> float:
    """The largest x for which e^-x is an ordinary number, with room to spare."""
    return 80.0 if kind is torch.float32 else 700.0


class _Layout(NamedTuple):
    """How `length` queries are cut into `tiles` of `size`.

    A tile meets the block of keys beside it, `before` blocks earlier and `after` later, which hold
    the offsets s − t of the band, `low` to `high`. Other blocks are seen if `past` and `future` say
    so.
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
            before=self.after,
            after=self.before,
            low=-self.high,
            high=-self.low,
            past=self.future,
            future=self.past,
        )


def _turn(band: Tensor, layout: _Layout) -> Tensor:
    """The band as seen from the keys: a row for each s, a column for each t − s."""
    G, steps, taps = band.shape
    if steps == 1:
        return band.flip(2)
    padded = F.pad(band, (0, 0, layout.high, -layout.low))
    outer, row, column = padded.stride()
    return padded.as_strided((G, steps, taps), (outer, row, row - column), (taps - 1) * column)


def _fill(band: Tensor, layout: _Layout, far: float, unseen: float) -> Tensor:
    """(G, N, size, keys of a tile): the band, and around it `far` where a key is seen, or `unseen`.

    N is the number of tiles, or 1 for one that serves all.
    """
    G, steps, taps = band.shape
    count, size = layout.tiles, layout.size
    left, right = layout.before * size, layout.after * size
    if count == 1:  # keys that do not exist, for the ends of the band; cut off again
        left, right = -layout.low, layout.high
    around = band.new_full((size, left + size + right), far)
    offset = torch.arange(-left, size + right, device=band.device)
    offset = offset - torch.arange(size, device=band.device)[:, None]
    if not layout.past:
        around.masked_fill_(offset < 0, unseen)
    if not layout.future:
        around.masked_fill_(offset > 0, unseen)
    if steps > 1:
        band = F.pad(band, (0, 0, 0, count * size - steps))
    band = band.view(G, -1, size if steps > 1 else 1, taps)
    tiles = around.expand(*band.shape[:2], *around.shape).clone()
    diagonals(tiles, left + layout.low, taps).copy_(band)
    return tiles[..., left : left + size] if count == 1 else tiles


class _Columns:
    """x or ∂y of the module's docstring for some series and heads: a column for each series and
    feature, first those of the values, then those of the keys; the rows are steps.

    `all` is (G, rows, columns), with rows of 0 for the blocks before the first step and after the
    last; `values` and `keys` are views of it, like the given (G, L, B, H/G, E).
    """

    def __init__(self, keys: Tensor, values: Tensor, layout: _Layout) -> None:
        self.layout, self.like = layout, (values, keys)
        blocks = layout.before + layout.tiles + layout.after
        columns = keys[0, 0].numel() + values[0, 0].numel()
        start, L = layout.before * layout.size, layout.length
        self.all = values.new_empty(len(values), blocks * layout.size, columns)
        self.all[:, :start] = 0.0
        self.all[:, start + L :] = 0.0
        self.values, self.keys = self.halves(self.all[:, start:])

    def halves(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The values and the keys of (G, at least L, columns); views (G, L, B, H/G, E)."""
        values, keys = self.like
        columns = columns[:, : self.layout.length]
        wide = values[0, 0].numel()
        return (
            columns[..., :wide].unflatten(2, values.shape[2:]),
            columns[..., wide:].unflatten(2, keys.shape[2:]),
        )

    def own(self, g: int) -> Tensor:
        """(count, size, columns): of each tile the block beside it; a view."""
        first, tiles, size = self.layout.before, self.layout.tiles, self.layout.size
        blocks: Tensor = self.all[g].unflatten(0, (-1, size))
        return blocks[first : first + tiles]

    def near(self, g: int) -> Tensor:
        """(count, keys of a tile, columns): of each tile all its blocks, overlapping; a view."""
        x, size = self.all[g], self.layout.size
        seen = (self.layout.before + 1 + self.layout.after) * size
        strides = (size * x.stride(0), *x.stride())
        return x.as_strided((self.layout.tiles, seen, x.shape[1]), strides, x.storage_offset())

    def weighted(self, weights: Tensor) -> Tensor:
        """W x, (G, count * size, columns), for the tiles of W that `_fill` gives."""
        count, size = self.layout.tiles, self.layout.size
        if count == 1:
            return weights[:, 0] @ self.all
        blocks = self.all.unflatten(1, (-1, size)).sum(2)
        far = torch.zeros_like(blocks[:, :count])
        if self.layout.past:
            far[:, 1:] += blocks[:, : count - 1].cumsum(1)
        if self.layout.future:
            far[:, :-1] += blocks[:, 1 - count :].flip(1).cumsum(1).flip(1)
        out = far.new_empty(*far.shape[:2], size, far.shape[2])
        for g in range(len(out)):
            beyond = far[g, :, None].expand_as(out[g])
            torch.baddbmm(beyond, weights[g].expand(count, -1, -1), self.near(g), out=out[g])
        return out.flatten(1, 2)


class _BandedMean(torch.autograd.Function):
    """Keeps m and y₂; the exponentials are taken again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        k: Tensor,
        v: Tensor,
        band: Tensor,
        top: Tensor,
        real: Tensor | None,
        layout: _Layout,
    ) -> Tensor:
        G = len(band)
        weights = _fill(band.exp(), layout, far=1.0, unseen=0.0)
        mean, below = _empty_like(v), _empty_like(k)
        for part in _parts(k, v, G):
            keys, values, out, y2 = (_by_step(x[part], G) for x in (k, v, mean, below))
            x = _exponentials(keys, values, top, real, part, layout)
            above, sums = x.halves(x.weighted(weights))
            y2.copy_(sums)
            if real is not None:
                y2 += y2 == 0.0  # nothing seen: 0 / 1
            torch.div(above, y2, out=out)
        ctx.save_for_backward(k, v, band, top, real, mean, below)
        ctx.layout = layout
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        k, v, band, top, real, mean, below = ctx.saved_tensors
        G, layout, turned = len(band), ctx.layout, ctx.layout.turned()
        weights = _fill(_turn(band, layout).exp(), turned, far=1.0, unseen=0.0)
        grad_k, grad_v, grad_band = _empty_like(k), _empty_like(v), torch.zeros_like(band)
        for part in _parts(k, v, G):
            keys, values, out, y2, g, dk, dv = (
                _by_step(x[part], G) for x in (k, v, mean, below, grad, grad_k, grad_v)
            )
            dy = _Columns(keys, values, turned)
            torch.div(g, y2, out=dy.values)
            torch.neg((dy.values * out).sum_to_size(keys.shape), out=dy.keys)
            x = _exponentials(keys, values, top, real, part, layout)
            dx_values, dx_keys = dy.halves(dy.weighted(weights))
            torch.mul(x.keys, dx_values, out=dv)
            dx_keys += dx_values.mul_(values).sum_to_size(keys.shape)
            torch.mul(x.keys, dx_keys, out=dk)
            if ctx.needs_input_grad[2]:
                grad_band += _band_gradient(dy, x, band)
        return grad_k, grad_v, grad_band, None, None, None


def _exponentials(
    keys: Tensor,
    values: Tensor,
    top: Tensor,
    real: Tensor | None,
    part: tuple[slice, slice],
    layout: _Layout,
) -> _Columns:
    """x, relative to e^top; exponents that are nothing beside it are not taken further down."""
    G = len(keys)
    x = _Columns(keys, values, layout)
    torch.sub(keys, _by_step(top[part], G), out=x.keys).clamp_(min=-_reach(keys.dtype)).exp_()
    if real is not None:
        x.keys *= _by_step(real[part], G)
    torch.mul(x.keys, values, out=x.values)
    return x


def _band_gradient(dy: _Columns, x: _Columns, band: Tensor) -> Tensor:
    """The diagonals of ∂W that the band fills, times e^w."""
    layout, taps = x.layout, band.shape[2]
    if layout.tiles == 1:
        tiles, first = F.pad(dy.all @ x.all.mT, (-layout.low, layout.high))[:, None], 0
    else:
        tiles = torch.stack([dy.own(g) @ x.near(g).mT for g in range(len(band))])
        first = layout.before * layout.size + layout.low
    gradient = diagonals(tiles, first, taps).flatten(1, 2)[:, : layout.length]
    return gradient.sum_to_size(band.shape) * band.exp()


def _parts(k: Tensor, v: Tensor, G: int) -> list[tuple[slice, slice]]:
    """Series and heads to compute together: on a CPU few enough for its cache.

    Heads with a band of their own stay together.
    """
    B, H = v.shape[:2]
    if v.device.type != "cpu":
        return [(slice(B), slice(H))]
    one = k[0, 0].numel() + v[0, 0].numel()
    heads = H if G > 1 else min(H, max(1, _AT_ONCE // one))
    series = max(1, _AT_ONCE // (one * heads))
    return [
        (slice(b, b + series), slice(h, h + heads))
        for b in range(0, B, series)
        for h in range(0, H, heads)
    ]


def _empty_like(x: Tensor) -> Tensor:
    """For (B, H, L, E), with the heads side by side in memory, as projections leave them."""
    return x.new_empty(x.transpose(1, 2).shape).transpose(1, 2)


def _by_step(x: Tensor, G: int) -> Tensor:
    """(B, H, L, E) -> (G, L, B, H/G, E), a view."""
    grouped: Tensor = x.unflatten(1, (G, -1))
    return grouped.permute(1, 3, 0, 2, 4)


def _softmax_mean(k: Tensor, v: Tensor, band: Tensor, layout: _Layout) -> Tensor:
    """m for any finite keys and biases, with a softmax for each query and feature.

    A hidden key is HIDDEN. The keys beyond a tile take part as one key on either side: the
    log-sum-exp of theirs, and their mean value.
    """
    size, count = layout.size, layout.tiles
    pad = (0, 0, layout.before * size, (count + layout.after) * size - layout.length)
    keys = F.pad(k, pad, value=HIDDEN).unflatten(2, (-1, size))
    values = F.pad(v, pad).unflatten(2, (-1, size))
    blocks = keys.logsumexp(3), (keys.softmax(3) * values).sum(3)
    past = _running(*blocks)
    future = _running(*(x.flip(2) for x in blocks))[:count][::-1]
    biases = _fill(band, layout, far=0.0, unseen=HIDDEN)
    rows = []
    for i in range(count):
        near = slice(i, i + layout.before + 1 + layout.after)
        far = [past[i], future[i]] if layout.future else [past[i]]
        seen_keys, seen_values = (
            torch.cat([x[:, :, near].flatten(2, 3), *beyond], dim=2)
            for x, beyond in zip((keys, values), zip(*far, strict=True), strict=True)
        )
        bias = F.pad(biases[:, min(i, biases.shape[1] - 1)], (0, len(far)))
        rows.append(checkpoint(_softmax_rows, seen_keys, seen_values, bias, use_reentrant=False))
    return torch.cat(rows, dim=2)[:, :, : layout.length]


def _running(keys: Tensor, values: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For each n the first n blocks (B, H, n, E) as one: log-sum-exp and mean (B, H, 1, E)."""
    key, value = torch.full_like(keys[:, :, :1], HIDDEN), torch.zeros_like(values[:, :, :1])
    firsts = [(key, value)]
    for k, v in zip(keys.split(1, dim=2), values.split(1, dim=2), strict=True):
        key, value = torch.logaddexp(key, k), torch.lerp(value, v, torch.sigmoid(k - key))
        firsts.append((key, value))
    return firsts


def _softmax_rows(keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """(B, H, S, Ek), (B, H, S, Ev), (G, L, S) -> (B, H, L, Ev); 0 where all keys are hidden."""
    logits = keys[:, :, None] + bias[..., None]
    mean = (logits.softmax(3) * values[:, :, None]).sum(3)
    return mean.masked_fill(logits.amax(3) < HIDDEN / 2, 0.0)
