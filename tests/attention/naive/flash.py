import torch
from torch import Tensor

from . import rows, visible


def mixed_chunk(
    quad_q: Tensor,
    quad_k: Tensor,
    lin_q: Tensor,
    lin_k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    chunk_size: int = 256,
    causal: bool = False,
    linear_scale: float | None = None,
    key_mask: Tensor | None = None,
) -> Tensor:
    length = v.shape[2]

    def row(b: int, h: int, i: int) -> Tensor:
        real = visible(i, length, False, key_mask, b)
        scale = 1 / max(1, len(real)) if linear_scale is None else linear_scale
        out = v.new_zeros(v.shape[3])
        for j in real:
            if i // chunk_size == j // chunk_size and (j <= i or not causal):
                score = (quad_q[b, h, i] * quad_k[b, h, j]).sum() / chunk_size
                if bias is not None:
                    of_head = bias if bias.ndim == 2 else bias[h]
                    score = score + of_head[i % chunk_size, j % chunk_size]
                out = out + torch.relu(score) ** 2 * v[b, h, j]
            if j // chunk_size < i // chunk_size or not causal:
                out = out + scale * (lin_q[b, h, i] * lin_k[b, h, j]).sum() * v[b, h, j]
        return out

    return rows(quad_q, v, row)
