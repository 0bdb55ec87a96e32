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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import About, Core, Effective, Place, Seen, SelfAttention
from forecaster.attention.common import kernels, patterns
from forecaster.attention.common.definitions import attend, positions
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.attention.common.tiles import HIDDEN
from forecaster.base.shapes import Bool, Float

_SHORT = 384  # up to this length one masked call is at least as fast as tiles (measured)
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
    kernels.at_least_one(sub_len=sub_len)
    local_len = max(1, math.ceil(math.log2(sub_len))) if local_len is None else local_len
    kernels.at_least_one(local_len=local_len)
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
    kernels.check_self_inputs(q, k, v, causal, key_mask)
    L = q.shape[2]
    pattern = log_sparse_pattern(L, sub_len, local_len, dense_prefix, causal)
    spaced = replace(pattern, dense_prefix=0)

    def tiles() -> tuple[patterns.Strip, list[patterns.Piece]]:
        height, reach, far = _plan(L, pattern)
        rows = max(1, patterns.held_at_once(q) // (2 * q.shape[0] * q.shape[1] * q.shape[3]))

        def near(i: Tensor, j: Tensor) -> Tensor:
            return spaced(i, j) & ((i - j).abs() <= reach)

        strip = patterns.Strip.of(q, height, margin=reach)
        pieces = patterns.windows(strip, q, height, reach, causal, near)
        for start in range(0, L, rows):
            for d in far:
                first, stop = max(start, d), min(start + rows, L, L + d)
                if first < stop:
                    pieces.append(_Distance(strip, slice(first, stop), d))
        dense = pattern.dense_prefix

        def alone(i: Tensor, j: Tensor) -> Tensor:
            return pattern(i, j) & ~spaced(i, j)

        return strip, pieces + patterns.first_keys(strip, dense, dense, _TALLEST, alone)

    return patterns.pattern_attention(
        q, k, v, (pattern,), tiles, short=_SHORT, key_mask=key_mask, scale=scale
    )


class LogSparseAttention(SelfAttention):
    """Multi-head `log_sparse_attention` whose q and k are convolutions of `kernel_size` steps.

    Without a `sub_len`, the default `local_len` follows from the length of the place, not of the
    input. Masked steps enter the convolutions as zeros, like those beyond the ends of a series.
    """

    about = About(
        "Li et al., LogTrans", 2019, "L·log(L)·D",
        weights="content", no_export="for long series it reads the visible distances from a tensor",
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
        kernels.at_least_one(kernel_size=kernel_size)
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


@dataclass(frozen=True)
class _Distance(patterns.Piece):
    """The queries `rows` of every series, each with the key `distance` steps before it."""

    strip: patterns.Strip
    rows: slice
    distance: int

    def queries(self, strip: Tensor) -> Tensor:
        return self.strip.series(strip)[:, self.rows]

    def keys(self, strip: Tensor) -> Tensor:
        rows, d = self.rows, self.distance
        return self.strip.series(strip)[:, rows.start - d : rows.stop - d]

    def attend(self, strips: Sequence[Tensor], real: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        q, k, v = strips
        scores = (self.queries(q) * self.keys(k)).sum(-1).mul_(scale)
        return self.keys(v), scores.masked_fill_(~self.keys(real), HIDDEN)

    def add_gradients(
        self, into: Sequence[Tensor], saved: Sequence[Tensor], real: Tensor, scale: float
    ) -> None:
        grad, q, k, v, _, z, product = saved
        values, scores = self.attend((q, k, v), real, scale)
        behind, g = scores.sub_(self.queries(z))[..., None], self.queries(grad)
        weights = behind.clamp(min=-80.0).exp_() * (behind > -80.0)  # exp is slow below
        slopes = (g * values).sum(-1).sub_(self.queries(product))
        slopes = slopes.mul_(scale)[..., None].mul_(weights)
        self.queries(into[0]).addcmul_(slopes, self.keys(k))
        self.keys(into[1]).addcmul_(slopes, self.queries(q))
        self.keys(into[2]).addcmul_(weights, g)
