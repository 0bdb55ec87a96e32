"""No attention: the output is 0, so a layer keeps only its residual path.

The control that says what attention is worth at all: a mechanism that does not beat it adds
nothing. No parameters, no time, no memory; strictly causal.
"""

from torch import Tensor

from forecaster.attention.base import Attention, Place
from forecaster.shapes import Bool, Float


class NoAttention(Attention):
    """Returns zeros in the shape of the query, whatever it is given."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        if place.mix:
            raise ValueError("attention 'none' has no heads to mix: set model.mix=false")

    def forward(
        self,
        query: Float[Tensor, "B L D"],
        context: Float[Tensor, "B S D"] | None = None,
        *,
        causal: bool = False,
        key_mask: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B L D"]:
        self.check_call(query, context, causal, key_mask)
        return query.new_zeros(query.shape)

    def amounts_to(self) -> str:
        return "none: adds nothing to its layer"
