"""The layers of the skeletons: encoder and decoder layers, distilling."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import Attention
from forecaster.attention.common.kernels import at_least_one
from forecaster.base.shapes import Bool, Float
from forecaster.model.dropout import Dropout
from forecaster.model.embedding import circular_conv

Activation = Literal["gelu", "relu"]


class FeedForward(nn.Sequential):
    """W2 drop(act(W1 x)), position by position (Vaswani et al. 2017, sec. 3.3)."""

    def __init__(self, width: int, inner: int, dropout: float, activation: Activation) -> None:
        at_least_one(feed_forward=inner)
        act = nn.GELU() if activation == "gelu" else nn.ReLU()
        drop = Dropout(dropout, inplace=activation == "gelu")  # ReLU's gradient reads its result
        super().__init__(nn.Linear(width, inner), act, drop, nn.Linear(inner, width))


class Residual(nn.Module):
    """Base of the layers; the norm comes after each step (Informer) or before it (`pre`)."""

    def __init__(
        self,
        attention: Attention,
        inner: int,
        dropout: float,
        activation: Activation = "gelu",
        norm: Literal["post", "pre"] = "post",
        cross: Attention | None = None,
    ) -> None:
        super().__init__()
        width, ffn = attention.place.width, attention.feed_forward()
        self.dropout, self.pre = Dropout(dropout), norm == "pre"
        self.attention = attention
        if cross is not None:
            self.cross = cross
        self.feed_forward = ffn or FeedForward(width, inner, dropout, activation)
        self.norm_attention = nn.LayerNorm(width)
        if cross is not None:
            self.norm_cross = nn.LayerNorm(width)
        self.norm_feed_forward = nn.LayerNorm(width)

    def add(
        self, x: Tensor, norm: nn.Module, step: Callable[[Tensor], Tensor], last: int = 0
    ) -> Tensor:
        """x + step(x), with the norm and dropout; only the `last` rows, unless that is 0."""
        change = step(norm(x) if self.pre else x)
        added = self.dropout.add(x[:, -last:], change[:, -last:])
        return added if self.pre else norm(added)


class EncoderLayer(Residual):
    """Self-attention, causal if its place is, and feed-forward, with residuals.

    No query attends to steps that `key_mask` marks as not real. If `query` is given, with one row
    for each step, it replaces the steps as the queries.
    """

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        key_mask: Bool[Tensor, "b l"] | None = None,
        query: Float[Tensor, "b l d"] | None = None,
    ) -> Float[Tensor, "b l d"]:
        queries = () if query is None else (query,)
        causal = self.attention.place.causal
        attend = partial(self.attention, *queries, causal=causal, key_mask=key_mask)
        x = self.add(x, self.norm_attention, attend)
        return self.add(x, self.norm_feed_forward, self.feed_forward)


class DecoderLayer(Residual):
    """Self-attention, causal if its place is, cross-attention to the encoder, feed-forward.

    `key_mask` and `memory_mask` mark the real steps of the decoder and of the encoder. If only the
    `last` rows of the output are needed, the others are dropped once nothing reads them.
    """

    def __init__(
        self,
        attention: Attention,
        cross: Attention,
        inner: int,
        dropout: float,
        activation: Activation = "gelu",
        norm: Literal["post", "pre"] = "post",
    ) -> None:
        super().__init__(attention, inner, dropout, activation, norm, cross)
        self.thinks_by_row = isinstance(self.feed_forward, FeedForward)
        self.crosses_by_row = self.thinks_by_row and cross.about.rows_apart

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        memory: Float[Tensor, "b s d"],
        key_mask: Bool[Tensor, "b l"] | None = None,
        memory_mask: Bool[Tensor, "b s"] | None = None,
        last: int = 0,
    ) -> Float[Tensor, "b rows d"]:
        attend = partial(self.attention, causal=self.attention.place.causal, key_mask=key_mask)
        cross = partial(self.cross, context=memory, key_mask=memory_mask)
        x = self.add(x, self.norm_attention, attend, last if self.crosses_by_row else 0)
        x = self.add(x, self.norm_cross, cross, last if self.thinks_by_row else 0)
        return self.add(x, self.norm_feed_forward, self.feed_forward, last)


class Distil(nn.Module):
    """Halve the sequence between encoder layers (Zhou et al. 2021, eq. 5).

    Convolution, batch norm (in the authors' code, not in the equation), ELU and a max-pool of
    stride 2: L becomes ceil(L/2). A step that is not real adds nothing and wins no maximum; an
    output step is real if any step of its maximum is.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = circular_conv(width, width)
        self.norm = nn.BatchNorm1d(width)

    @staticmethod
    def length(length: int) -> int:
        return (length - 1) // 2 + 1

    def forward(
        self, x: Float[Tensor, "b l d"], key_mask: Bool[Tensor, "b l"] | None = None
    ) -> Float[Tensor, "b half d"]:
        x = x.transpose(1, 2)
        if key_mask is not None:
            x = x.masked_fill(~key_mask[:, None], 0.0)
        x = F.elu(self.norm(self.conv(x)))
        if key_mask is not None:
            x = x.masked_fill(~key_mask[:, None], -1.0)  # ELU is always above -1
        return _pool(x).transpose(1, 2).contiguous()  # copy once, not in each reader

    @staticmethod
    def real(key_mask: Bool[Tensor, "b l"]) -> Bool[Tensor, "b half"]:
        return _pool(key_mask[:, None].to(torch.get_default_dtype()))[:, 0] > 0


def _pool(x: Tensor) -> Tensor:
    return F.max_pool1d(x, kernel_size=3, stride=2, padding=1)
