"""Top-k attention: every query attends to the k keys that score highest.

Zhao et al., "Explicit Sparse Transformer: Concentrated Attention Through Explicit Selection", 2019,
section 3.

    s_ij = q_i·k_j / √E                  t_i = the k-th largest of the visible s_ij
    out_i = Σ_j softmax_j(s_ij) v_j      over the visible keys with s_ij >= t_i

Keys that tie with the k-th are all kept, so the result does not depend on an order; a query that
sees fewer than k keys keeps them all. The default k = 8 is the paper's, and each head selects
separately. It is full attention when k >= S. Strictly causal: invisible keys are removed before the
selection. The gradient goes only through the kept keys, because t_i is a constant.

Time O(L·S·E), memory O(L·(E + k)): scores are computed in blocks of rows, and only the selected
scores are kept. Rows with ties, which are rare unless keys repeat exactly, are computed again,
densely.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Core, Effective, Place, Seen
from forecaster.attention.common import kernels
from forecaster.attention.common.definitions import attend, softmax
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.rotary import QueryKey
from forecaster.attention.full import full_attention
from forecaster.base.shapes import Bool, Float

_SCORES = 1 << 19  # scores computed at a time, so that they stay in a CPU's cache
_ROWS = 128  # queries of one head at a time on a CPU, so that a causal block wastes few scores
_SHORT = 256  # below this many keys, marking the largest up to _ROUNDS times is faster than `topk`
_ROUNDS = 12  # the most marks, each of which passes over the whole row
_GROUP = 8  # keys per group in the two-level selection; only speed depends on it

Block = tuple[slice, slice, slice]  # of series, heads and queries


def definition(
    q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor, topk: int = 8, scale: float | None = None
) -> Tensor:
    """Full attention over the visible keys with s_ij >= t_i, the k-th largest s_ij of the row."""
    scores = (q @ k.mT).detach().masked_fill(~seen, -math.inf)
    threshold = scores.topk(min(topk, k.shape[2])).values[..., -1:]
    return attend(q, k, v, seen & (scores >= threshold), scale)


def topk_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    topk: int = 8,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Softmax attention over the `topk` best keys of each query; `scale` defaults to E**-0.5.

    `key_mask` True is a real key; a query that sees none gives 0. Raises ValueError when the shapes
    do not fit, for topk < 1, or for causal with L != S.
    """
    kernels.check_inputs(q, k, v, causal, key_mask)
    kernels.at_least_one(topk=topk)
    if topk >= k.shape[2]:
        return full_attention(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
    kind, dtype = kernels.accumulator(q.dtype), v.dtype
    hidden = None
    if key_mask is not None:
        hidden = torch.zeros(key_mask.shape, dtype=kind, device=q.device)
        hidden = hidden.masked_fill_(~key_mask, -math.inf)[:, None, None]
    scores = _Scores(topk, causal, hidden, q.shape[3] ** -0.5 if scale is None else scale)
    attend = kernels.outside_graphs(_TopK.apply)  # its control flow depends on values
    with torch.autocast(q.device.type, enabled=False):
        out: Tensor = attend(q.to(kind), k.to(kind), v.to(kind), scores)
    return out.to(dtype)


class TopKAttention(MultiHeadAttention):
    """Multi-head `topk_attention`; `rotary` and `qk_norm` are those of full."""

    about = About(
        "Zhao et al., Explicit Sparse Transformer", 2019, "L·S·D",
        weights="content", no_export="it chooses its next operation by values",
    )  # fmt: skip
    core = Core.plain("every pair of steps", topk_attention)

    def __init__(
        self, place: Place, *, topk: int = 8, rotary: bool = False, qk_norm: bool = False
    ) -> None:
        super().__init__(place)
        self.query_key = QueryKey(place, place.head_width, rotary=rotary, qk_norm=qk_norm)
        kernels.at_least_one(topk=topk)
        self.topk = topk

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        q, k = self.query_key(q, k)
        return topk_attention(q, k, v, topk=self.topk, **seen)

    def amounts_to(self) -> Effective:
        S = self.place.key_length
        if self.topk >= S:
            return Effective(f"full: topk >= S (topk = {self.topk}, S = {S})", full=True)
        return Effective(f"topk: each query attends to {self.topk} of {S} keys")


@dataclass(frozen=True)
class _Scores:
    """Computes the scores of a block of queries; its fields are the same for every block."""

    topk: int
    causal: bool
    hidden: Tensor | None  # (B, 1, 1, S), -inf for a masked key, else 0
    scale: float

    def __call__(self, q: Tensor, k: Tensor, block: Block) -> Tensor:
        """Scores of the queries of a block with the keys of its heads, -inf where invisible.

        When causal, keys after the last query are left out if at least topk + 1 keys remain.
        """
        series, _, queries = block
        first, L, S = queries.start, q.shape[2], k.shape[2]
        if self.causal:
            S = max(first + L, self.topk + 1)
        # Scale after the sum, because scaling the queries first could break ties.
        scores = (q @ k[:, :, :S].mT).mul_(self.scale)
        if self.hidden is not None:
            scores += self.hidden[series, ..., :S]
        if self.causal:
            scores[..., first:] += scores.new_full((L, S - first), -math.inf).triu_(1)
        return scores


class _TopK(torch.autograd.Function):
    """Top-k attention in float32 or float64. A row without ties is kept as topk pairs.

    A block with a tie is computed densely, and again in the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scores_of: _Scores) -> Tensor:
        (B, H, L, _), S, topk = q.shape, k.shape[2], scores_of.topk
        best = q.new_empty(B, L, H, topk).transpose(1, 2)
        index = torch.empty_like(best, dtype=torch.int32)
        ties = []
        for part in _blocks(q, S, scores_of.causal):
            scores = scores_of(q[part], k[part[:2]], part)
            best[part], index[part], tied = _select(scores, topk)
            if tied:
                ties.append(part)
        # The best key weighs 1 before the division; if a query sees nothing, every key weighs 0.
        best -= best.amax(3, keepdim=True).clamp(min=torch.finfo(best.dtype).min)
        weights = best.exp_()
        weights /= weights.sum(3, keepdim=True).clamp(min=1.0)
        for part in ties:
            weights[part] = 0.0
        row = torch.arange(B, device=q.device)[:, None] * (S * H) + torch.arange(H, device=q.device)
        index.mul_(H).add_(row[..., None, None])
        weights, index = _table(weights), _table(index)
        out = _heads(_weighted_sum(_table(v), index, weights), B, H)
        for part in ties:
            out[part] = _dense(_cut((q, k, v), part), part, scores_of)
        ctx.save_for_backward(q, k, v, weights, index)
        ctx.scores_of, ctx.ties = scores_of, ties
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *qkv, weights, index = ctx.saved_tensors
        q, k, v, g = (_table(x) for x in (*qkv, grad))
        B, H = grad.shape[:2]
        grad_weights = torch.empty_like(weights)
        rows = max(1, kernels.at_once(v, _SCORES) // (index.shape[1] * v.shape[1]))
        for part in kernels.cuts(len(index), rows):
            values = v.index_select(0, index[part].flatten()).view(-1, index.shape[1], v.shape[1])
            grad_weights[part] = (values * g[part, None]).sum(2)
        grad_weights -= (grad_weights * weights).sum(1, keepdim=True)
        grad_scores = grad_weights.mul_(weights).mul_(ctx.scores_of.scale)
        # The transpose of the selection: each key gathers from the queries that kept it.
        keys, order = index.flatten().sort(stable=True)
        queries = order // index.shape[1]
        start = torch.searchsorted(keys, torch.arange(len(k), dtype=keys.dtype, device=k.device))
        grad_scores_by_key, weights_by_key = (
            x.flatten().index_select(0, order) for x in (grad_scores, weights)
        )
        gradients = [
            _heads(_weighted_sum(k, index, grad_scores), B, H),
            _heads(_weighted_sum(q, queries, grad_scores_by_key, start), B, H),
            _heads(_weighted_sum(g, queries, weights_by_key, start), B, H),
        ]
        for part in ctx.ties:
            with torch.enable_grad(), torch.autocast(grad.device.type, enabled=False):
                block = [x.detach().requires_grad_() for x in _cut(qkv, part)]
                out = _dense(block, part, ctx.scores_of)
                dense = torch.autograd.grad(out, block, grad[part])
            for total, x in zip(_cut(gradients, part), dense, strict=True):
                total += x
        return *gradients, None


def _blocks(q: Tensor, S: int, causal: bool) -> Iterator[Block]:
    """Blocks small enough to compute all their scores at a time."""
    (B, H, L, _), most = q.shape, kernels.at_once(q, _SCORES, numbers=2)
    rows = min(L, max(1, most // S), _ROWS if causal and q.device.type == "cpu" else L)
    for part, i in product(kernels.slices(B, H, rows * S, most), kernels.cuts(L, rows)):
        yield *part, i


def _cut(qkv: Sequence[Tensor], block: Block) -> list[Tensor]:
    """The queries of the block and all keys and values of its heads, as views."""
    q, k, v = qkv
    return [q[block], k[block[:2]], v[block[:2]]]


def _dense(qkv: Sequence[Tensor], block: Block, scores_of: _Scores) -> Tensor:
    q, k, v = qkv
    scores = scores_of(q, k, block)
    least = torch.finfo(scores.dtype).min  # -inf would give NaN in a row that sees nothing
    threshold = scores.detach().topk(scores_of.topk).values[..., -1:].clamp(min=least)
    return softmax(scores, scores >= threshold) @ v[:, :, : scores.shape[3]]


def _table(x: Tensor) -> Tensor:
    """(B, H, L, E) -> (B·L·H, E): the layout that projections produce, so rarely a copy."""
    return x.transpose(1, 2).reshape(-1, x.shape[3])


def _heads(x: Tensor, B: int, H: int) -> Tensor:
    """The inverse of `_table`: (B·L·H, E) -> (B, H, L, E)."""
    return x.view(B, -1, H, x.shape[1]).transpose(1, 2)


def _weighted_sum(
    table: Tensor, index: Tensor, weights: Tensor, offsets: Tensor | None = None
) -> Tensor:
    """Σ weights · table[index] over each row of `index`, or over its parts between the offsets."""
    return F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=weights)


def _select(scores: Tensor, topk: int) -> tuple[Tensor, Tensor, bool]:
    """The `topk` highest scores of each row, their keys, and whether a further key ties in any row.

    If a row sees fewer keys, the remaining scores are -inf.
    """
    if scores.device.type == "cpu" and scores.shape[-1] < _SHORT and topk <= _ROUNDS:
        return _select_by_rounds(scores, topk)
    return _select_by_topk(scores, topk)


def _select_by_rounds(scores: Tensor, topk: int) -> tuple[Tensor, Tensor, bool]:
    """`_select` for short rows, for which `topk` is slow: mark the largest score, `topk` times.

    Equal scores are marked together; rows that do not end with `topk` marks are left to `topk`.
    """
    far = torch.finfo(scores.dtype).max / 4
    rest, mark = scores.clone(), torch.empty_like(scores)
    for _ in range(topk):
        torch.ge(rest, rest.amax(-1, keepdim=True), out=mark)
        rest.sub_(mark, alpha=far)
    marked = torch.sub(scores, rest, out=mark) > far / 2
    odd = marked.sum(-1) != topk
    some_odd, tied = bool(odd.any()), False
    keys = torch.arange(scores.shape[-1])
    if some_odd:
        marked[odd] = keys < topk  # for the shape; overwritten below
    rows = torch.arange(0, scores.numel(), len(keys)).view(*odd.shape, 1)
    index = marked.flatten().nonzero().view(*odd.shape, topk) - rows
    values = scores.gather(-1, index)
    if some_odd:
        values[odd], index[odd], tied = _select_by_topk(scores[odd], topk)
    return values, index, tied


def _select_by_topk(scores: Tensor, topk: int) -> tuple[Tensor, Tensor, bool]:
    values, keys = _largest(scores, topk + 1)
    last, beyond = values[..., topk - 1], values[..., topk]
    tied = (last == beyond) & (beyond > -math.inf)
    return values[..., :topk], keys[..., :topk], bool(tied.any())


def _largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest along the last axis, descending, and their indices, as from `topk`.

    In long rows only the `count` groups with the largest maxima are searched, which must contain
    them; that is up to ten times as fast.
    """
    keys = scores.shape[-1]
    groups = keys // _GROUP
    if groups < 4 * count:
        return scores.topk(count)
    grouped = groups * _GROUP
    maxima = scores[..., :grouped].unflatten(-1, (_GROUP, groups)).amax(-2)
    best = maxima.topk(count, sorted=False).indices
    steps = torch.arange(keys, device=scores.device)
    index = (best[..., None, :] + steps[:grouped:groups, None]).flatten(-2)
    index = torch.cat([index, steps[grouped:].expand(*index.shape[:-1], -1)], dim=-1)
    values, place = scores.gather(-1, index).topk(count)
    return values, index.gather(-1, place)
