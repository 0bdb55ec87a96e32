"""The slow definition of static attention."""

import torch
from torch import Tensor

from . import rows, visible


def static(v: Tensor, A: Tensor, *, causal: bool = False, key_mask: Tensor | None = None) -> Tensor:
    def row(b: int, h: int, i: int) -> Tensor:
        keys = visible(i, v.shape[2], causal, key_mask, b)
        if not keys:
            return v.new_zeros(v.shape[3])
        weights = torch.stack([(1 + A[h, i, j].exp()).log() for j in keys])
        return (weights[:, None] * v[b, h, keys]).sum(dim=0) / weights.sum()

    return rows(v.new_empty(*v.shape[:2], A.shape[1], 0), v, row)
