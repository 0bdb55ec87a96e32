"""No attention: the output is 0, so a layer keeps only its residual path.

The control that shows the value of attention itself: a mechanism that does not beat it adds
nothing. No parameters, no time, no memory; strictly causal.
"""

from typing import Unpack

from torch import Tensor

from forecaster.attention.base import About, Attention, Seen


class NoAttention(Attention):
    """Returns zeros in the shape of the query for any input."""

    about = About(cost="0", weights="nothing", no_export="")
    mixes = False

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        return query.new_zeros(query.shape)
