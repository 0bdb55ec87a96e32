"""Layers that skeletons are made of: encoder and decoder layers, distilling."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import Attention
from forecaster.model.embedding import circular_conv
from forecaster.shapes import Float

Activation = Literal["gelu", "relu"]


class FeedForward(nn.Sequential):
    """W2 drop(act(W1 x)), position by position (Vaswani et al. 2017, sec. 3.3)."""

    def __init__(self, width: int, inner: int, dropout: float, activation: Activation) -> None:
        act = nn.GELU() if activation == "gelu" else nn.ReLU()
        super().__init__(nn.Linear(width, inner), act, nn.Dropout(dropout), nn.Linear(inner, width))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward with residuals; the norm after (Informer) or before."""

    def __init__(
        self,
        attention: Attention,
        inner: int,
        dropout: float,
        activation: Activation = "gelu",
        norm: Literal["post", "pre"] = "post",
    ) -> None:
        super().__init__()
        width = attention.place.width
        self.attention = attention
        self.feed_forward = attention.feed_forward() or FeedForward(
            width, inner, dropout, activation
        )
        self.norm_attention = nn.LayerNorm(width)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.pre = norm == "pre"

    def forward(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l d"]:
        if self.pre:
            x = x + self.dropout(self.attention(self.norm_attention(x)))
            return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))  # type: ignore[no-any-return]
        x = self.norm_attention(x + self.dropout(self.attention(x)))
        return self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the encoder, feed-forward; norms as above."""

    def __init__(
        self,
        attention: Attention,
        cross: Attention,
        inner: int,
        dropout: float,
        activation: Activation = "gelu",
        norm: Literal["post", "pre"] = "post",
        causal: bool = True,
    ) -> None:
        super().__init__()
        width = attention.place.width
        self.attention = attention
        self.cross = cross
        self.feed_forward = attention.feed_forward() or FeedForward(
            width, inner, dropout, activation
        )
        self.norm_attention = nn.LayerNorm(width)
        self.norm_cross = nn.LayerNorm(width)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.pre, self.causal = norm == "pre", causal

    def forward(
        self, x: Float[Tensor, "b l d"], memory: Float[Tensor, "b s d"]
    ) -> Float[Tensor, "b l d"]:
        if self.pre:
            x = x + self.dropout(self.attention(self.norm_attention(x), causal=self.causal))
            x = x + self.dropout(self.cross(self.norm_cross(x), memory))
            return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))  # type: ignore[no-any-return]
        x = self.norm_attention(x + self.dropout(self.attention(x, causal=self.causal)))
        x = self.norm_cross(x + self.dropout(self.cross(x, memory)))
        return self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))  # type: ignore[no-any-return]


class Distil(nn.Module):
    """Halve the sequence between encoder layers (Zhou et al. 2021, eq. 5).

    Convolution, batch norm (absent from the equation, present in the authors' code), ELU and a
    max-pool of stride 2: L becomes ceil(L/2).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = circular_conv(width, width)
        self.norm = nn.BatchNorm1d(width)

    @staticmethod
    def length(length: int) -> int:
        """The length after distilling `length` steps."""
        return (length - 1) // 2 + 1

    def forward(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b half d"]:
        x = F.elu(self.norm(self.conv(x.transpose(1, 2))))
        return F.max_pool1d(x, kernel_size=3, stride=2, padding=1).transpose(1, 2)
