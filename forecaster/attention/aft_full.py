"""AFT-full: an Attention Free Transformer with a learned bias for every pair of positions.

Zhai et al., "An Attention Free Transformer", 2021, equation 2; section 3.2 for the factors.

    y_t = σ(q_t) ⊙ Σ_s e^(k_s + w_ts) ⊙ v_s / Σ_s e^(k_s + w_ts)   for every feature on its own
                                                                   causal: s <= t

The module has one head of the model's width, and w_ts = u_t·p_s, where u_t and p_s are rows of two
tables (length, 128) that start as N(0, 0.01²). The tables are as long as the place; a shorter input
uses the first rows.

Time O(L·S·E) in matmuls, since e^(k + w) = e^w e^k; memory O(L·E) and some rows of w at a time,
never an L x S x E tensor and, with the factors, never an L x S one. With w = 0 it is aft-simple. It
is never full attention, because no query is compared with a key. Strictly causal (the paper's
masked form).

There is no official code. The largest k and the largest w of the row are subtracted, for a range of
rows at once. Where a sum would underflow (k or w spread over more than about 40 among the keys of
the range), the range is halved and computed again; a single row subtracts its largest k + w and is
exact.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen
from forecaster.attention.common.aft import RANK, check_features, gated, position_factors
from forecaster.attention.common.kernels import accumulator, outside_graphs, refuse_mix
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.prefix import STEEP, softmax_weights
from forecaster.shapes import Bool, Float

PositionBias = (
    Float[Tensor, "L S"]
    | Float[Tensor, "H L S"]
    | tuple[Float[Tensor, "L R"], Float[Tensor, "S R"]]
)

_BIASES = 1 << 20  # e^w held at a time: enough for quick matmuls


def aft_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S E"],
    position_bias: PositionBias,
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L E"]:
    """The gated mean of the values, weighted by e^(k + w); see the module for the formula.

    `position_bias` is w as (L, S) or (H, L, S), or a pair u (L, R), p (S, R) that stands for u pᵀ.
    `key_mask` True is a real key; a query that sees none gives 0. Raises ValueError when the
    shapes do not fit, or for causal with L != S.
    """
    check_features(q, k, v, causal, key_mask)
    H, L, S = q.shape[1], q.shape[2], k.shape[2]
    biases = position_bias if isinstance(position_bias, tuple) else (position_bias,)
    check_bias(biases, H, L, S)
    if len(biases) == 1 and biases[0].ndim == 2:
        biases = (biases[0][None],)
    groups = biases[0].shape[0] if len(biases) == 1 else 1
    kind = accumulator(v.dtype)
    real = None
    keys, values = k.to(kind), v.to(kind)
    if key_mask is not None:
        hidden = ~key_mask[:, None, :, None]
        keys = keys.masked_fill(hidden, torch.finfo(kind).min)
        values = values.masked_fill(hidden, 0.0)
        real = _fold((~hidden).to(kind).expand_as(k), groups)
    average = outside_graphs(_BiasedMean.apply)  # its control flow depends on values
    folded = average(
        _fold(keys, groups), _fold(values, groups), real, causal, *(b.to(kind) for b in biases)
    )
    B, _, _, E = v.shape
    mean = folded.view(groups, L, B, H // groups, E).permute(2, 0, 3, 1, 4).flatten(1, 2)
    return gated(q, mean).to(v.dtype)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, rank: int = 128) -> Call:
    def aft(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, causal: bool) -> Tensor:
        return aft_attention(q, k, v, (rows, columns), causal=causal)

    bias = {name: 0.1 * draw(q.shape[2], rank) for name in ("rows", "columns")}
    return aft, {"q": q, "k": k, "v": v, **bias}


class AFTFullAttention(MultiHeadAttention):
    """`aft_attention` between projections, with position biases; each feature acts as a head."""

    about = About(
        "Zhai et al., An Attention Free Transformer", 2021, "L·S·D",
        weights="content", stalls=True, no_export="it chooses its next operation by values",
    )  # fmt: skip
    core = Core("every pair of steps", _call)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        refuse_mix(place.mix, "attention 'aft-full'")
        self.query_positions = position_factors(place.query_length)
        self.key_positions = position_factors(place.key_length)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        L, S = q.shape[2], k.shape[2]
        self.place.hold(L, S, "aft-full has biases")
        factors = self.query_positions[:L], self.key_positions[:S]
        return aft_attention(q, k, v, factors, **seen)

    def amounts_to(self) -> Effective:
        L, S = self.place.query_length, self.place.key_length
        return Effective(f"aft-full: {L} x {S} position biases of rank {min(L, S, RANK)}")


def check_bias(biases: tuple[Tensor, ...], H: int, L: int, S: int) -> None:
    shapes = [tuple(bias.shape) for bias in biases]
    if shapes in ([(L, S)], [(H, L, S)]):
        return
    if len(biases) == 2 and all(bias.ndim == 2 for bias in biases):
        (rows, rank), (columns, same) = shapes
        if (rows, columns) == (L, S) and rank == same:
            return
    raise ValueError(
        f"position_bias must be (L, S) = {(L, S)}, (H, L, S) = {(H, L, S)} or a pair (L, R), "
        f"(S, R), got {' and '.join(map(str, shapes))}"
    )


def _fold(x: Tensor, groups: int) -> Tensor:
    """(B, H, S, E) -> (groups, S, B·H/groups·E): heads that share a bias lie side by side."""
    folded: Tensor = x.unflatten(1, (groups, -1)).permute(1, 3, 0, 2, 4).flatten(2)
    return folded


class _Rows(NamedTuple):
    """A range of queries whose weights e^(k − top) e^(w − rowmax) are computed together.

    k, v, real (G, S, N); bias is w (G, L, S), or u (L, R) and p (S, R).
    """

    k: Tensor
    v: Tensor
    real: Tensor | None
    causal: bool
    bias: tuple[Tensor, ...]
    start: int
    stop: int

    @property
    def keys(self) -> int:
        return self.stop if self.causal else self.k.shape[1]

    @property
    def single(self) -> bool:
        return self.stop - self.start == 1

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """Yield (queries, the keys that they see), a few queries at a time."""
        size = max(1, _BIASES // (self.k.shape[0] * self.k.shape[1] * (2 if self.causal else 1)))
        for start in range(self.start, self.stop, size):
            stop = min(start + size, self.stop)
            yield slice(start, stop), slice(0, stop if self.causal else self.keys)

    def w(self, queries: slice, keys: slice) -> Tensor:
        """The biases (G, queries, keys)."""
        if len(self.bias) == 2:
            return (self.bias[0][queries] @ self.bias[1][keys].T)[None]
        return self.bias[0][:, queries, keys]

    def from_queries(self, queries: slice, keys: slice) -> Tensor:
        """e^(w − rowmax), (G, queries, keys); 1 for a single query, as its w is added to k."""
        w = self.w(queries, keys)
        if self.single:
            return torch.ones_like(w)
        e = softmax_weights(w, w.amax(2, keepdim=True))
        if self.causal:
            e.tril_(queries.start)
        return e

    def from_keys(self) -> Tensor:
        """e^(k − top), (G, keys, N)."""
        k = self.k[:, : self.keys]
        if self.single:
            k = k + self.w(slice(self.start, self.stop), slice(0, self.keys)).mT
        e = softmax_weights(k, k.amax(1, keepdim=True))
        return e if self.real is None else e.mul_(self.real[:, : self.keys])

    def both(self, e: Tensor) -> Tensor:
        """(G, keys, 2N): the terms of the numerator and of the denominator."""
        return torch.cat([e * self.v[:, : self.keys], e], 2)


class _BiasedMean(torch.autograd.Function):
    """y before the gate, (G, L, N). A column is a feature of one head of one series."""

    @staticmethod
    def forward(
        ctx: Any, k: Tensor, v: Tensor, real: Tensor | None, causal: bool, *bias: Tensor
    ) -> Tensor:
        L = bias[0].shape[-2]
        mean, total = (k.new_empty(k.shape[0], L, k.shape[2]) for _ in range(2))
        todo, done = [(0, L)], []
        with torch.autocast(k.device.type, enabled=False):
            while todo:
                start, stop = todo.pop()
                if _average(_Rows(k, v, real, causal, bias, start, stop), mean, total):
                    done.append((start, stop))
                else:
                    middle = (start + stop) // 2
                    todo += [(start, middle), (middle, stop)]
        ctx.save_for_backward(k, v, real, mean, total, *bias)
        ctx.causal, ctx.ranges = causal, done
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        k, v, real, mean, total, *bias = ctx.saved_tensors
        grad_k, grad_v = torch.zeros_like(k), torch.zeros_like(v)
        learned = any(ctx.needs_input_grad[4:])
        grad_bias = [torch.zeros_like(b) for b in bias] if learned else []
        with torch.autocast(k.device.type, enabled=False):
            for start, stop in ctx.ranges:
                rows = _Rows(k, v, real, ctx.causal, tuple(bias), start, stop)
                e = rows.from_keys()
                both = rows.both(e)
                into = torch.zeros_like(both)
                for queries, keys in rows.tiles():
                    over = grad[:, queries] / total[:, queries]
                    over = torch.cat([over, (over * mean[:, queries]).neg_()], 2)
                    weights = rows.from_queries(queries, keys)
                    into[:, keys].baddbmm_(weights.mT, over)
                    if learned:
                        grad_w = weights.mul_(over @ both[:, keys].mT)
                        _add_to_bias(grad_bias, grad_w, bias, queries, keys)
                upper, lower = into.chunk(2, 2)
                seen = slice(0, rows.keys)
                grad_v[:, seen].addcmul_(e, upper)
                grad_k[:, seen].addcmul_(e, lower.addcmul_(upper, v[:, seen]))
        return grad_k, grad_v, None, None, *(grad_bias or (None for _ in bias))


def _average(rows: _Rows, mean: Tensor, total: Tensor) -> bool:
    """Write mean and total of these rows; return False when a total is too small to be accurate."""
    both = rows.both(rows.from_keys())
    for queries, keys in rows.tiles():
        upper, lower = (rows.from_queries(queries, keys) @ both[:, keys]).chunk(2, 2)
        if rows.real is not None:
            lower += lower == 0  # nothing seen: 0 / 1
        torch.div(upper, lower, out=mean[:, queries])
        total[:, queries] = lower
    return rows.single or float(total[:, rows.start : rows.stop].amin()) >= STEEP


def _add_to_bias(
    grad_bias: list[Tensor], grad_w: Tensor, bias: list[Tensor], queries: slice, keys: slice
) -> None:
    if len(bias) == 1:
        grad_bias[0][:, queries, keys] = grad_w
    else:
        grad_bias[0][queries] = grad_w[0] @ bias[1][keys]
        grad_bias[1][keys].addmm_(grad_w[0].T, bias[0][queries])
