"""Parts that the Attention Free Transformers share: width checks, the gate, position factors.

Zhai et al., "An Attention Free Transformer", 2021, equation 2 and section 3.2.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from forecaster.attention.common.definitions import biased_mean
from forecaster.attention.common.kernels import accumulator, check_inputs
from forecaster.base.shapes import Bool, Float, Int

RANK = 128  # features of a position, as in the paper

_AT_ONCE = 1 << 22  # weights held at a time, query by query: 16 MB; nothing depends on its value


def check_features(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, key_mask: Tensor | None = None
) -> None:
    """`check_inputs`, and check that v is as wide as q and k, because features are independent."""
    check_inputs(q, k, v, causal, key_mask)
    if v.shape[3] != q.shape[3]:
        raise ValueError(
            f"q, k and v must have the same width, got q {tuple(q.shape)}, k {tuple(k.shape)}, "
            f"v {tuple(v.shape)}"
        )


def gated(q: Float[Tensor, "B H L E"], y: Float[Tensor, "B H #L E"]) -> Float[Tensor, "B H L E"]:
    """σ(q) ⊙ y in float32 at least; y may be one row for all queries."""
    kind = accumulator(torch.promote_types(q.dtype, y.dtype))
    return q.to(kind).sigmoid() * y.to(kind)


def position_factors(length: int) -> nn.Parameter:
    """A table (length, RANK) of N(0, 0.01²), one row per position; products of rows are biases."""
    return nn.Parameter(torch.empty(length, RANK).normal_(std=0.01))


def mean_by_queries(
    k: Float[Tensor, "B H S #E"],
    v: Float[Tensor, "B H S E"],
    biases: Callable[[Tensor], Tensor],
    queries: Int[Tensor, " N"],
    causal: bool,
    key_mask: Bool[Tensor, "B S"] | None,
) -> Float[Tensor, "B H N E"]:
    """`biased_mean` of some queries, where `biases(t)` gives the (1 or H, n, S) of queries t.

    It holds a few queries at a time, forward and backward: slow, but right for any finite numbers.
    """
    steps = torch.arange(k.shape[2], device=k.device)

    def some(t: Tensor) -> Tensor:
        seen = steps <= t[:, None] if causal else (steps >= 0).expand(len(t), -1)
        seen = seen[None, None] if key_mask is None else seen & key_mask[:, None, None]
        return biased_mean(k, v, biases(t), seen)

    parts = queries.split(max(1, _AT_ONCE // v.numel()))
    return torch.cat([checkpoint(some, t, use_reentrant=False) for t in parts], dim=2)
