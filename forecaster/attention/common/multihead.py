"""Projections from (B, L, D) to queries, keys and values, and back; most mechanisms share them.

W_q, W_k, W_v and W_o are linear maps D -> D. Feature h*E + e belongs to head h, and the heads are
merged in the same order before W_o.
"""

from abc import abstractmethod
from typing import Unpack

from torch import Tensor, nn

from forecaster.attention.base import Attention, Place, Seen
from forecaster.base.shapes import Float


def split_heads(x: Float[Tensor, "B L D"], heads: int) -> Float[Tensor, "B {heads} L E"]:
    """(B, L, H*E) -> (B, H, L, E), a view."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H L E"], mix: bool = False) -> Float[Tensor, "B L D"]:
    """(B, H, L, E) -> (B, L, H*E).

    With `mix`, as in Informer2020's decoder, a row holds consecutive times of one head instead of
    all heads of one time.
    """
    if mix:
        return x.reshape(x.shape[0], x.shape[2], -1)
    return x.transpose(1, 2).flatten(2)


class ProjectedAttention(Attention):
    """Base of the mechanisms with q, k and v of the width of the model, and a projection after."""

    def __init__(self, place: Place, bias: bool = True) -> None:
        super().__init__(place)
        D = place.width
        self.query_projection = nn.Linear(D, D, bias)
        self.key_projection = nn.Linear(D, D, bias)
        self.value_projection = nn.Linear(D, D, bias)
        self.out_projection = nn.Linear(D, D, bias)

    def projected(self, query: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q of the query, k and v of the context, as heads."""
        heads = self.place.heads
        q = split_heads(self.query_projection(query), heads)
        k = split_heads(self.key_projection(context), heads)
        return q, k, split_heads(self.value_projection(context), heads)

    def merged(self, out: Tensor) -> Tensor:
        """W_o of the heads (B, H, L, E) side by side."""
        merged: Tensor = self.out_projection(merge_heads(out, self.place.mix))
        return merged


class MultiHeadAttention(ProjectedAttention):
    """Base of the mechanisms that map projected q, k, v alone to an output of the same layout."""

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        return self.merged(self.attend(*self.projected(query, context), **seen))

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        """The mechanism on (B, H, L, E), (B, H, S, E), (B, H, S, E) -> (B, H, L, E)."""
