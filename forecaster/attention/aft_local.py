"""AFT-local: an Attention Free Transformer with learned biases for positions within a window.

Zhai et al., "An Attention Free Transformer", 2021, equations 2 and 4; section 3.2 for the factors.

    y_t = σ(q_t) ⊙ Σ_s e^(k_s + w_ts) ⊙ v_s / Σ_s e^(k_s + w_ts)     for every feature on its own
    w_ts = a_t·b_s where |t − s| < window, else 0                    causal: s <= t

Keys outside the window stay visible, with bias 0. All features share w; a and b are rows of two
tables (L, 128) drawn from N(0, 0.01²), L being the length of the place.

Time O(L·window·D), memory O(L·D). It is never full attention, because no query is compared with a
key; with window 1 and w = 0 it is AFT-simple, with window >= L AFT-full. Strictly causal.

The authors published no code.
"""

import math
from functools import partial
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import aft_full
from forecaster.attention.base import About, Call, Core, Draw, Effective, Place, Seen, SelfAttention
from forecaster.attention.common.aft import check_features, gated, position_factors
from forecaster.attention.common.banded import banded_mean, diagonals
from forecaster.attention.common.definitions import positions
from forecaster.attention.common.kernels import at_least_one, check_self_inputs
from forecaster.attention.common.multihead import MultiHeadAttention
from forecaster.base.shapes import Bool, Float


def definition(
    q: Tensor, k: Tensor, v: Tensor, band_bias: Tensor, *, seen: Tensor, window: int
) -> Tensor:
    """AFT-full with w_ts = band_bias[t, s − t + window − 1] where |t − s| < window, else 0."""
    t, s = positions(q.shape[2], k.shape[2], q.device)
    w = band_bias[..., t, (s - t + window - 1).clamp(0, 2 * window - 2)]
    w = w.masked_fill((t - s).abs() >= window, 0.0)
    return aft_full.definition(q, k, v, w, seen=seen)


def aft_local_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S E"],
    band_bias: Float[Tensor, "L taps"] | Float[Tensor, "H L taps"],
    *,
    window: int,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L E"]:
    """The gated mean of the values under biases near each step; see the module for the formula.

    `band_bias` holds w_ts in row t and column s − t + window − 1, with taps = 2·window − 1; entries
    for keys that do not exist, or that `causal` hides, have no effect. `key_mask` True is a real
    key; a query that sees none gives 0. Raises ValueError when sizes do not fit, or for L != S.
    """
    at_least_one(window=window)
    check_features(q, k, v, causal, key_mask)
    check_self_inputs(q, k, v, causal, key_mask)
    H, L = q.shape[1:3]
    taps = 2 * window - 1
    if tuple(band_bias.shape) not in {(L, taps), (H, L, taps)}:
        raise ValueError(
            f"band_bias must be (L, 2·window − 1) = {(L, taps)}, or {(H, L, taps)} with one for "
            f"each head, got {tuple(band_bias.shape)}"
        )
    band = band_bias[None] if band_bias.ndim == 2 else band_bias
    if causal:
        band = band[..., :window]
    mean = banded_mean(k, v, band, 1 - window, causal=causal, key_mask=key_mask)
    return gated(q, mean).to(v.dtype)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw, window: int = 32) -> Call:
    bias = 0.1 * draw(q.shape[2], 2 * window - 1)
    tensors = {"q": q, "k": k, "v": v, "band_bias": bias}
    return partial(aft_local_attention, window=window), tensors


class AFTLocalAttention(SelfAttention, MultiHeadAttention):
    """`aft_local_attention` between projections; w is a product of factors, each feature a head.

    A series may be shorter than the place; it then uses the first rows of the tables.
    """

    about = About(
        "Zhai et al., An Attention Free Transformer", 2021, "L·window·D",
        weights="content", no_export="it chooses its next operation by values",
    )  # fmt: skip
    core = Core("summaries of many steps", _call)
    mixes = False

    def __init__(self, place: Place, *, window: int = 32) -> None:
        super().__init__(place)
        at_least_one(window=window)
        self.window = window
        self.query_factors = position_factors(place.query_length)
        self.key_factors = position_factors(place.query_length)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        band = self.band_bias(q.shape[2])
        return aft_local_attention(q, k, v, band, window=self.window, **seen)

    def band_bias(self, length: int) -> Float[Tensor, "L taps"]:
        """w for `length` steps in the form `aft_local_attention` takes, without the L x L products.

        Each block of `window` rows is multiplied with the three blocks that its band can reach.
        Raises ValueError when there are more steps than rows.
        """
        self.place.hold(length, length, "aft-local has biases")
        window, blocks = self.window, math.ceil(length / self.window)
        rest = blocks * window - length
        a = F.pad(self.query_factors[:length], (0, 0, 0, rest)).unflatten(0, (blocks, window))
        b = F.pad(self.key_factors[:length], (0, 0, window, rest + window))
        b = b.unflatten(0, (blocks + 2, window))
        near = torch.cat([b[:-2], b[1:-1], b[2:]], dim=1)
        return diagonals(a @ near.mT, 1, 2 * window - 1).flatten(0, 1)[:length]

    def amounts_to(self) -> Effective:
        L = self.place.query_length
        if self.window >= L:
            return Effective(
                f"aft-local: aft-full, as window >= L (window = {self.window}, L = {L})"
            )
        return Effective(
            f"aft-local: biases up to {self.window - 1} steps away, none beyond (L = {L})"
        )
