"""Attention over a fixed pattern of visible keys on a GPU: torch's FlexAttention.

Block masks are made by a compiled builder, which never holds the L x L mask, and kept.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from forecaster.attention.common.patterns import Pattern


def suits_flex(q: Tensor, v: Tensor, key_mask: Tensor | None) -> bool:
    """Whether FlexAttention can take these: CUDA, a width it has kernels for, no padded series.

    A key mask would want a block mask for every batch; tiles are cheaper then.
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
    """Softmax attention of (B, H, L, E) tensors over what `pattern` shows; no row may be empty."""
    mask = _block_mask(pattern, q.shape[2], q.device)
    out: Tensor = _kernel(q.device.type)(q, k, v, block_mask=mask, scale=scale)
    return out


@cache
def _kernel(device: str) -> Callable[..., Any]:
    """Compiled where there are kernels; on a CPU the slow definition, which the tests look at."""
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Any = flex_attention
    return torch.compile(kernel) if device == "cuda" else kernel


@cache  # for good: a CUDA graph reads it where it lies
def _block_mask(pattern: Pattern, length: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(
        lambda batch, head, i, j: pattern(i, j),
        *(None, None, length, length),
        device=device,
        _compile=device.type == "cuda",
    )
