"""The slow definition of LogSparse attention."""

import math

from torch import Tensor

from . import rows, softmax_row, visible


def offsets(length: int, sub_len: int | None = None, local_len: int | None = None) -> list[int]:
    """The visible distances: a window, then powers of two beyond its edge, repeatedly."""
    sub_len = length if sub_len is None else sub_len
    if local_len is None:
        local_len = max(1, math.ceil(math.log2(sub_len)))
    pattern = set(range(local_len)) | {local_len - 1 + 2**n for n in range(sub_len.bit_length())}
    cells = [r for r in pattern if r < sub_len]
    return sorted(
        start + r for start in range(0, length, sub_len) for r in cells if start + r < length
    )


def log_sparse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sub_len: int | None = None,
    local_len: int | None = None,
    dense_prefix: int = 0,
    causal: bool = True,
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    scale = q.shape[3] ** -0.5 if scale is None else scale
    length = q.shape[2]
    seen = set(offsets(length, sub_len, local_len))

    def row(b: int, h: int, i: int) -> Tensor:
        keys = [
            j
            for j in visible(i, length, causal, key_mask, b)
            if abs(i - j) in seen or max(i, j) < dense_prefix
        ]
        return softmax_row(q[b, h, i], k[b, h], v[b, h], keys, scale)

    return rows(q, v, row)
