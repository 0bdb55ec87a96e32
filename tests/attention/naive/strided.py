"""Strided attention, written from its definition."""

from torch import Tensor

from . import rows, softmax_row, visible


def strided(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    stride: int,
    causal: bool = True,
    pattern: str = "merged",
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def sees(i: int, j: int) -> bool:
        local = abs(i - j) < stride
        column = abs(i - j) % stride == 0
        return {"merged": local or column, "local": local, "column": column}[pattern]

    def row(b: int, h: int, i: int) -> Tensor:
        keys = [j for j in visible(i, k.shape[2], causal, key_mask, b) if sees(i, j)]
        return softmax_row(q[b, h, i], k[b, h], v[b, h], keys, scale)

    return rows(q, v, row)
