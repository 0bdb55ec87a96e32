"""The slow definition of AFT-simple."""

from torch import Tensor

from . import rows, visible


def aft_simple(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, key_mask: Tensor | None = None
) -> Tensor:
    def row(b: int, h: int, t: int) -> Tensor:
        keys = visible(t, k.shape[2], causal, key_mask, b)
        weights = k[b, h, keys].softmax(dim=0)
        return q[b, h, t].sigmoid() * (weights * v[b, h, keys]).sum(dim=0)

    return rows(q, v, row)
