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

There is no official code. The largest k and the largest w of the row are subtracted. Queries for
which a sum would underflow (k or w spread over more than about 40 among their keys) are computed
again one by one, which is slow but correct.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen
from forecaster.attention.common import aft, kernels
from forecaster.attention.common.definitions import biased_mean
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.common.prefix import STEEP, masked, softmax_weights
from forecaster.base.shapes import Bool, Float

PositionBias = (
    Float[Tensor, "L S"]
    | Float[Tensor, "H L S"]
    | tuple[Float[Tensor, "L R"], Float[Tensor, "S R"]]
)

_BIASES = 1 << 20  # e^w held at a time: enough for quick matmuls


def definition(
    q: Tensor, k: Tensor, v: Tensor, position_bias: PositionBias, *, seen: Tensor
) -> Tensor:
    """y_t = σ(q_t) ⊙ Σ_s softmax_s(k_s + w_ts) ⊙ v_s, with all L x S x E weights at once."""
    w = position_bias
    if isinstance(w, tuple):
        w = w[0] @ w[1].mT
    return q.sigmoid() * biased_mean(k, v, w if w.ndim == 3 else w[None], seen)


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
    aft.check_features(q, k, v, causal, key_mask)
    H, L, S = q.shape[1], q.shape[2], k.shape[2]
    biases = position_bias if isinstance(position_bias, tuple) else (position_bias,)
    check_bias(biases, H, L, S)
    kind = kernels.accumulator(v.dtype)
    keys, values = k.to(kind), v.to(kind)
    bias = tuple((b if len(biases) == 2 or b.ndim == 3 else b[None]).to(kind) for b in biases)
    mean = kernels.outside_graphs(_mean)(keys, values, bias, causal, key_mask)  # it looks at values
    return aft.gated(q, mean).to(v.dtype)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, rank: int = 128) -> Call:
    def call(
        q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, causal: bool
    ) -> Tensor:
        return aft_attention(q, k, v, (rows, columns), causal=causal)

    bias = {name: 0.1 * draw(q.shape[2], rank) for name in ("rows", "columns")}
    return call, {"q": q, "k": k, "v": v, **bias}


class AFTFullAttention(MultiHeadAttention):
    """`aft_attention` between projections, with position biases; each feature acts as a head."""

    about = About(
        "Zhai et al., An Attention Free Transformer", 2021, "L·S·D",
        weights="content", no_export="it chooses its next operation by values",
    )  # fmt: skip
    core = Core("every pair of steps", _call)
    mixes = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.query_positions = aft.position_factors(place.query_length)
        self.key_positions = aft.position_factors(place.key_length)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        L, S = q.shape[2], k.shape[2]
        self.place.hold(L, S, "aft-full has biases")
        factors = self.query_positions[:L], self.key_positions[:S]
        return aft_attention(q, k, v, factors, **seen)


def check_bias(biases: tuple[Tensor, ...], H: int, L: int, S: int) -> None:
    shapes = [tuple(bias.shape) for bias in biases]
    rank = shapes[0][-1:]
    if shapes not in ([(L, S)], [(H, L, S)], [(L, *rank), (S, *rank)]):
        raise ValueError(
            f"position_bias must be (L, S) = {(L, S)}, (H, L, S) = {(H, L, S)} or a pair (L, R), "
            f"(S, R), got {' and '.join(map(str, shapes))}"
        )


def _mean(
    k: Tensor, v: Tensor, bias: tuple[Tensor, ...], causal: bool, key_mask: Tensor | None
) -> Tensor:
    """y before the gate; `bias` is w (1 or H, L, S), or u (L, R) and p (S, R)."""
    (B, H, _, E), G = v.shape, 1 if len(bias) == 2 else len(bias[0])
    k, v, real = masked(k, v, key_mask)
    real = None if real is None else _fold(real.expand_as(k), G)
    with torch.autocast(k.device.type, enabled=False):
        mean, lost = _BiasedMean.apply(  # type: ignore[no-untyped-call]
            _fold(k, G), _fold(v, G), real, causal, *bias
        )
        mean = mean.view(G, -1, B, H // G, E).permute(2, 0, 3, 1, 4).flatten(1, 2)
        queries = lost.nonzero().flatten()
        if len(queries):
            again = aft.mean_by_queries(k, v, partial(_biases, bias), queries, causal, key_mask)
            mean = mean.index_copy(2, queries, again)
    return mean  # type: ignore[no-any-return]


def _fold(x: Tensor, groups: int) -> Tensor:
    """(B, H, S, E) -> (groups, S, B·H/groups·E): heads that share a bias lie side by side."""
    folded: Tensor = x.unflatten(1, (groups, -1)).permute(1, 3, 0, 2, 4).flatten(2)
    return folded


def _biases(bias: Sequence[Tensor], queries: slice | Tensor, keys: slice = slice(None)) -> Tensor:
    """w of some queries and keys: (1 or H, queries, keys)."""
    if len(bias) == 2:
        return (bias[0][queries] @ bias[1][keys].T)[None]
    return bias[0][:, queries, keys]


def _tiles(k: Tensor, queries: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Yield (queries, the keys that they see), a few queries at a time."""
    most = kernels.at_once(k, _BIASES, numbers=3)
    size = max(1, most // (k.shape[0] * k.shape[1] * (2 if causal else 1)))
    for cut in kernels.cuts(queries, size):
        yield cut, slice(0, cut.stop if causal else k.shape[1])


def _from_queries(bias: Sequence[Tensor], queries: slice, keys: slice, causal: bool) -> Tensor:
    """e^(w − the largest w of the row), (1 or H, queries, keys)."""
    w = _biases(bias, queries, keys)
    e = softmax_weights(w, w.amax(2, keepdim=True))
    return e.tril_(queries.start) if causal else e


class _BiasedMean(torch.autograd.Function):
    """y before the gate, (G, L, N), and which queries (L,) have a sum too small to be accurate.

    A column is a feature of one head of one series; k, v and `real` are (G, S, N).
    """

    @staticmethod
    def forward(
        ctx: Any, k: Tensor, v: Tensor, real: Tensor | None, causal: bool, *bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        L = bias[0].shape[-2]
        mean, total = (k.new_empty(k.shape[0], L, k.shape[2]) for _ in range(2))
        e = softmax_weights(k, k.amax(1, keepdim=True))
        e = e if real is None else e.mul_(real)
        both = torch.cat([e * v, e], 2)
        for queries, keys in _tiles(k, L, causal):
            weights = _from_queries(bias, queries, keys, causal)
            mean[:, queries], total[:, queries] = (weights @ both[:, keys]).chunk(2, 2)
        small = total < STEEP
        lost = small
        if real is not None:
            lost = small & ((real.cumsum(1) if causal else real.sum(1, keepdim=True)) > 0)
        mean /= total.masked_fill_(small, 1.0)
        ctx.save_for_backward(v, e, mean, total, *bias)
        ctx.causal = causal
        lost = lost.any(0).any(1)
        ctx.mark_non_differentiable(lost)
        return mean, lost

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        v, e, mean, total, *bias = ctx.saved_tensors
        learned = any(ctx.needs_input_grad[4:])
        grad_bias = [torch.zeros_like(b) for b in bias] if learned else []
        both = torch.cat([e * v, e], 2)
        into = torch.zeros_like(both)
        with torch.autocast(v.device.type, enabled=False):
            for queries, keys in _tiles(v, total.shape[1], ctx.causal):
                over = grad[:, queries] / total[:, queries]
                over = torch.cat([over, (over * mean[:, queries]).neg_()], 2)
                weights = _from_queries(bias, queries, keys, ctx.causal)
                into[:, keys].baddbmm_(weights.mT, over)
                if learned:
                    grad_w = weights.mul_(over @ both[:, keys].mT)
                    if len(bias) == 1:
                        grad_bias[0][:, queries, keys] = grad_w
                    else:
                        grad_bias[0][queries] = grad_w[0] @ bias[1][keys]
                        grad_bias[1][keys].addmm_(grad_w[0].T, bias[0][queries])
        upper, lower = into.chunk(2, 2)
        grad_k = lower.addcmul_(upper, v).mul_(e)
        return grad_k, upper.mul_(e), None, None, *(grad_bias or (None for _ in bias))
