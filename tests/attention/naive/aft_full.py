"""The slow definition of AFT-full."""

from torch import Tensor

from . import rows, visible


def aft_full(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *position_bias: Tensor,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    w = position_bias[0]
    if len(position_bias) == 2:
        w = w @ position_bias[1].T

    def row(b: int, h: int, t: int) -> Tensor:
        keys = visible(t, k.shape[2], causal, key_mask, b)
        biases = w[t, keys] if w.ndim == 2 else w[h, t, keys]
        weights = (k[b, h, keys] + biases[:, None]).softmax(dim=0)
        return q[b, h, t].sigmoid() * (weights * v[b, h, keys]).sum(dim=0)

    return rows(q, v, row)
