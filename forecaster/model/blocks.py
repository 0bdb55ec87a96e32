"""Layers that skeletons are made of: encoder and decoder layers, distilling."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import Attention
from forecaster.model.embedding import circular_conv
from forecaster.shapes import Bool, Float

Activation = Literal["gelu", "relu"]


class FeedForward(nn.Sequential):
    """W2 drop(act(W1 x)), position by position (Vaswani et al. 2017, sec. 3.3)."""

    def __init__(self, width: int, inner: int, dropout: float, activation: Activation) -> None:
        act = nn.GELU() if activation == "gelu" else nn.ReLU()
        super().__init__(nn.Linear(width, inner), act, nn.Dropout(dropout), nn.Linear(inner, width))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward with residuals; the norm after (Informer) or before.

    Steps that `key_mask` does not call real are attended to by none.
    """

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

    def forward(
        self, x: Float[Tensor, "b l d"], key_mask: Bool[Tensor, "b l"] | None = None
    ) -> Float[Tensor, "b l d"]:
        if self.pre:
            x = x + self.dropout(self.attention(self.norm_attention(x), key_mask=key_mask))
            return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))  # type: ignore[no-any-return]
        x = self.norm_attention(x + self.dropout(self.attention(x, key_mask=key_mask)))
        return self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the encoder, feed-forward; norms as above.

    `key_mask` and `memory_mask` say which steps of its own and of the encoder are real.
    """

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
        self,
        x: Float[Tensor, "b l d"],
        memory: Float[Tensor, "b s d"],
        key_mask: Bool[Tensor, "b l"] | None = None,
        memory_mask: Bool[Tensor, "b s"] | None = None,
    ) -> Float[Tensor, "b l d"]:
        def attend(x: Tensor) -> Tensor:
            seen = self.attention(x, causal=self.causal, key_mask=key_mask)
            return self.dropout(seen)  # type: ignore[no-any-return]

        def cross(x: Tensor) -> Tensor:
            return self.dropout(self.cross(x, memory, key_mask=memory_mask))  # type: ignore[no-any-return]

        if self.pre:
            x = x + attend(self.norm_attention(x))
            x = x + cross(self.norm_cross(x))
            return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))  # type: ignore[no-any-return]
        x = self.norm_attention(x + attend(x))
        x = self.norm_cross(x + cross(x))
        return self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))  # type: ignore[no-any-return]


class Distil(nn.Module):
    """Halve the sequence between encoder layers (Zhou et al. 2021, eq. 5).

    Convolution, batch norm (absent from the equation, present in the authors' code), ELU and a
    max-pool of stride 2: L becomes ceil(L/2). A step that is not real adds nothing and wins no
    maximum; one that comes out is real if any that went into its maximum is.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = circular_conv(width, width)
        self.norm = nn.BatchNorm1d(width)

    @staticmethod
    def length(length: int) -> int:
        """The length after distilling `length` steps."""
        return (length - 1) // 2 + 1

    def forward(
        self, x: Float[Tensor, "b l d"], key_mask: Bool[Tensor, "b l"] | None = None
    ) -> Float[Tensor, "b half d"]:
        x = x.transpose(1, 2)
        if key_mask is not None:
            x = x.masked_fill(~key_mask[:, None], 0.0)
        x = F.elu(self.norm(self.conv(x)))
        if key_mask is not None:
            x = x.masked_fill(~key_mask[:, None], -1.0)  # ELU stays above
        return _pool(x).transpose(1, 2)

    @staticmethod
    def real(key_mask: Bool[Tensor, "b l"]) -> Bool[Tensor, "b half"]:
        """Which of the steps that come out are real."""
        return _pool(key_mask[:, None].to(torch.get_default_dtype()))[:, 0] > 0


def _pool(x: Tensor) -> Tensor:
    return F.max_pool1d(x, kernel_size=3, stride=2, padding=1)
