"""Rotary positions, and what may be done to queries and keys before they are compared.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, section 3.2.2:
features k and k + E/2 of a query or key at position i turn by the angle i · 10000^(-k / (E/2)), so
that q_i·k_j depends on the contents and on i - j alone. (The paper turns features 2k and 2k + 1,
which is the same up to their order.)

Queries and keys may be normalised before: x γ / rms(x) for each head, with γ (E,) learned and
shared by the heads, one for queries and one for keys (Dehghani et al., "Scaling Vision Transformers
to 22 Billion Parameters", 2023, section 2.1, which uses LayerNorm; with RMSNorm in most language
models since). Scores then stay below |γ_q γ_k| √E whatever the weights do.

Both take O((L + S)·D) time and memory. With both off, nothing is done and nothing is learned.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import Place
from forecaster.attention.common.kernels import accumulator
from forecaster.base.machine import sent
from forecaster.base.shapes import Float

_EPS = 1e-5  # of the mean square, as usual


def rotate(x: Float[Tensor, "*B L s"], begin: int = 0) -> Float[Tensor, "*B L s"]:
    """Rotary encoding: x_k and x_(k + s/2) turn by position · 10000^(-k / (s/2)).

    Positions count from `begin`. Products of two encoded vectors depend only on their distance.
    """
    half = x.shape[-1] // 2
    turns = _turns.__wrapped__ if torch.compiler.is_compiling() else _turns
    cos, sin = turns(begin, x.shape[-2], half, accumulator(x.dtype), x.device)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


@lru_cache(64)  # a graph of training (train/graphs.py) reads those of all its layers
def _turns(
    begin: int, length: int, half: int, kind: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The cosines and sines (length, half); computed on the host, as GPUs are slow in float64."""
    with torch.inference_mode(False):  # otherwise training could not use those of an inference
        exponents = torch.arange(half, dtype=torch.float64, device="cpu") / -half
        positions = torch.arange(begin, begin + length, device="cpu")
        angles = positions[:, None] * 10000.0**exponents
        return sent(angles.cos().to(kind), device), sent(angles.sin().to(kind), device)


def rms_norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """x / rms(x) over the last axis, times `weight`; in float32 at least, in the type of x."""
    kind = accumulator(x.dtype)
    weight = None if weight is None else weight.to(kind)
    return F.rms_norm(x.to(kind), x.shape[-1:], weight, _EPS).to(x.dtype)


class QueryKey(nn.Module):
    """Normalises queries and keys of `width` features, and turns them by their positions.

    Raises ValueError for rotary positions of an odd width, or where the queries are steps of
    another series than the keys, whose positions cannot be compared.
    """

    def __init__(self, place: Place, width: int, *, rotary: bool, qk_norm: bool) -> None:
        super().__init__()
        if rotary and width % 2:
            raise ValueError(
                "rotary=true turns pairs of features and needs an even width of a head, got "
                f"{width}: set rotary=false, or choose another width or number of heads"
            )
        if rotary and place.role == "cross":
            raise ValueError(
                "rotary=true compares positions of one series; as cross-attention, "
                f"{place.query_length} queries and {place.key_length} keys have no common ones: "
                "set rotary=false there"
            )
        self.rotary = rotary
        self.gains = nn.Parameter(torch.ones(2, width)) if qk_norm else None

    def forward(
        self, q: Float[Tensor, "B H L E"], k: Float[Tensor, "B H S E"]
    ) -> tuple[Float[Tensor, "B H L E"], Float[Tensor, "B H S E"]]:
        if self.gains is not None:
            q, k = rms_norm(q, self.gains[0]), rms_norm(k, self.gains[1])
        return (rotate(q), rotate(k)) if self.rotary else (q, k)

    @property
    def words(self) -> str:
        """What `Attention.effective` adds: nothing when both are off."""
        norm = "" if self.gains is None else ", normalised queries and keys"
        return norm + ", rotary positions" * self.rotary
