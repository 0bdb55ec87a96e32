"""The slow definition of AFT-local."""

import torch
from torch import Tensor

from . import rows, visible


def aft_local(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    band_bias: Tensor,
    *,
    window: int,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    def row(b: int, h: int, t: int) -> Tensor:
        keys = visible(t, k.shape[2], causal, key_mask, b)
        if not keys:
            return v.new_zeros(v.shape[3])
        band = band_bias if band_bias.ndim == 2 else band_bias[h]
        scores = [
            k[b, h, s] + (band[t, s - t + window - 1] if abs(t - s) < window else 0.0) for s in keys
        ]
        weights = torch.stack(scores).softmax(dim=0)
        return q[b, h, t].sigmoid() * (weights * v[b, h, keys]).sum(dim=0)

    return rows(q, v, row)
