"""Random draws of an attention: the same in every evaluation, new in every training step.

Nothing is drawn from the global generator. A seed is a hash of the option `seed`, the depth and the
role of the place, the sizes and options that shape the draw, and the number of the draw: 0 in
evaluation; in training it counts up from 1. The count is in the state dict, so a resumed training
continues it.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from forecaster.attention.base import Attention, Place
from forecaster.attention.common.kernels import outside_graphs
from forecaster.base import machine

Draw = Callable[..., Tensor]
Key = tuple[Draw, tuple[int, ...], tuple[object, ...]]
"""A function, its sizes, and what distinguishes the draw from others."""


class DrawingAttention(Attention):
    """Base of the attentions with a random part; the subclass sets `seed`."""

    seed: int

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.draws = 0
        self.ahead: dict[Key, Tensor] | None = None
        """What a training step that is replayed will draw, if it is (train/graphs.py)."""

    def draw_seed(self, draw: int, *what: object) -> int:
        """The seed of draw number `draw`; `what` distinguishes different draws."""
        words = (self.seed, self.place.depth, self.place.role, *what, draw)
        digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def draw(self, function: Draw, *sizes: int, what: tuple[object, ...], device: Any) -> Tensor:
        """`function(*sizes, seed)`, on the host, so that each device has the same: in training with
        a new seed, otherwise with that of draw 0."""
        # not traceable: it hashes and counts (a decorator would add a second to the import)
        drawn: Tensor = outside_graphs(self._draw)((function, sizes, what), torch.device(device))
        return drawn

    def _draw(self, key: Key, device: torch.device) -> Tensor:
        function, sizes, what = key
        if not self.training:
            return _cached(function, device, *sizes, self.draw_seed(0, *what))
        if self.ahead is None:
            return machine.sent(self._next(key), device)
        if key not in self.ahead:
            self.ahead[key] = machine.sent(self._next(key), device)
        return self.ahead[key]

    def _next(self, key: Key) -> Tensor:
        function, sizes, what = key
        self.draws += 1
        return function(*sizes, self.draw_seed(self.draws, *what))

    def draw_ahead(self) -> None:
        """Draw for the next training step what the last one drew, into the same memory."""
        for key, into in (self.ahead or {}).items():
            into.copy_(machine.sent(self._next(key), into.device))

    def get_extra_state(self) -> Tensor:
        """The number of draws, as a tensor, because safetensors stores only tensors."""
        return torch.tensor(self.draws)

    def set_extra_state(self, state: Tensor) -> None:
        self.draws = int(state)


@lru_cache(maxsize=8)
def _cached(function: Draw, device: torch.device, *arguments: int) -> Tensor:
    return machine.sent(function(*arguments), device)
