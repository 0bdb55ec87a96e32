"""LSH attention: every step looks only at steps that fall into the same hash bucket.

Kitaev, Kaiser and Levskaya, "Reformer: The Efficient Transformer", ICLR 2020, section 2 and
appendix A. Queries and keys share one projection q; k_j = q_j / max(‖q_j‖, 1e-12).

    in each round r of n_hashes, with R_r (E, buckets / 2) drawn from N(0, 1) for each head
        h_r(i) = argmax [q_i R_r ; −q_i R_r]                   the first maximum wins
        sort the steps by (h_r, time) and cut them into chunks of bucket_size
        step i sees its own chunk and the one before it; rounds follow one another in a circle
        s_ij = scale q_i·k_j,  j ≠ i unless i sees nothing else;  causal: j <= i
        z_i^r = ln Σ_j exp(s_ij)            o_i^r = Σ_j exp(s_ij − z_i^r) v_j
    out_i = Σ_r softmax_r(z_i^r) o_i^r

There are 2·⌈L / bucket_size⌉ buckets. Above 128 they are factorised, n = f1·f2 with two hashes of
f1 / 2 and f2 / 2 columns, because one hash would cost O(L²). Padding and masked steps go to one
bucket after all others; a masked step is neither key nor query, and its output is 0.

Time O(n_hashes·L·(bucket_size + columns)·E), memory O(n_hashes·L·bucket_size) for each head and
series. With one chunk, L <= bucket_size, it is full attention with shared queries and keys in which
a step does not see itself, and it is strictly causal. With more chunks it is not strictly causal,
because the buckets of the future move the borders of the chunks. Hashing is a selection and carries
no gradient.

A pair seen in several rounds counts several times, as in the authors' code (trax);
`deduplicate=True` counts it once, as the appendix of the paper does. The authors set the score of a
step with itself to about −1e5; here that step is left out, and added back where it is alone, which
costs no precision. Later code often also multiplies scores by E**-0.5; `scale` does that.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen, SelfAttention
from forecaster.attention.common.draws import DrawingAttention
from forecaster.attention.common.kernels import (
    accumulator,
    at_least_one,
    check_inputs,
    empty_heads_last,
    outside_graphs,
)
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.attention.common.slices import slices
from forecaster.attention.common.tiles import HIDDEN, softmax_part, softmax_part_backward
from forecaster.shapes import Bool, Float, Int

Buckets = int | tuple[int, int]

_DENSE = 512  # steps up to which all scores of a series are computed and most of them hidden
_SCORES = 1 << 20  # scores computed at a time, so that they stay in a CPU's cache
_MOST_BUCKETS = 128  # of one hash


def lsh_attention(
    qk: Float[Tensor, "B H L E"],
    v: Float[Tensor, "B H L Ev"],
    *,
    bucket_size: int = 64,
    n_hashes: int = 4,
    causal: bool = False,
    rotations: Float[Tensor, "... E n_hashes R"] | None = None,
    n_buckets: Buckets | None = None,
    scale: float = 1.0,
    deduplicate: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
    seed: int = 0,
) -> Float[Tensor, "B H L Ev"]:
    """LSH attention of queries `qk`, whose directions are the keys; see the module for the formula.

    `rotations` is (E, n_hashes, R) or (H, E, n_hashes, R), by default drawn from `seed`.
    `n_buckets` is 2R, or a pair of even numbers whose sum is 2R. `key_mask` True is a real step.
    Raises ValueError when sizes or options do not fit.
    """
    check_inputs(qk, qk, v, causal, key_mask)
    at_least_one(bucket_size=bucket_size, n_hashes=n_hashes)
    B, H, L, E = qk.shape
    if rotations is None:
        n_buckets = bucket_counts(L, bucket_size, n_buckets)
    elif n_buckets is None:
        n_buckets = 2 * rotations.shape[-1]
    columns = sum(_columns(n_buckets))
    if rotations is not None:
        _check_rotations(rotations, H, E, n_hashes, columns)

    one_chunk = bucket_size >= L
    if one_chunk:
        order = torch.arange(L, device=qk.device).expand(B, H, 1, L)
    else:
        if rotations is None:
            rotations = draw_rotations(H, E, n_hashes, columns, seed)
        buckets = lsh_buckets(qk, rotations, n_buckets)
        if key_mask is not None:
            last = torch.iinfo(buckets.dtype).max
            buckets = buckets.masked_fill(~key_mask[:, None, None], last)
        order = buckets.sort(dim=3, stable=True).indices

    kind = accumulator(qk.dtype)
    pattern = _Pattern(order, bucket_size, key_mask, causal, deduplicate, scale)
    # not traceable: private operators and loops over series
    attend = outside_graphs((_Tiles if not one_chunk and L > _DENSE else _Dense).apply)
    out: Tensor = attend(qk.to(kind), v.to(kind), pattern)
    if key_mask is not None:
        out = out.masked_fill(~key_mask[:, None, :, None], 0.0)
    return out.to(v.dtype)


def lsh_buckets(
    qk: Float[Tensor, "B H L E"], rotations: Float[Tensor, "... E n_hashes R"], n_buckets: Buckets
) -> Int[Tensor, "B H n_hashes L"]:
    """The bucket of every step in every round, from 0; a vector of zeros falls into bucket 0.

    `rotations` and `n_buckets` are as in `lsh_attention`. Raises ValueError when they do not fit.
    """
    B, H, L, E = qk.shape
    n_hashes, R = rotations.shape[-2:]
    columns = _columns(n_buckets)
    _check_rotations(rotations, H, E, n_hashes, sum(columns))
    kind = accumulator(qk.dtype)
    with torch.no_grad(), torch.autocast(qk.device.type, enabled=False):
        # One product for each series and head, so that sums do not depend on the rest of the batch.
        matrix = rotations.to(qk.device, kind).expand(H, E, n_hashes, R).flatten(2)
        rotated = (qk.to(kind) @ matrix).view(B, H, L, n_hashes, R)
        buckets = torch.zeros(1, dtype=torch.long, device=qk.device)
        factor = 1
        for x in rotated.split(columns, dim=4):
            highest, first = x.max(dim=4)
            lowest, first_negative = x.min(dim=4)
            half = x.shape[4]
            hashed = torch.where(highest >= -lowest, first, half + first_negative)
            buckets = buckets + factor * hashed
            factor *= 2 * half
        return buckets.transpose(2, 3)


def bucket_counts(L: int, bucket_size: int, n_buckets: Buckets | None = None) -> Buckets:
    """2·⌈L / bucket_size⌉ unless given; above 128, a pair of factors whose product is near it."""
    at_least_one(L=L, bucket_size=bucket_size)
    n = 2 * math.ceil(L / bucket_size) if n_buckets is None else n_buckets
    if isinstance(n, tuple) or n <= _MOST_BUCKETS:
        return n
    first = 2 ** math.ceil(math.log2(n) / 2)
    return first, 2 * max(1, n // (2 * first))


def draw_rotations(H: int, E: int, n_hashes: int, R: int, seed: int) -> Tensor:
    """(H, E, n_hashes, R) from N(0, 1); the global random state is not touched."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(H, E, n_hashes, R, generator=generator, device="cpu")


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, n_hashes: int = 2, **options: Any) -> Call:
    # two rounds, half the module's default, as in all earlier measurements
    return partial(lsh_attention, n_hashes=n_hashes, **options), {"qk": q, "v": v}


class LSHAttention(SelfAttention, DrawingAttention):
    """Multi-head `lsh_attention` between W_qk, W_v and W_o that owns its rotations.

    In evaluation there are `eval_hashes` rounds, `n_hashes` when None. The rotations for the length
    of the place are a buffer; common/draws.py describes how they are drawn.
    """

    about = About(
        "Kitaev et al., Reformer", 2020, "n_hashes·L·bucket_size·D", causal="selection sees all",
        random="hash rotations",
        weights="content", stalls=False,
        no_export="ONNX cannot express its sorting",
    )  # fmt: skip
    core = Core("a choice of pairs", _call)

    rotations: Tensor | None

    def __init__(
        self,
        place: Place,
        *,
        bucket_size: int = 64,
        n_hashes: int = 4,
        eval_hashes: int | None = None,
        n_buckets: int | None = None,
        scale: float = 1.0,
        deduplicate: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(place)
        self.eval_hashes = n_hashes if eval_hashes is None else eval_hashes
        at_least_one(bucket_size=bucket_size, n_hashes=n_hashes, eval_hashes=self.eval_hashes)
        self.bucket_size, self.n_hashes, self.n_buckets = bucket_size, n_hashes, n_buckets
        self.scale, self.deduplicate, self.seed = scale, deduplicate, seed
        self.query_key_projection = nn.Linear(place.width, place.width)
        self.value_projection = nn.Linear(place.width, place.width)
        self.out_projection = nn.Linear(place.width, place.width)
        rotations = None
        if place.query_length > bucket_size:
            sizes, what = self._sizes(place.query_length, self.eval_hashes)
            rotations = draw_rotations(*sizes, self.draw_seed(0, *what))
        self.register_buffer("rotations", rotations)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        L = query.shape[1]
        n_hashes = self.n_hashes if self.training else self.eval_hashes
        out = lsh_attention(
            split_heads(self.query_key_projection(query), self.place.heads),
            split_heads(self.value_projection(context), self.place.heads),
            bucket_size=self.bucket_size,
            n_hashes=n_hashes,
            rotations=self._rotations(L, n_hashes),
            n_buckets=bucket_counts(L, self.bucket_size, self.n_buckets),
            scale=self.scale,
            deduplicate=self.deduplicate,
            **seen,
        )
        projected: Tensor = self.out_projection(merge_heads(out, self.place.mix))
        return projected

    def amounts_to(self) -> Effective:
        L = self.place.query_length
        if self.bucket_size >= L:
            return Effective(
                f"full: one chunk (L = {L} <= bucket_size = {self.bucket_size}), keys from queries",
                full=True,
            )
        buckets = bucket_counts(L, self.bucket_size, self.n_buckets)
        named = f"{buckets[0]} x {buckets[1]}" if isinstance(buckets, tuple) else f"{buckets}"
        return Effective(
            f"lsh: {self.eval_hashes} rounds of {named} buckets, each step sees at most "
            f"{min(2 * self.bucket_size, L)} of {L} in each"
        )

    def _rotations(self, L: int, n_hashes: int) -> Tensor | None:
        if self.bucket_size >= L:
            return None
        if not self.training and self.place.query_length == L:
            return self.rotations
        sizes, what = self._sizes(L, n_hashes)
        return self.draw(draw_rotations, *sizes, what=what)

    def _sizes(self, L: int, n_hashes: int) -> tuple[tuple[int, int, int, int], tuple[object, ...]]:
        """The shape of the rotations, and what distinguishes their draw from others."""
        buckets = bucket_counts(L, self.bucket_size, self.n_buckets)
        shape = (self.place.heads, self.place.head_width, n_hashes, sum(_columns(buckets)))
        return shape, (L, self.bucket_size, n_hashes, buckets)


@dataclass(frozen=True)
class _Pattern:
    """Which step sees which; `order` (B, H, n_hashes, L) holds the steps sorted by buckets."""

    order: Tensor
    bucket_size: int
    key_mask: Tensor | None
    causal: bool
    deduplicate: bool
    scale: float

    @property
    def chunks(self) -> int:
        return math.ceil(self.order.shape[3] / self.bucket_size)

    @property
    def may_leave_alone(self) -> bool:
        """Whether a step may see nothing but itself."""
        return self.causal or self.key_mask is not None or self.order.shape[3] == 1

    @property
    def tile_scores(self) -> int:
        return self.order.shape[2] * self.chunks * 2 * self.bucket_size**2

    def parts(self, scores: int) -> Iterator[tuple[slice, slice]]:
        """Slices of series and heads to compute at a time when one head has `scores` scores."""
        B, H = self.order.shape[:2]
        at_once = _SCORES if self.order.device.type == "cpu" else 64 * _SCORES
        return slices(B, H, scores, at_once)


class _Dense(torch.autograd.Function):
    """All scores of a short series, with the logarithm of how often a key is seen added to each.

    Rounds merged by log-sum-exp are one softmax in which a key counts as often as it is seen.
    """

    @staticmethod
    def forward(ctx: Any, qk: Tensor, v: Tensor, pattern: _Pattern) -> Tensor:
        B, H, L, _ = qk.shape
        bias = _DenseBias(pattern, qk.dtype)
        out, z, inverse = empty_heads_last(v), qk.new_empty(B, H, L), qk.new_empty(B, H, L, 1)
        for part in pattern.parts(L * L):
            q = qk[part]
            inverse[part] = _inverse_lengths(q)
            o, z[part] = softmax_part(
                q, q * inverse[part], v[part],
                scale=pattern.scale, bias=bias[part], causal=pattern.causal,
            )  # fmt: skip
            if pattern.may_leave_alone:
                o = torch.lerp(o, v[part], _alone(z[part])[..., None])
            out[part] = o
        ctx.save_for_backward(qk, v, out, z, inverse)
        ctx.pattern, ctx.bias = pattern, bias
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        qk, v, out, z, inverse = ctx.saved_tensors
        pattern: _Pattern = ctx.pattern
        grad_qk, grad_v = empty_heads_last(qk), empty_heads_last(v)
        for part in pattern.parts(qk.shape[2] ** 2):
            q, g, own = qk[part], grad[part], None
            if pattern.may_leave_alone:
                own = g * _alone(z[part])[..., None]
                g = g - own
            k = q * inverse[part]
            dq, dk, dv = softmax_part_backward(
                g, q, k, v[part], out[part], z[part],
                scale=pattern.scale, bias=ctx.bias[part], causal=pattern.causal,
            )  # fmt: skip
            _through_keys(dq, dk, k, inverse[part], out=grad_qk[part])
            grad_v[part] = dv if own is None else dv.add_(own)
        return grad_qk, grad_v, None


class _DenseBias:
    """[part] is (b, h, L, L): ln of how often each query sees each key, HIDDEN for never or itself.

    When there are few combinations of chunks, the counts are computed between combinations and then
    copied.
    """

    def __init__(self, pattern: _Pattern, dtype: torch.dtype) -> None:
        order = pattern.order
        n, L = order.shape[2:]
        rounds = torch.arange(n, device=order.device)[:, None]
        chunk = torch.arange(L, device=order.device) // pattern.bucket_size
        chunk = chunk + pattern.chunks * rounds  # over all rounds
        self.chunk = torch.empty_like(order).scatter_(3, order, chunk.expand_as(order))
        self.chunks, self.deduplicate = n * pattern.chunks, pattern.deduplicate
        self.key_mask, self.dtype = pattern.key_mask, dtype

        self.kinds = pattern.chunks**n
        if self.kinds > L:
            return
        each = torch.arange(pattern.chunks, device=order.device)
        kinds = torch.cartesian_prod(*each.expand(n, -1)).view(-1, n).mT + pattern.chunks * rounds
        logs = _log(self._count(kinds), self.deduplicate)
        self.by_key = F.pad(logs, (0, 1), value=HIDDEN).mT.contiguous()  # the last: hidden keys
        weights = pattern.chunks ** (n - 1 - rounds)
        self.kind = ((self.chunk - pattern.chunks * rounds) * weights).sum(2)

    def __getitem__(self, part: tuple[slice, slice]) -> Tensor:
        b, h, _, L = self.chunk[part].shape
        hidden = None if self.key_mask is None else ~self.key_mask[part[0], None]
        if self.kinds <= L:
            query = key = self.kind[part]
            if hidden is not None:
                key = key.masked_fill(hidden, self.kinds)
            logs = self.by_key.index_select(0, key.flatten()).view(b * h, L, self.kinds)
            first = self.kinds * torch.arange(b * h, device=query.device).view(b, h, 1)
            rows = logs.mT.reshape(-1, L).index_select(0, (query + first).flatten())
            bias = rows.view(b, h, L, L)
        else:
            count = self._count(self.chunk[part])
            if hidden is not None:
                count.masked_fill_(hidden[:, :, None], 0.0)
            bias = _log(count, self.deduplicate)
        bias.diagonal(dim1=2, dim2=3).fill_(HIDDEN)
        return bias

    def _count(self, chunk: Tensor) -> Tensor:
        """(..., K, K): how often each of the chunks (..., n, K) sees each other one."""
        *batch, _, K = chunk.shape
        holds = torch.zeros(*batch, self.chunks, K, dtype=self.dtype, device=chunk.device)
        holds.scatter_(-2, chunk, 1.0)
        with torch.autocast(chunk.device.type, enabled=False):
            return holds.mT @ (holds + holds.roll(1, -2))


class _Tiles(torch.autograd.Function):
    """Each chunk is one tile with itself and the chunk before; then the rounds are merged."""

    @staticmethod
    def forward(ctx: Any, qk: Tensor, v: Tensor, pattern: _Pattern) -> Tensor:
        out, ctx.rounds = empty_heads_last(v), []
        for part in pattern.parts(pattern.tile_scores):
            tiles = _Tiling(pattern, part, qk.dtype)
            q, x = tiles.sort(qk[part]), tiles.sort(v[part])
            o, z = softmax_part(
                tiles.own(q), tiles.seen(q * _inverse_lengths(q)), tiles.seen(x),
                scale=pattern.scale, bias=tiles.bias,
            )  # fmt: skip
            in_rounds = tiles.rows(z[..., None]).view(-1)[tiles.rank]
            alone = _alone(in_rounds.amax(1, keepdim=True))
            weights = in_rounds.softmax(1) * (1 - alone)
            alone = alone.view(*qk[part].shape[:3], 1)
            torch.addcmul(tiles.merge(o, weights), v[part], alone, out=out[part])
            ctx.rounds.append((z, weights, alone))
        ctx.save_for_backward(qk, v, out)
        ctx.pattern = pattern
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        qk, v, out = ctx.saved_tensors
        pattern: _Pattern = ctx.pattern
        grad_qk, grad_v = empty_heads_last(qk), empty_heads_last(v)
        parts = zip(pattern.parts(pattern.tile_scores), ctx.rounds, strict=True)
        for part, (z, weights, alone) in parts:
            tiles = _Tiling(pattern, part, qk.dtype)
            q, x, g, o = (tiles.sort(y[part]) for y in (qk, v, grad, out))
            inverse = _inverse_lengths(q)
            k = q * inverse
            # Each round uses its own z; its gradient is scaled by its weight in the merged output.
            dq, dk, dv = softmax_part_backward(
                tiles.own(g) * tiles.spread(weights),
                tiles.own(q), tiles.seen(k), tiles.seen(x), tiles.own(o), z,
                scale=pattern.scale, bias=tiles.bias,
            )  # fmt: skip
            dqk = _through_keys(dq, tiles.fold(dk), tiles.own(k), tiles.own(inverse))
            grad_qk[part] = tiles.merge(dqk)
            torch.addcmul(tiles.merge(tiles.fold(dv)), grad[part], alone, out=grad_v[part])
        return grad_qk, grad_v, None


class _Tiling:
    """The steps of P series and heads in the order of their buckets, cut into chunks.

    Sorted tensors are (P, chunks + 1, bucket_size, ·), over the chunks of all rounds; the last
    chunk is repeated before the first. Tiles are (chunks, P, ·, ·).
    """

    def __init__(self, pattern: _Pattern, part: tuple[slice, slice], dtype: torch.dtype) -> None:
        order, m, in_round = pattern.order[part], pattern.bucket_size, pattern.chunks
        self.shape = b, h, n, L = order.shape
        self.m, self.pairs, self.chunks = m, b * h, n * in_round
        pair = torch.arange(self.pairs, device=order.device)[:, None]

        # The row of every step in the sorted order of each round: (P·L, n).
        place = torch.arange(n * in_round * m, device=order.device).view(n, -1)[:, :L]
        rank = torch.empty_like(order).scatter_(3, order, place.expand_as(order))
        rank = rank.flatten(0, 1).transpose(1, 2)
        self.rank = (rank + self.chunks * m * pair[:, :, None]).flatten(0, 1)

        # The step of every sorted row, and its index in a (P·L, ·) tensor; L is padding.
        step = F.pad(order, (0, in_round * m - L), value=L).flatten(2).flatten(0, 1)
        step = torch.cat([step[:, -m:], step], dim=1)
        self.index = (step.clamp(max=L - 1) + L * pair).flatten()
        if pattern.key_mask is not None:
            real = pattern.key_mask[part[0], None].expand(b, h, L).reshape(-1)
            step = step.masked_fill(~real[self.index].view_as(step), L)

        time = step.to(dtype).view(self.pairs, -1, m, 1)
        query, key = self.own(time), self.seen(time).mT
        self.bias = time.new_empty(self.chunks, self.pairs, m, 2 * m)
        (torch.ge if pattern.causal else torch.eq)(key, query, out=self.bias)
        self.bias.add_((key == L).to(dtype)).mul_(HIDDEN)
        if pattern.deduplicate:
            self.bias.sub_(self._times_seen((rank // m).to(dtype)).log_())

    def sort(self, x: Tensor) -> Tensor:
        """(b, h, L, ·) in sorted order."""
        rows = x.reshape(-1, x.shape[3]).index_select(0, self.index)
        return rows.view(self.pairs, self.chunks + 1, self.m, x.shape[3])

    def own(self, x: Tensor) -> Tensor:
        """Each chunk of a sorted tensor, as the queries of its tile."""
        return x[:, 1:].transpose(0, 1)

    def seen(self, x: Tensor) -> Tensor:
        """Each chunk of a sorted tensor with the chunk before: the keys of its tile, a view."""
        size = self.m * x.shape[3]
        shape = (self.chunks, self.pairs, 2 * self.m, x.shape[3])
        return x.as_strided(shape, (size, (self.chunks + 1) * size, x.shape[3], 1))

    def fold(self, x: Tensor) -> Tensor:
        """Sum over the two tiles that see each chunk: the transpose of `seen`."""
        return x[:, :, self.m :] + x[:, :, : self.m].roll(-1, 0)

    def rows(self, x: Tensor) -> Tensor:
        """Tiles of queries as rows in sorted order."""
        return x.transpose(0, 1).reshape(-1, x.shape[3])

    def merge(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The (weighted) sum over the rounds of tiles of queries, back in time order."""
        steps = F.embedding_bag(self.rank, self.rows(x), mode="sum", per_sample_weights=weights)
        b, h, _, L = self.shape
        return steps.view(b, h, L, -1)

    def spread(self, weights: Tensor) -> Tensor:
        """(P·L, n) weights as tiles; padding has none."""
        sorted_weights = weights.new_zeros(self.pairs * self.chunks * self.m)
        sorted_weights.scatter_(0, self.rank.flatten(), weights.flatten())
        return sorted_weights.view(self.pairs, self.chunks, self.m, 1).transpose(0, 1)

    def _times_seen(self, chunk: Tensor) -> Tensor:
        """How often the query of each score sees its key over all tiles."""
        b, h, n, L = self.shape
        chunk = self.sort(chunk.reshape(b, h, L, n))
        query, key = self.own(chunk), self.seen(chunk)
        before = (query - 1) % self.chunks
        count = torch.zeros_like(self.bias)
        for r in range(n):
            count += key[:, :, None, :, r] == query[..., r, None]
            for other in {r, (r - 1) % n}:
                count += key[:, :, None, :, other] == before[..., r, None]
        return count.clamp_(min=1.0)


def _inverse_lengths(q: Tensor) -> Tensor:
    """(..., 1): the factors that scale q to unit length."""
    lengths: Tensor = torch.linalg.vector_norm(q, dim=-1, keepdim=True)
    return lengths.clamp_(min=1e-12).reciprocal_()


def _through_keys(
    dq: Tensor, dk: Tensor, k: Tensor, inverse: Tensor, out: Tensor | None = None
) -> Tensor:
    """The gradient of q, which is the query and, scaled to unit length, the key; overwrites dk."""
    along = (dk * k).sum(dim=-1, keepdim=True)
    grad: Tensor = torch.addcmul(dq, dk.addcmul_(k, along, value=-1.0), inverse, out=out)
    return grad


def _alone(z: Tensor) -> Tensor:
    """1.0 where nothing but hidden keys was seen, 0.0 elsewhere."""
    return (z < HIDDEN / 2).to(z.dtype)


def _log(count: Tensor, deduplicate: bool) -> Tensor:
    """ln of the count, or of its sign; HIDDEN for 0. Overwrites the count."""
    hidden = torch.eq(count, 0, out=torch.empty_like(count))  # converting a bool would be slow
    if deduplicate:
        return hidden.mul_(HIDDEN)
    return count.clamp_(min=1.0).log_().add_(hidden, alpha=HIDDEN)


def _columns(n_buckets: Buckets) -> list[int]:
    """The columns of R that each hash takes. Raises ValueError when buckets cannot be paired."""
    factors = n_buckets if isinstance(n_buckets, tuple) else (n_buckets,)
    if any(factor < 2 or factor % 2 for factor in factors):
        raise ValueError(
            f"n_buckets must be an even number of at least 2, or a pair of them, got {n_buckets}"
        )
    return [factor // 2 for factor in factors]


def _check_rotations(rotations: Tensor, H: int, E: int, n_hashes: int, columns: int) -> None:
    wanted = (E, n_hashes, columns)
    if tuple(rotations.shape) not in (wanted, (H, *wanted)) or not rotations.is_floating_point():
        raise ValueError(
            f"rotations must be numbers of shape (E, n_hashes, n_buckets / 2) = {wanted}, or "
            f"{(H, *wanted)} for each head, got {rotations.dtype} of shape "
            f"{tuple(rotations.shape)}"
        )
