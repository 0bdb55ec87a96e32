"""Attention over a fixed pattern of visible keys on a GPU: torch's FlexAttention.

A compiled builder makes the block masks without ever holding the L x L mask; they are kept.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

KEPT = 32
"""The number of masks that a process keeps: models of several lengths share few."""

Pattern = Callable[[Tensor, Tensor], Tensor]
"""Whether query i sees key j: for integer tensors i, j that broadcast, a bool tensor. Hashable."""


def suits_flex(q: Tensor, v: Tensor, key_mask: Tensor | None) -> bool:
    """Whether FlexAttention can take these: CUDA, a width it has kernels for, no padded series.

    With a key mask it would need a new block mask for every batch; tiles are cheaper then.
    """
    width = q.shape[3]
    return (
        q.device.type == "cuda"
        and q.dtype != torch.float64
        and key_mask is None
        and width == v.shape[3]
        and 16 <= width <= 256
        and width & (width - 1) == 0
    )


def flex_pattern(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, scale: float) -> Tensor:
    """Softmax attention of (B, H, L, E) tensors over the keys of `pattern`; no row may be empty."""
    mask = _block_mask(pattern, q.shape[2], q.device)
    out: Tensor = _kernel(q.device.type)(q, k, v, block_mask=mask, scale=scale)
    return out


@cache
def _kernel(device: str) -> Callable[..., Any]:
    """The compiled kernel on CUDA; elsewhere the slow definition, which the tests use."""
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Any = flex_attention
    return torch.compile(kernel) if device == "cuda" else kernel


@lru_cache(KEPT)
def _block_mask(pattern: Pattern, length: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(
        lambda batch, head, i, j: pattern(i, j),
        *(None, None, length, length),
        device=device,
        _compile=device.type == "cuda",
    )
