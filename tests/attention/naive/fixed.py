"""Fixed attention, written from its definition."""

from torch import Tensor

from . import rows, softmax_row, visible


def fixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    stride: int,
    summary: int,
    causal: bool = True,
    distinct_heads: bool = False,
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def sees(h: int, i: int, j: int) -> bool:
        slot = h % (stride // summary) if distinct_heads else 0
        end = stride - summary * slot
        return i // stride == j // stride or end - summary <= j % stride < end

    def row(b: int, h: int, i: int) -> Tensor:
        keys = [j for j in visible(i, k.shape[2], causal, key_mask, b) if sees(h, i, j)]
        return softmax_row(q[b, h, i], k[b, h], v[b, h], keys, scale)

    return rows(q, v, row)
