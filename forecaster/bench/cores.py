"""What each attention's function is called with when it is measured or drawn.

To measure another one, give it an entry in `CORES`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import (
    additive_attention,
    aft_attention,
    aft_conv_attention,
    aft_local_attention,
    aft_simple_attention,
    differential_attention,
    fixed_attention,
    full_attention,
    log_sparse_attention,
    lsh_attention,
    mean_attention,
    mixed_chunk_attention,
    prob_sparse_attention,
    relu_squared_attention,
    single_head_attention,
    strided_attention,
    topk_attention,
)

YARDSTICK = "SDPA"
"""The name of torch's fused kernel among the attentions."""

Draw = Callable[..., Tensor]
"""A tensor of the sizes given, standard normal."""
Call = tuple[Callable[..., Tensor], dict[str, Tensor]]
"""A function and the tensors that it takes by name, besides `causal`."""


@dataclass(frozen=True)
class Core:
    """How to call a mechanism's function: `build(q, k, v, draw, **options)`; its family in plots.

    Options stand for those of the function; without them they are the module's defaults, but lsh
    hashes twice.
    """

    family: str
    build: Callable[..., Call]


def _plain(function: Callable[..., Tensor]) -> Callable[..., Call]:
    def build(q: Tensor, k: Tensor, v: Tensor, draw: Draw, **options: Any) -> Call:
        return partial(function, **options), {"q": q, "k": k, "v": v}

    return build


def _fused(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return sdpa, {"q": q, "k": k, "v": v}


def _lsh(q: Tensor, k: Tensor, v: Tensor, draw: Draw, n_hashes: int = 2, **options: Any) -> Call:
    return partial(lsh_attention, n_hashes=n_hashes, **options), {"qk": q, "v": v}


def _strided(q: Tensor, k: Tensor, v: Tensor, draw: Draw, stride: int | None = None) -> Call:
    stride = stride or max(1, round(math.sqrt(q.shape[2])))
    return partial(strided_attention, stride=stride), {"q": q, "k": k, "v": v}


def _fixed(q: Tensor, k: Tensor, v: Tensor, draw: Draw, stride: int | None = None) -> Call:
    stride = stride or max(1, round(math.sqrt(q.shape[2])))
    function = partial(fixed_attention, stride=stride, summary=max(1, stride // 8))
    return function, {"q": q, "k": k, "v": v}


def _single(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    # one head as wide as all heads together
    tensors = {
        name: x.transpose(1, 2).flatten(2)[:, None] for name, x in {"q": q, "k": k, "v": v}.items()
    }
    return single_head_attention, tensors


def _fastformer(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    heads, width = q.shape[1], q.shape[1] * q.shape[3]
    weights = {name: draw(heads, width) / width**0.5 for name in ("query_weight", "key_weight")}
    return additive_attention, {"q": q, "k": k, "v": v, **weights}


def _gau(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    bias = 0.02 * draw(2 * q.shape[2] - 1)
    tensors = {"q": q, "k": k, "v": v, "relative_bias": bias}
    return relu_squared_attention, tensors


def _flash(q: Tensor, k: Tensor, v: Tensor, draw: Draw, chunk_size: int = 256) -> Call:
    lin_q, lin_k = (draw(*q.transpose(1, 2).shape).transpose(1, 2) for _ in range(2))
    bias = 0.02 * draw(chunk_size, chunk_size)
    tensors = {"quad_q": q, "quad_k": k, "lin_q": lin_q, "lin_k": lin_k, "v": v, "bias": bias}
    return partial(mixed_chunk_attention, chunk_size=chunk_size), tensors


def _diff(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    # the pair halves the width of q and k, not that of v
    (q1, q2), (k1, k2) = (x.chunk(2, dim=3) for x in (q, k))
    lam = torch.full((), 0.5, device=q.device)
    tensors = {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "v": v, "lam": lam}
    return differential_attention, tensors


def _aft_full(q: Tensor, k: Tensor, v: Tensor, draw: Draw, rank: int = 128) -> Call:
    def aft(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, causal: bool) -> Tensor:
        return aft_attention(q, k, v, (rows, columns), causal=causal)

    bias = {name: 0.1 * draw(q.shape[2], rank) for name in ("rows", "columns")}
    return aft, {"q": q, "k": k, "v": v, **bias}


def _aft_local(q: Tensor, k: Tensor, v: Tensor, draw: Draw, window: int = 32) -> Call:
    bias = 0.1 * draw(q.shape[2], 2 * window - 1)
    tensors = {"q": q, "k": k, "v": v, "band_bias": bias}
    return partial(aft_local_attention, window=window), tensors


def _aft_conv(q: Tensor, k: Tensor, v: Tensor, draw: Draw, window: int = 33) -> Call:
    kernel = 0.1 * draw(q.shape[1], window)
    return aft_conv_attention, {"q": q, "k": k[..., :1], "v": v, "kernel": kernel}


ALL, SOME, SUMMARY = "every pair of steps", "a choice of pairs", "summaries of many steps"

SDPA = Core("yardstick", _fused)
CORES: dict[str, Core] = {
    "full": Core(ALL, _plain(full_attention)),
    "prob": Core(SOME, _plain(prob_sparse_attention)),
    "logsparse": Core(SOME, _plain(log_sparse_attention)),
    "lsh": Core(SOME, _lsh),
    "strided": Core(SOME, _strided),
    "fixed": Core(SOME, _fixed),
    "topk": Core(ALL, _plain(topk_attention)),
    "single": Core(ALL, _single),
    "fastformer": Core(SUMMARY, _fastformer),
    "gau": Core(ALL, _gau),
    "flash": Core(SUMMARY, _flash),
    "diff": Core(ALL, _diff),
    "aft-full": Core(ALL, _aft_full),
    "aft-local": Core(SUMMARY, _aft_local),
    "aft-simple": Core(SUMMARY, _plain(aft_simple_attention)),
    "aft-conv": Core(SUMMARY, _aft_conv),
    "mean": Core(SUMMARY, _plain(mean_attention)),
}
