"""Random draws of an attention: the same in every evaluation, new in every training step.

Nothing is drawn from the global generator. A seed is a hash of the option `seed`, the depth and the
role of the place, the sizes and options that shape the draw, and the number of the draw: 0 in
evaluation; in training it counts up from 1. The count is in the state dict, so a resumed training
continues it.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from forecaster.attention.base import Attention, Place
from forecaster.attention.common.kernels import outside_graphs
from forecaster.base import machine


class DrawingAttention(Attention):
    """Base of the attentions with a random part; the subclass sets `seed`."""

    seed: int

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.draws = 0

    def draw_seed(self, draw: int, *what: object) -> int:
        """The seed of draw number `draw`; `what` distinguishes different draws."""
        words = (self.seed, self.place.depth, self.place.role, *what, draw)
        digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def draw(
        self,
        function: Callable[..., Tensor],
        *sizes: int,
        what: tuple[object, ...],
        device: torch.device,
    ) -> Tensor:
        """`function(*sizes, seed)`: in training with a new seed, otherwise with that of draw 0.

        It is drawn on the host, so that every device has the same.
        """
        # not traceable: it hashes and counts (a decorator would add a second to the import)
        drawn: Tensor = outside_graphs(self._draw)(function, sizes, what, device)
        return drawn

    def _draw(
        self,
        function: Callable[..., Tensor],
        sizes: tuple[int, ...],
        what: tuple[object, ...],
        device: torch.device,
    ) -> Tensor:
        if self.training:
            self.draws += 1
            return machine.sent(function(*sizes, self.draw_seed(self.draws, *what)), device)
        return _cached(function, device, *sizes, self.draw_seed(0, *what))

    def get_extra_state(self) -> Tensor:
        """The number of draws, as a tensor, because safetensors stores only tensors."""
        return torch.tensor(self.draws)

    def set_extra_state(self, state: Tensor) -> None:
        self.draws = int(state)


@lru_cache(maxsize=8)
def _cached(function: Callable[..., Tensor], device: torch.device, *arguments: int) -> Tensor:
    return machine.sent(function(*arguments), device)
