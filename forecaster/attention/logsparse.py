"""LogSparse attention: every step sees its neighbours and, further away, ever sparser steps.

Li et al., "Enhancing the Locality and Breaking the Memory Bottleneck of Transformer on Time Series
Forecasting" (LogTrans), NeurIPS 2019, sections 4.1 and 4.2, theorem 1. With the distance
d = i − j >= 0, the length S' = `sub_len` (default L), r = d mod S', and W = `local_len` (default
⌈log2 S'⌉, at least 1):

    j is visible to i  iff  r < W   or   r − (W−1) is a power of two
    out_i = Σ_j softmax_j(q_i·k_j / √E) v_j        over the visible j

The window of W steps includes i itself; `sub_len` < L restarts the pattern at each multiple of it.
The q and k of the module are causal convolutions over time of `kernel_size` steps (default 3), so
that shapes are compared instead of points. A row sees at most n = ⌈L/S'⌉·(W + ⌈log2 S'⌉) steps:
time O(L·n·E), without restart O(L·log(L)·E); memory O(L·E). It is full attention when W >= S'.
Strictly causal. The form without `causal` is our extension: d = |i − j|, and the convolutions are
centred.

The authors' code lets the first (L // S')·2·⌈log2 S'⌉ rows see their whole past; `dense_prefix`
= p adds every pair with i, j < p and so reproduces that. Their mask hides some rows from
themselves and, for L < S', hides everything from row 0; here a row always sees itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Core, Effective, Place, Seen, SelfAttention
from forecaster.attention.common.definitions import attend, positions
from forecaster.attention.common.flex import flex_pattern, suits_flex
from forecaster.attention.common.kernels import (
    accumulator,
    at_least_one,
    check_self_inputs,
    outside_graphs,
    visible_keys,
)
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.attention.common.patterns import masked_attention, pattern_mask
from forecaster.attention.common.tiles import HIDDEN, softmax_part, softmax_part_backward
from forecaster.base.shapes import Bool, Float

_DENSE = {"cpu": 384, "gpu": 2048}  # steps up to which one masked call is at least as fast
_CHUNK = {"cpu": 1 << 19, "gpu": 1 << 24}  # elements of q worked on at a time, to stay in caches
_BLOCK, _TALLEST = 32, 512  # queries of the smallest and the largest tile
_SLICE = 12  # a distance computed alone costs as much as this many more keys of a tile


@dataclass(frozen=True)
class LogSparsePattern:
    """Which steps see which, with all options resolved to numbers of steps."""

    sub_len: int
    local_len: int
    dense_prefix: int = 0
    causal: bool = True

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        """Whether query i sees key j: a bool tensor for positions that broadcast."""
        distance = i - j if self.causal else (i - j).abs()
        rest = distance % self.sub_len
        beyond = rest - (self.local_len - 1)
        seen = (rest < self.local_len) | (beyond & (beyond - 1) == 0)
        if self.dense_prefix:
            seen = seen | ((i < self.dense_prefix) & (j < self.dense_prefix))
        return seen & (distance >= 0)


def log_sparse_pattern(
    L: int,
    sub_len: int | None = None,
    local_len: int | None = None,
    dense_prefix: int = 0,
    causal: bool = True,
) -> LogSparsePattern:
    """The pattern of L steps with the defaults filled in. Raises ValueError for sizes below 1."""
    sub_len = L if sub_len is None else sub_len
    at_least_one(sub_len=sub_len)
    local_len = max(1, math.ceil(math.log2(sub_len))) if local_len is None else local_len
    at_least_one(local_len=local_len)
    if dense_prefix < 0:
        raise ValueError(f"dense_prefix must be at least 0, got dense_prefix={dense_prefix}")
    return LogSparsePattern(sub_len, local_len, min(dense_prefix, L), causal)


def log_sparse_offsets(
    L: int, sub_len: int | None = None, local_len: int | None = None
) -> list[int]:
    """The visible distances i - j >= 0 among L steps, sorted."""
    pattern = log_sparse_pattern(L, sub_len, local_len)
    return pattern(torch.arange(L), torch.tensor(0)).nonzero().flatten().tolist()


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    sub_len: int | None = None,
    local_len: int | None = None,
    dense_prefix: int = 0,
    scale: float | None = None,
) -> Tensor:
    """Full attention over the j with r < W or r − (W−1) a power of two, and over the prefix."""
    pattern = log_sparse_pattern(q.shape[2], sub_len, local_len, dense_prefix, causal=False)
    shown = pattern(*positions(q.shape[2], k.shape[2], q.device))
    return attend(q, k, v, seen & shown, scale)


def log_sparse_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    sub_len: int | None = None,
    local_len: int | None = None,
    dense_prefix: int = 0,
    causal: bool = True,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention over the keys of the pattern; see the module for the formula.

    `scale` defaults to E**-0.5. `key_mask` True is a real key; a query that sees none gives 0.
    Raises ValueError when sizes or options do not fit, or for L != S.
    """
    check_self_inputs(q, k, v, causal, key_mask)
    L = q.shape[2]
    pattern = log_sparse_pattern(L, sub_len, local_len, dense_prefix, causal)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    if _DENSE[_machine(q)] >= L:
        visible = pattern_mask(pattern, L, q.device)
        return masked_attention(q, k, v, visible, key_mask, scale)
    if suits_flex(q, v, key_mask):
        return flex_pattern(q, k, v, pattern, scale)
    real = visible_keys(False, key_mask)
    attend = outside_graphs(_LogSparse.apply)  # loops over chunks and distances
    kind = accumulator(q.dtype)
    out: Tensor = attend(
        *(_with_whole_rows(x.to(kind)) for x in (q, k, v)),
        None if real is None else real[:, 0],
        pattern,
        scale,
    )
    return out.to(v.dtype)


class LogSparseAttention(SelfAttention):
    """Multi-head `log_sparse_attention` whose q and k are convolutions of `kernel_size` steps.

    Without a `sub_len`, the default `local_len` follows from the length of the place, not of the
    input. Masked steps enter the convolutions as zeros, like those beyond the ends of a series.
    """

    about = About(
        "Li et al., LogTrans", 2019, "L·log(L)·D",
        weights="content", stalls=False,
        no_export="for long series it reads the visible distances from a tensor",
    )  # fmt: skip
    core = Core.plain("a choice of pairs", log_sparse_attention)

    def __init__(
        self,
        place: Place,
        *,
        sub_len: int | None = None,
        local_len: int | None = None,
        dense_prefix: int = 0,
        kernel_size: int = 3,
    ) -> None:
        super().__init__(place)
        at_least_one(kernel_size=kernel_size)
        pattern = log_sparse_pattern(place.query_length, sub_len, local_len, dense_prefix)
        self.sub_len, self.local_len = sub_len, pattern.local_len
        self.dense_prefix = dense_prefix
        self.kernel_size = kernel_size
        self.query_projection = nn.Conv1d(place.width, place.width, kernel_size)
        self.key_projection = nn.Conv1d(place.width, place.width, kernel_size)
        self.value_projection = nn.Linear(place.width, place.width)
        self.out_projection = nn.Linear(place.width, place.width)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        key_mask = seen["key_mask"]
        steps = query if key_mask is None else query.masked_fill(~key_mask[..., None], 0.0)
        before = self.kernel_size - 1 if seen["causal"] else self.kernel_size // 2
        steps = F.pad(steps.mT, (before, self.kernel_size - 1 - before))
        out = log_sparse_attention(
            split_heads(self.query_projection(steps).mT, self.place.heads),
            split_heads(self.key_projection(steps).mT, self.place.heads),
            split_heads(self.value_projection(context), self.place.heads),
            sub_len=self.sub_len,
            local_len=self.local_len,
            dense_prefix=self.dense_prefix,
            **seen,
        )
        projected: Tensor = self.out_projection(merge_heads(out, self.place.mix))
        return projected

    def amounts_to(self) -> Effective:
        L = self.place.query_length
        seen = len(log_sparse_offsets(L, self.sub_len, self.local_len))
        if seen == L or self.dense_prefix >= L:
            return Effective(f"full: all of {L} distances visible", full=True)
        return Effective(f"logsparse: {seen} of {L} distances visible")


class _LogSparse(torch.autograd.Function):
    """Near keys in tiles along the diagonal, far distances one by one, merged exactly.

    A row is a softmax over one score for each far distance and z', the log-sum-exp of its scores in
    the tile. The backward pass recomputes the scores and uses the output and the z of all scores.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        real: Tensor | None,
        pattern: LogSparsePattern,
        scale: float,
    ) -> Tensor:
        out, z = torch.empty_like(v), q.new_empty(q.shape[:3])
        for chunk in _chunks(q, pattern):
            bias = chunk.bias(pattern, real, q)
            tiles = chunk.queries(q), chunk.keys(k), chunk.keys(v)
            o, near = (chunk.join(x) for x in softmax_part(*tiles, scale=scale, bias=bias))
            scores = torch.cat([near[None], chunk.far_scores(q, k, real, scale)])
            top = scores.amax(0)
            weights = _exp(scores - top)
            total = weights.sum(0)
            weights = (weights / total)[..., None]
            z[:, :, chunk.rows] = total.log_().add_(top)
            torch.mul(o, weights[0], out=out[:, :, chunk.rows])
            for n, (i, j) in enumerate(chunk.far, 1):
                out[:, :, i].addcmul_(weights[n, :, :, chunk.inside(i)], v[:, :, j])
        if real is not None:
            empty = z < HIDDEN / 2
            out.masked_fill_(empty[..., None], 0.0)
            z.masked_fill_(empty, 0.0)  # so that no key has weight in the backward pass
        ctx.save_for_backward(q, k, v, real, out, z)
        ctx.pattern, ctx.scale = pattern, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, real, out, z = ctx.saved_tensors
        scale: float = ctx.scale
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for chunk in _chunks(q, ctx.pattern):
            near = softmax_part_backward(
                chunk.queries(grad),
                chunk.queries(q),
                chunk.keys(k),
                chunk.keys(v),
                chunk.queries(out),
                chunk.queries(z),
                scale=scale,
                bias=chunk.bias(ctx.pattern, real, q),
            )
            grad_q[:, :, chunk.rows] = chunk.join(near[0])
            chunk.add_keys(grad_k, near[1])
            chunk.add_keys(grad_v, near[2])
            mean = _dot(grad[:, :, chunk.rows], out[:, :, chunk.rows])
            weights = _exp(chunk.far_scores(q, k, real, scale) - z[:, :, chunk.rows])[..., None]
            for n, (i, j) in enumerate(chunk.far):
                weight = weights[n, :, :, chunk.inside(i)]
                slope = _dot(grad[:, :, i], v[:, :, j]) - mean[:, :, chunk.inside(i)]
                slope = slope[..., None].mul_(weight).mul_(scale)
                grad_q[:, :, i].addcmul_(slope, k[:, :, j])
                grad_k[:, :, j].addcmul_(slope, q[:, :, i])
                grad_v[:, :, j].addcmul_(weight, grad[:, :, i])
        return grad_q, grad_k, grad_v, None, None, None


@dataclass(frozen=True)
class _Chunk:
    """Some blocks of queries, each with a tile of near keys, and their far keys.

    The chunk has `blocks` blocks of `height` queries, from step `start` on. The tile of block n has
    the `width` keys from `first` + n·`height` on, of which only those within `reach` or in the
    dense prefix are visible. `far` holds the steps of queries and of keys for every far distance.
    """

    start: int
    height: int
    blocks: int
    first: int
    width: int
    reach: int
    far: list[tuple[slice, slice]]

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.blocks * self.height)

    def inside(self, steps: slice) -> slice:
        """The same steps, counted from the first step of the chunk."""
        return slice(steps.start - self.start, steps.stop - self.start)

    def queries(self, x: Tensor) -> Tensor:
        """(B·blocks, H, height, ...) from (B, H, L, ...)."""
        tiles: Tensor = x[:, :, self.rows].unflatten(2, (self.blocks, self.height))
        return tiles.transpose(1, 2).flatten(0, 1)

    def join(self, tiles: Tensor) -> Tensor:
        """(B, H, rows, ...) from (B·blocks, H, rows of a tile, ...)."""
        rows: Tensor = tiles.unflatten(0, (-1, self.blocks)).transpose(1, 2)
        return rows.flatten(2, 3)

    def keys(self, x: Tensor) -> Tensor:
        """(B·blocks, H, width, ...) from (B, H, L, ...)."""
        steps = x[:, :, self.first : self.first + self.width + (self.blocks - 1) * self.height]
        tiles = steps.unfold(2, self.width, self.height).movedim(-1, 3)
        return tiles.transpose(1, 2).flatten(0, 1)

    def add_keys(self, total: Tensor, tiles: Tensor) -> None:
        """Add (B·blocks, H, width, E) to (B, H, L, E) at the steps from which `keys` takes them.

        Tiles overlap, but pieces as long as the distance between tiles do not.
        """
        for begin in range(0, self.width, self.height):
            piece = self.join(tiles[:, :, begin : begin + self.height])
            at = self.first + begin
            total[:, :, at : at + piece.shape[2]] += piece

    def bias(self, pattern: LogSparsePattern, real: Tensor | None, like: Tensor) -> Tensor:
        """The bias on the scores of the tiles; it broadcasts to (B·blocks, H, height, width)."""
        i = torch.arange(self.start, self.start + self.height, device=like.device)[:, None]
        j = torch.arange(self.first, self.first + self.width, device=like.device)
        near = (i - j).abs() <= self.reach
        if pattern.dense_prefix:
            near |= (i < pattern.dense_prefix) & (j < pattern.dense_prefix)
        visible = (near & pattern(i, j))[None, None]
        if real is not None:
            visible = visible & self.keys(real)[:, :, None]
        return (~visible).to(like.dtype).mul_(HIDDEN)

    def far_scores(self, q: Tensor, k: Tensor, real: Tensor | None, scale: float) -> Tensor:
        """(far distances, B, H, rows), HIDDEN where the key does not exist or is masked."""
        rows = self.blocks * self.height
        scores = q.new_full((len(self.far), *q.shape[:2], rows), HIDDEN)
        for n, (i, j) in enumerate(self.far):
            score = _dot(q[:, :, i], k[:, :, j]).mul_(scale)
            if real is not None:
                score.masked_fill_(~real[:, :, j], HIDDEN)
            scores[n, :, :, self.inside(i)] = score
        return scores


def _chunks(q: Tensor, pattern: LogSparsePattern) -> Iterator[_Chunk]:
    """Yield all rows in chunks. A tile cut short by an end of the series gets its own chunk."""
    B, H, L, E = q.shape
    height, reach, distances = _plan(L, pattern)
    prefix, ahead = pattern.dense_prefix, 0 if pattern.causal else reach
    at_once = max(1, _CHUNK[_machine(q)] // (B * H * E * height))
    start = 0
    while start < L:
        rows, blocks = min(height, L - start), 1
        if start < prefix:
            rows = min(_TALLEST, prefix - start)
        elif reach <= start <= L - height - ahead:
            blocks = min(at_once, (L - ahead - start) // height)
        first = 0 if start < prefix else max(0, start - reach)
        last = min(L, max(prefix, start + rows + ahead))
        stop = start + blocks * rows
        far = []
        for d in distances:  # from query i to key i - d, but not within the dense prefix
            i = range(max(start, d, prefix + min(d, 0)), min(stop, L + min(d, 0)))
            if i:
                far.append((slice(i.start, i.stop), slice(i.start - d, i.stop - d)))
        yield _Chunk(start, rows, blocks, first, last - first, reach, far)
        start = stop


@lru_cache(maxsize=64)
def _plan(L: int, pattern: LogSparsePattern) -> tuple[int, int, tuple[int, ...]]:
    """The height and the reach of the tiles and the distances beyond, at the lowest total cost.

    Tiles hold height + reach keys; the reach is a multiple of the height. Distances into the future
    are negative.
    """
    offsets = log_sparse_offsets(L, pattern.sub_len, pattern.local_len)

    def tile(reach: int) -> tuple[int, int]:
        height = min(_TALLEST, max(_BLOCK, (1 << reach.bit_length()) // 4))
        return height, math.ceil(reach / height) * height

    def cost(n: int) -> int:
        return sum(tile(offsets[n])) + _SLICE * (len(offsets) - n)

    height, reach = tile(offsets[min(range(len(offsets)), key=cost)])
    far = [d for d in offsets if d > reach]
    return height, reach, tuple(far if pattern.causal else far + [-d for d in far])


def _with_whole_rows(x: Tensor) -> Tensor:
    """x with a contiguous last axis, as the fused kernel requires."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _machine(x: Tensor) -> str:
    return "cpu" if x.device.type == "cpu" else "gpu"


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """Products of the rows; `torch.linalg.vecdot` would lower the precision under autocast."""
    return (x * y).sum(-1)


def _exp(x: Tensor) -> Tensor:
    """e^x for x <= 0, but 0 below -80: exp is slow where it underflows."""
    return x.clamp(min=-80.0).exp_() * (x > -80.0)
