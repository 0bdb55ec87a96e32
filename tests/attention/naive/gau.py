import torch
from torch import Tensor

from . import rows, visible


def relu_squared(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    relative_bias: Tensor | None = None,
    causal: bool = False,
    normalizer: str = "n",
    key_mask: Tensor | None = None,
) -> Tensor:
    keys, width = k.shape[2:]

    def added(h: int, i: int, j: int) -> Tensor:
        if bias is not None:
            return (bias if bias.ndim == 2 else bias[h])[i, j]
        if relative_bias is not None:
            w = relative_bias if relative_bias.ndim == 1 else relative_bias[h]
            return w[j - i + (len(w) - 1) // 2]
        return q.new_zeros(())

    def row(b: int, h: int, i: int) -> Tensor:
        n = len(visible(i, keys, False, key_mask, b))
        out = v.new_zeros(v.shape[3])
        for j in visible(i, keys, causal, key_mask, b):
            product = (q[b, h, i] * k[b, h, j]).sum()
            if normalizer == "n":
                weight = torch.relu(product / n + added(h, i, j)) ** 2
            else:
                weight = torch.relu(product / width**0.5 + added(h, i, j)) ** 2 / n
            out = out + weight * v[b, h, j]
        return out

    return rows(q, v, row)
