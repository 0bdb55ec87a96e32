"""What an attention draws at random: the same in every evaluation, anew in every training step.

Nothing is drawn from the global generator. A seed is a hash of the option `seed`, depth and role of
the place, the sizes and options that shape what is drawn, and the number of the draw: 0 in
evaluation; training counts on from 1, in the state dict, so a resumed one draws on.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from forecaster.attention.base import Attention, Place
from forecaster.attention.common.kernels import outside_graphs


class DrawingAttention(Attention):
    """Base of the attentions with a random part; its module sets `seed`."""

    seed: int

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.draws = 0

    def draw_seed(self, draw: int, *what: object) -> int:
        """The seed of draw number `draw` of what is told apart by `what`."""
        words = (self.seed, self.place.depth, self.place.role, *what, draw)
        digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def draw(
        self, function: Callable[..., Tensor], *sizes: int, what: tuple[object, ...]
    ) -> Tensor:
        """`function(*sizes, seed)` with a seed of its own in training, that of draw 0 else."""
        # it hashes and counts (a decorator would cost a second's import)
        drawn: Tensor = outside_graphs(self._draw)(function, sizes, what)
        return drawn

    def _draw(
        self, function: Callable[..., Tensor], sizes: tuple[int, ...], what: tuple[object, ...]
    ) -> Tensor:
        if self.training:
            self.draws += 1
            return function(*sizes, self.draw_seed(self.draws, *what))
        return _cached(function, *sizes, self.draw_seed(0, *what))

    def get_extra_state(self) -> Tensor:
        """The number of draws, as a tensor, because safetensors keeps nothing else."""
        return torch.tensor(self.draws)

    def set_extra_state(self, state: Tensor) -> None:
        self.draws = int(state)


@lru_cache(maxsize=8)
def _cached(function: Callable[..., Tensor], *arguments: int) -> Tensor:
    return function(*arguments)
