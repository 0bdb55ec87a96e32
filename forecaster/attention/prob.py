"""ProbSparse attention: only the queries with the least uniform scores attend.

Zhou et al., "Informer: Beyond Efficient Transformer for Long Sequence Time-Series Forecasting",
AAAI 2021, equations 2 to 4 and algorithm 1.

    u = min(L, max(1, factor·⌈ln L⌉))    active queries
    U = min(S, max(1, factor·⌈ln S⌉))    keys sampled for each query, with replacement,
                                         the same for the whole batch and all heads
    M_i = max_a q_i·k_a − (1/U) Σ_a q_i·k_a            over the sampled keys a of query i
    active: the u queries of largest M, ties to the lower index
        out_i = Σ_j softmax_j(q_i·k_j / √E) v_j        as in full attention
    lazy: all others
        out_i = (1/n) Σ_j v_j                          causal: (1/(i+1)) Σ_{j<=i} v_j

Time O(L·U·E + u·S·E), memory O(L·E). It is full attention when u >= L, with factor 5 for L <= 15.
Not strictly causal: which queries are active depends on the whole sequence, although the keys that
an active or lazy query sees do not. M is a selection and carries no gradient.

`variant="informer2020"` computes what the authors' code does: the measure subtracts Σ_a / S (with a
key mask, Σ_a / the number of real keys) instead of the mean, and causal lazy rows are the sum of
the past, which grows with the position, not its mean.
"""

import math
import warnings
from typing import Literal, Unpack

import torch
from torch import Tensor

from forecaster.attention.base import About, Core, Effective, Place, Seen
from forecaster.attention.common import kernels
from forecaster.attention.common.definitions import attend, real_keys
from forecaster.attention.common.draws import DrawingAttention
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.attention.full import full_attention
from forecaster.base.machine import sent
from forecaster.base.shapes import Bool, Float, Int

Variant = Literal["paper", "informer2020"]

_SCORES = 1 << 18  # sampled scores computed at a time, so that they stay in a CPU's cache

with warnings.catch_warnings():  # torch warns once per process that sparse patterns are in beta
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor([0], [], [], (0, 0), check_invariants=False)


def prob_counts(L: int, S: int, factor: int) -> tuple[int, int]:
    """(u, U): how many of L queries are active, and how many of S keys each query samples."""
    kernels.at_least_one(L=L, S=S, factor=factor)
    u, U = (min(n, max(1, factor * math.ceil(math.log(n)))) for n in (L, S))
    return u, U


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    seen: Tensor,
    causal: bool = False,
    factor: int = 5,
    sample_index: Tensor | None = None,
    variant: Variant = "paper",
    scale: float | None = None,
) -> Tensor:
    """Equations 2 to 4 and algorithm 1, with all scores and both outputs of every query."""
    L, S = q.shape[2], k.shape[2]
    u, U = prob_counts(L, S, factor)
    sample = draw_sample(L, S, U, 0) if sample_index is None else sample_index
    index = sample.to(q.device).long().expand(*q.shape[:2], -1, -1)
    real = real_keys(seen).expand(*q.shape[:2], L, -1)
    scores, drawn = (q @ k.mT).detach().gather(3, index), real.gather(3, index)
    count = (drawn if variant == "paper" else real).sum(3).clamp(min=1)
    highest = scores.masked_fill(~drawn, -math.inf).amax(3)
    measure = highest - (scores * drawn).sum(3) / count
    rank = measure.argsort(dim=2, descending=True, stable=True).argsort(dim=2)
    n = 1 if causal and variant == "informer2020" else seen.sum(3, keepdim=True).clamp(min=1)
    lazy = seen.to(v.dtype) @ v / n
    return torch.where(rank[..., None] < u, attend(q, k, v, seen, scale), lazy)


def prob_sparse_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    factor: int = 5,
    causal: bool = False,
    sample_index: Int[Tensor, "L U"] | None = None,
    variant: Variant = "paper",
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
    seed: int = 0,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L Ev"]:
    """ProbSparse attention; see the module for the formula.

    `sample_index` holds the sampled key positions of each query; without it they are drawn from
    `seed`. `scale` (E**-0.5) acts on the active rows. `key_mask` True is a real key; others are
    neither sampled nor attended to nor averaged. A query that sees no key gives 0. `dropout_p`
    drops weights of active rows. Raises ValueError when sizes or options do not fit.
    """
    kernels.check_inputs(q, k, v, causal, key_mask)
    L, S = q.shape[2], k.shape[2]
    u, U = prob_counts(L, S, factor)
    kernels.check_one_of(Variant, variant=variant)
    if sample_index is not None:
        _check_sample(sample_index, L, S)
    if u >= L:
        return full_attention(
            q, k, v, causal=causal, key_mask=key_mask, scale=scale, dropout_p=dropout_p
        )
    if sample_index is None:
        sample_index = draw_sample(L, S, U, seed)
    with torch.no_grad():
        measure = _measure(q, k, sent(sample_index, q.device), variant, key_mask)
        # A stable sort, because topk returns ties in no defined order. ONNX has only one sort,
        # which is stable and takes no such argument.
        stable = {} if torch.compiler.is_exporting() else {"stable": True}
        active = measure.sort(dim=2, descending=True, **stable).indices[:, :, :u, None]

    visible = None
    if causal:
        visible = torch.arange(S, device=q.device) <= active
    if key_mask is not None:
        real = key_mask[:, None, None, :]
        visible = real if visible is None else visible & real
    rows = kernels.softmax_attention(
        q.gather(2, active.expand(-1, -1, -1, q.shape[3])),
        k,
        v,
        visible=visible,
        may_be_empty=key_mask is not None,
        scale=scale,
        dropout_p=dropout_p,
    )
    sums = causal and variant == "informer2020"
    lazy = (kernels.visible_sum if sums else kernels.visible_mean)(v, causal, key_mask)
    lazy = lazy.expand(-1, -1, L, -1)
    index = active.expand(-1, -1, -1, v.shape[3])
    return lazy.scatter(2, index, rows.to(lazy.dtype)).to(v.dtype)


class ProbSparseAttention(DrawingAttention, MultiHeadAttention):
    """Multi-head `prob_sparse_attention` that owns its key sample.

    The sample for the lengths of the place is a buffer; common/draws.py describes how samples are
    drawn.
    `dropout` of the active rows' weights acts in training only.
    """

    about = About(
        "Zhou et al., Informer", 2021, "(L + S)·log(L)·D", causal="selection sees all",
        random="sampled keys",
        weights="content", no_export="",
    )  # fmt: skip
    core = Core.plain("a choice of pairs", prob_sparse_attention)

    sample: Tensor | None

    def __init__(
        self,
        place: Place,
        *,
        factor: int = 5,
        variant: Variant = "paper",
        seed: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(place)
        kernels.check_one_of(Variant, variant=variant)
        self.factor, self.variant, self.seed = factor, variant, seed
        self.dropout = kernels.check_probability(dropout=dropout)
        L, S = place.query_length, place.key_length
        u, U = prob_counts(L, S, factor)
        sample = None if u >= L else draw_sample(L, S, U, self.draw_seed(0, L, S, factor))
        self.register_buffer("sample", sample)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        sample = self._sample(q.shape[2], k.shape[2], q.device)
        p, factor, variant = self.dropout if self.training else 0.0, self.factor, self.variant
        return prob_sparse_attention(
            q, k, v, factor=factor, sample_index=sample, variant=variant, **seen, dropout_p=p
        )

    def amounts_to(self) -> Effective:
        L, S = self.place.query_length, self.place.key_length
        u, U = prob_counts(L, S, self.factor)
        if u >= L:
            return Effective(f"full: u >= L (u = {u}, L = {L})", full=True)
        return Effective(f"prob: {u} of {L} queries active, {U} of {S} keys sampled")

    def _sample(self, L: int, S: int, device: torch.device) -> Tensor | None:
        """The sample of this forward pass; None when it would not matter."""
        u, U = prob_counts(L, S, self.factor)
        if u >= L:
            return None
        at_place = (self.place.query_length, self.place.key_length) == (L, S)
        if at_place and not self.training:
            return self.sample
        return self.draw(draw_sample, L, S, U, what=(L, S, self.factor), device=device)


def draw_sample(L: int, S: int, U: int, seed: int) -> Tensor:
    """(L, U) key positions, uniform in [0, S); the global random state is not touched."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randint(S, (L, U), generator=generator, device="cpu")


def _check_sample(sample: Tensor, L: int, S: int) -> None:
    whole = sample.ndim == 2 and sample.shape[0] == L and sample.shape[1]
    if not whole or sample.is_floating_point():
        raise ValueError(
            f"sample_index must hold integers of shape (L, U) with L = {L}, got {sample.dtype} "
            f"of shape {tuple(sample.shape)}"
        )
    # On a GPU the gather itself refuses a wrong position; a check would wait for the device. A
    # trace has no values to check.
    looks = sample.device.type == "cpu" and not torch.compiler.is_exporting()
    if looks and not 0 <= int(sample.min()) <= int(sample.max()) < S:
        raise ValueError(
            f"sample_index must lie in [0, {S}), got values from {int(sample.min())} to "
            f"{int(sample.max())}"
        )


def _measure(
    q: Tensor, k: Tensor, sample: Tensor, variant: Variant, key_mask: Tensor | None
) -> Tensor:
    """M (B, H, L) in float32 at least; -inf for a query without a real key in its sample.

    Each score is summed separately, so the measure of a row does not depend on the other series.
    """
    B, H, L, _ = q.shape
    kind = kernels.accumulator(q.dtype)
    measure = torch.empty(B, H, L, dtype=kind, device=q.device)
    sampled_scores = _SampledScores(sample, k.shape[2], kind)
    exporting = torch.compiler.is_exporting()  # then one part holds all
    for part in kernels.slices(
        B, H, sample.numel(), kernels.at_once(q, _SCORES, numbers=q.shape[3])
    ):
        scores = sampled_scores(q[part].to(kind), k[part].to(kind))
        if key_mask is None:
            mean = scores.mean(3) if variant == "paper" else scores.sum(3) / k.shape[2]
        else:
            seen = key_mask[part[0]][:, None, sample]
            real = seen if variant == "paper" else key_mask[part[0], None, None]
            mean = scores.masked_fill(~seen, 0.0).sum(3) / real.sum(3).clamp_(min=1)
            scores = scores.masked_fill_(~seen, -math.inf)
        if exporting:
            return scores.amax(3) - mean
        torch.sub(scores.amax(3), mean, out=measure[part])
    return measure


class _SampledScores:
    """(B, H, L, U) products of q (B, H, L, E) with the sampled rows of k (B, H, S, E).

    On a CPU it is one sparse product for all B·H pairs: row n·L + i of the pattern holds the keys
    n·S + sample[i]. The values of the pattern are the result, which the next call overwrites.
    """

    def __init__(self, sample: Tensor, keys: int, dtype: torch.dtype) -> None:
        self.sample, self.keys, self.dtype = sample, keys, dtype
        self.pattern = self.values = torch.empty(0)

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        B, H, L, E = q.shape
        U = self.sample.shape[1]
        # a row of the pattern holds at most one value per key; exported graphs must do without it
        if q.device.type != "cpu" or self.keys < U or torch.compiler.is_exporting():
            return (k[:, :, self.sample] * q[:, :, :, None]).sum(4)
        if self.pattern.shape[0] != B * H * L:
            self.values, self.pattern = self._pattern(B * H)
        self.values.zero_()  # because 0 times an earlier inf is NaN
        torch.sparse.sampled_addmm(
            self.pattern, q.reshape(-1, E), k.reshape(-1, E).T, beta=0.0, out=self.pattern
        )
        return self.values.view(B, H, L, U)

    def _pattern(self, pairs: int) -> tuple[Tensor, Tensor]:
        """The values, which a compiler can trace, and the pattern that holds them."""
        L, U = self.sample.shape
        shape = (pairs * L, pairs * self.keys)
        rows = torch.arange(0, (shape[0] + 1) * U, U, dtype=torch.int32)
        offsets = torch.arange(0, shape[1], self.keys, dtype=torch.int32)
        columns = (self.sample.to(torch.int32) + offsets[:, None, None]).flatten()
        values = torch.empty(len(columns), dtype=self.dtype)
        pattern = torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)
        return values, pattern
