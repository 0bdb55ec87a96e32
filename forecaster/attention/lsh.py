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
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen, SelfAttention
from forecaster.attention.common import kernels
from forecaster.attention.common.definitions import positions, real_keys
from forecaster.attention.common.draws import DrawingAttention
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.attention.common.tiles import HIDDEN, softmax_part, softmax_part_backward
from forecaster.base.machine import sent
from forecaster.base.shapes import Bool, Float, Int

Buckets = int | tuple[int, int]

_DENSE = 512  # steps up to which all scores of a series are computed and most of them hidden
_SCORES = 1 << 20  # scores computed at a time, so that they stay in a CPU's cache
_MOST_BUCKETS = 128  # of one hash; with more, its columns would cost O(L²) (see above)


def definition(
    qk: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    bucket_size: int = 64,
    n_hashes: int = 4,
    rotations: Tensor | None = None,
    n_buckets: Buckets | None = None,
    scale: float = 1.0,
    deduplicate: bool = False,
) -> Tensor:
    """Sections 2 and A, with all L x L scores in every round."""
    real = real_keys(seen).expand(len(qk), -1, -1, -1)
    order = _order(qk, bucket_size, n_hashes, rotations, n_buckets, real[:, 0, 0], 0)
    rounds, L = order.shape[2:]
    chunks = rounds * math.ceil(L / bucket_size)
    chunk = _chunk_of(order, bucket_size)
    query, before = (x[..., None, None] for x in (chunk, (chunk - 1) % chunks))
    held = chunk[:, :, None, None]  # (B, H, 1, 1, n, L): by the round and step of the key
    times = ((held == query) | (held == before)).sum(4)  # (B, H, n, L, L)
    if deduplicate:
        times = times.sum(2, keepdim=True).clamp(max=1)
    i, j = positions(L, L, qk.device)
    k = qk / qk.norm(dim=3, keepdim=True).clamp(min=1e-12)
    scores = (scale * qk @ k.mT).masked_fill(i == j, -1e5)[:, :, None]
    unseen = ~seen[:, :, None] | (times == 0)
    scores = (scores + times.log()).masked_fill(unseen, torch.finfo(scores.dtype).min)
    z = scores.logsumexp(4, keepdim=True)
    out: Tensor = (z.softmax(2) * ((scores - z).exp() @ v[:, :, None])).sum(2)
    return out * real.mT


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
    kernels.check_inputs(qk, qk, v, causal, key_mask)
    kernels.at_least_one(bucket_size=bucket_size, n_hashes=n_hashes)
    L = qk.shape[2]
    order = _order(qk, bucket_size, n_hashes, rotations, n_buckets, key_mask, seed)

    kind, rounds, chunks = kernels.accumulator(qk.dtype), order.shape[2], math.ceil(L / bucket_size)
    if max(bucket_size, _DENSE) < L:
        cut: Any = partial(_Tiles, order)
        scores = rounds * chunks * 2 * bucket_size**2
    else:
        chunk = _chunk_of(order, bucket_size)
        cut, scores = partial(_Dense, chunk, _by_key(chunk, chunks, deduplicate, kind)), L * L
    cut = partial(cut, bucket_size, key_mask, causal, deduplicate)
    may_be_alone = causal or key_mask is not None or L == 1
    attend = kernels.outside_graphs(_Rounds.apply)  # private operators, loops over series
    out: Tensor = attend(qk.to(kind), v.to(kind), cut, scores, scale, may_be_alone)
    if key_mask is not None:
        out = out.masked_fill(~key_mask[:, None, :, None], 0.0)
    return out.to(v.dtype)


def _order(
    qk: Tensor,
    bucket_size: int,
    n_hashes: int,
    rotations: Tensor | None,
    n_buckets: Buckets | None,
    key_mask: Tensor | None,
    seed: int,
) -> Tensor:
    """(B, H, rounds, L): the steps sorted by bucket and time; one round when there is one chunk."""
    B, H, L, E = qk.shape
    if rotations is None:
        n_buckets = bucket_counts(L, bucket_size, n_buckets)
    elif n_buckets is None:
        n_buckets = 2 * rotations.shape[-1]
    columns = sum(_columns(n_buckets))
    if rotations is not None:
        _check_rotations(rotations, H, E, n_hashes, columns)
    if bucket_size >= L:
        return torch.arange(L, device=qk.device).expand(B, H, 1, L)
    if rotations is None:
        rotations = draw_rotations(H, E, n_hashes, columns, seed)
    buckets = lsh_buckets(qk, rotations, n_buckets)
    if key_mask is not None:
        last = torch.iinfo(buckets.dtype).max
        buckets = buckets.masked_fill(~key_mask[:, None, None], last)
    return buckets.sort(dim=3, stable=True).indices


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
    kind = kernels.accumulator(qk.dtype)
    with torch.no_grad(), torch.autocast(qk.device.type, enabled=False):
        # One product for each series and head, so that sums do not depend on the rest of the batch.
        matrix = sent(rotations, qk.device).to(kind).expand(H, E, n_hashes, R).flatten(2)
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
    kernels.at_least_one(L=L, bucket_size=bucket_size)
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
        weights="content", no_export="ONNX cannot express its sorting",
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
        kernels.at_least_one(
            bucket_size=bucket_size, n_hashes=n_hashes, eval_hashes=self.eval_hashes
        )
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
            rotations=self._rotations(L, n_hashes, query.device),
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

    def _rotations(self, L: int, n_hashes: int, device: torch.device) -> Tensor | None:
        if self.bucket_size >= L:
            return None
        if not self.training and self.place.query_length == L:
            return self.rotations
        sizes, what = self._sizes(L, n_hashes)
        return self.draw(draw_rotations, *sizes, what=what, device=device)

    def _sizes(self, L: int, n_hashes: int) -> tuple[tuple[int, int, int, int], tuple[object, ...]]:
        """The shape of the rotations, and what distinguishes their draw from others."""
        buckets = bucket_counts(L, self.bucket_size, self.n_buckets)
        shape = (self.place.heads, self.place.head_width, n_hashes, sum(_columns(buckets)))
        return shape, (L, self.bucket_size, n_hashes, buckets)


class _Rounds(torch.autograd.Function):
    """Attention within the tiles that `cut` makes of some series and heads, with `scores` scores
    for each head; then the rounds are merged."""

    @staticmethod
    def forward(
        ctx: Any,
        qk: Tensor,
        v: Tensor,
        cut: Callable[..., "_Tiles"],
        scores: int,
        scale: float,
        may_be_alone: bool,
    ) -> Tensor:
        ctx.cut, ctx.scores, ctx.scale = cut, scores, scale
        out, ctx.rounds = kernels.empty_heads_last(v), []
        for part in _parts(qk, scores):
            tiles = cut(part, qk.dtype)
            q, x = tiles.sort(qk[part]), tiles.sort(v[part])
            inverse = torch.linalg.vector_norm(q, dim=-1, keepdim=True)
            inverse = inverse.clamp_(min=1e-12).reciprocal_()
            o, z = softmax_part(
                tiles.own(q), tiles.seen(q * inverse), tiles.seen(x),
                scale=scale, bias=tiles.bias, causal=tiles.triangular,
            )  # fmt: skip
            weights = alone = None
            if tiles.several or may_be_alone:
                in_rounds = tiles.by_step(z)
                alone = (in_rounds.amax(1, keepdim=True) < HIDDEN / 2).to(z.dtype)
                weights = 1 - alone
                if tiles.several:
                    weights = weights * in_rounds.softmax(1)
                alone = alone.view(*qk[part].shape[:3], 1)
            _put(out[part], tiles.merge(o, weights), v[part], alone)
            ctx.rounds.append((inverse, z, weights, alone))
        ctx.save_for_backward(qk, v, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qk, v, out = ctx.saved_tensors
        grad_qk, grad_v = kernels.empty_heads_last(qk), kernels.empty_heads_last(v)
        for part, rounds in zip(_parts(qk, ctx.scores), ctx.rounds, strict=True):
            inverse, z, weights, alone = rounds
            tiles = ctx.cut(part, qk.dtype)
            q, x, g, o = (tiles.sort(y[part]) for y in (qk, v, grad, out))
            k = q * inverse
            # Each round uses its own z; its gradient is scaled by its weight in the merged output.
            dq, dk, dv = softmax_part_backward(
                tiles.own(g) if weights is None else tiles.own(g) * tiles.spread(weights),
                tiles.own(q), tiles.seen(k), tiles.seen(x), tiles.own(o), z,
                scale=ctx.scale, bias=tiles.bias, causal=tiles.triangular,
            )  # fmt: skip
            # q is the query and, scaled to unit length, the key.
            dk, k = tiles.fold(dk), tiles.own(k)
            dk = dk.addcmul_(k, (dk * k).sum(dim=-1, keepdim=True), value=-1.0)
            if tiles.several:
                grad_qk[part] = tiles.merge(torch.addcmul(dq, dk, tiles.own(inverse)))
            else:
                torch.addcmul(dq, dk, inverse, out=grad_qk[part])
            _put(grad_v[part], tiles.merge(tiles.fold(dv)), grad[part], alone)
        return grad_qk, grad_v, None, None, None, None


def _put(out: Tensor, x: Tensor, y: Tensor, alone: Tensor | None) -> None:
    """Write x into out, plus y where a step is alone."""
    if alone is None:
        out.copy_(x)
    else:
        torch.addcmul(x, y, alone, out=out)


def _parts(x: Tensor, scores: int) -> Iterator[tuple[slice, slice]]:
    """Slices of series and heads to compute at a time when one head has `scores` scores."""
    return kernels.slices(x.shape[0], x.shape[1], scores, kernels.at_once(x, _SCORES, numbers=4))


def _chunk_of(order: Tensor, bucket_size: int) -> Tensor:
    """The chunk of each step in each round, counted over all rounds, in the shape of `order`."""
    rounds, L = order.shape[2:]
    chunk = torch.arange(L, device=order.device) // bucket_size
    first = math.ceil(L / bucket_size) * torch.arange(rounds, device=order.device)
    chunk = (chunk + first[:, None]).expand_as(order)
    return torch.empty_like(order).scatter_(3, order, chunk)


class _Tiles:
    """The steps of P series and heads in the order of their buckets, cut into chunks.

    Sorted tensors are (P, chunks + 1, bucket_size, ·), over the chunks of all rounds; the last
    chunk is repeated before the first. Tiles are (chunks, P, ·, ·).
    """

    triangular, several = False, True

    def __init__(
        self,
        order: Tensor,
        bucket_size: int,
        key_mask: Tensor | None,
        causal: bool,
        deduplicate: bool,
        part: tuple[slice, slice],
        dtype: torch.dtype,
    ) -> None:
        order, m, in_round = order[part], bucket_size, math.ceil(order.shape[3] / bucket_size)
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
        if key_mask is not None:
            real = key_mask[part[0], None].expand(b, h, L).reshape(-1)
            step = step.masked_fill(~real[self.index].view_as(step), L)

        time = step.to(dtype).view(self.pairs, -1, m, 1)
        query, key = self.own(time), self.seen(time).mT
        self.bias = time.new_empty(self.chunks, self.pairs, m, 2 * m)
        (torch.ge if causal else torch.eq)(key, query, out=self.bias)
        self.bias.add_((key == L).to(dtype)).mul_(HIDDEN)
        if deduplicate:
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

    def by_step(self, z: Tensor) -> Tensor:
        """(P·L, n) from a number for each query of the tiles."""
        return z.transpose(0, 1).flatten()[self.rank]

    def merge(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The (weighted) sum over the rounds of tiles of queries, back in time order."""
        rows = x.transpose(0, 1).reshape(-1, x.shape[3])
        steps = F.embedding_bag(self.rank, rows, mode="sum", per_sample_weights=weights)
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


class _Dense(_Tiles):
    """All pairs of steps of a short series as one tile, with ln of how often a key is seen added.

    Rounds merged by log-sum-exp are one softmax in which a key counts as often as it is seen.
    """

    several = False

    def __init__(
        self,
        chunk: Tensor,
        by_key: Tensor | None,
        bucket_size: int,
        key_mask: Tensor | None,
        causal: bool,
        deduplicate: bool,
        part: tuple[slice, slice],
        dtype: torch.dtype,
    ) -> None:
        chunk = chunk[part]
        b, h, n, L = self.shape = chunk.shape
        self.triangular, in_round = causal, math.ceil(L / bucket_size)
        hidden = None if key_mask is None else ~key_mask[part[0], None]
        if by_key is None:
            self.bias = _ln_times(chunk, in_round, deduplicate, dtype)
            if hidden is not None:
                self.bias.masked_fill_(hidden[:, :, None], HIDDEN)
        else:
            kinds = by_key.shape[1]
            rounds = torch.arange(n, device=chunk.device)[:, None]
            query = key = (chunk % in_round * in_round**rounds).sum(2)
            if hidden is not None:
                key = key.masked_fill(hidden, kinds)
            seen = by_key.index_select(0, key.flatten()).view(b * h, L, kinds).mT.reshape(-1, L)
            first = kinds * torch.arange(b * h, device=chunk.device).view(b, h, 1)
            self.bias = seen.index_select(0, (query + first).flatten()).view(b, h, L, L)
        self.bias.diagonal(dim1=2, dim2=3).fill_(HIDDEN)

    def sort(self, x: Tensor) -> Tensor:
        return x

    own = seen = fold = sort

    def by_step(self, z: Tensor) -> Tensor:
        return z.reshape(-1, 1)

    def merge(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return x if weights is None else x * self.spread(weights)

    def spread(self, weights: Tensor) -> Tensor:
        b, h, _, L = self.shape
        return weights.view(b, h, L, 1)


def _by_key(chunk: Tensor, in_round: int, deduplicate: bool, dtype: torch.dtype) -> Tensor | None:
    """(kinds + 1, kinds): `_ln_times` for each combination of a key's chunks (the last: a hidden
    key) and of a query's; None if there are more combinations than steps."""
    n, L = chunk.shape[2:]
    kinds = in_round**n
    if kinds > L:
        return None
    rounds = torch.arange(n, device=chunk.device)[:, None]
    chunks = torch.arange(kinds, device=chunk.device) // in_round**rounds % in_round
    logs = _ln_times(chunks + in_round * rounds, in_round, deduplicate, dtype)
    return F.pad(logs, (0, 1), value=HIDDEN).mT.contiguous()


def _ln_times(chunk: Tensor, in_round: int, deduplicate: bool, dtype: torch.dtype) -> Tensor:
    """(..., K, K): ln of how often each of the chunks (..., n, K) sees each other one."""
    *batch, n, K = chunk.shape
    holds = torch.zeros(*batch, n * in_round, K, dtype=dtype, device=chunk.device)
    holds.scatter_(-2, chunk, 1.0)
    with torch.autocast(chunk.device.type, enabled=False):
        times = holds.mT @ (holds + holds.roll(1, -2))
    hidden = torch.eq(times, 0, out=torch.empty_like(times)).mul_(HIDDEN)  # bool would be slow
    return hidden if deduplicate else times.clamp_(min=1.0).log_().add_(hidden)


def _columns(n_buckets: Buckets) -> list[int]:
    """The columns of R that each hash takes. Raises ValueError when buckets cannot be paired."""
    factors = n_buckets if isinstance(n_buckets, tuple) else (n_buckets,)
    if any(factor < 2 or factor % 2 for factor in factors):
        raise ValueError(
            f"n_buckets must be an even number of at least 2, or a pair of them, got {n_buckets}"
        )
    return [factor // 2 for factor in factors]


def _check_rotations(rotations: Tensor, H: int, E: int, n_hashes: int, columns: int) -> None:
    shape = (E, n_hashes, columns)
    if tuple(rotations.shape) not in (shape, (H, *shape)) or not rotations.is_floating_point():
        raise ValueError(
            f"rotations must be numbers of shape (E, n_hashes, n_buckets / 2) = {shape}, or "
            f"{(H, *shape)} for each head, got {rotations.dtype} of shape "
            f"{tuple(rotations.shape)}"
        )
