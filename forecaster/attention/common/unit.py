"""Parts that the two gated attention units share: the unit around the attention, and its positions.

Hua et al., "Transformer Quality in Linear Time", ICML 2022, section 2 and the appendix's code:

    U = φ(x W_u)    V = φ(x W_v)    Z = φ(x W_z)    φ = SiLU, widths e, e and s
    copies_m = rotary(γ_m ⊙ Z + β_m)                the queries and keys of the attention
    out = (U ⊙ attend(copies, V)) W_o

One head. All projections have a bias. γ starts at 1 + N(0, 0.02²) and β at 0. The authors' γ starts
at N(0, 0.02²) (`gamma_init="paper"`): the gradient of queries and keys then lies below Adam's
epsilon, and the unit learns through its bias alone. The norm and the residual path belong to the
layer. In the paper a second unit replaces the feed-forward; here it does so only with
`gau_replaces_ffn`.
"""

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.attention.base import Place, Seen, SelfAttention
from forecaster.attention.common.kernels import at_least_one, at_once, check_one_of, cuts
from forecaster.attention.common.rotary import rotate
from forecaster.base.shapes import Float

GammaInit = Literal["one", "paper"]

_LEARNED = 512  # as in the paper: beyond it, a relative bias is no longer a number per distance
_SPREAD = 0.02  # standard deviation of γ and of the relative bias at the start, as in the paper


class GatedUnit(SelfAttention):
    """Base of the units: gate, values, and affine copies of one narrow projection.

    `copies` is the number of copies; `bias_length` is the M of the relative bias; `own` holds the
    options of the subclass, for its second unit. Both units have the options `key_width` (s, even),
    `expansion` (e / D), `gamma_init` (the mean of γ at the start, 1 for "one" and 0 for "paper"),
    `rotary` (whether queries and keys encode their position) and `gau_replaces_ffn`.
    """

    mixes = False

    def __init__(
        self,
        place: Place,
        *,
        copies: int,
        bias_length: int,
        key_width: int,
        expansion: int,
        gamma_init: GammaInit,
        rotary: bool,
        gau_replaces_ffn: bool,
        **others: Any,
    ) -> None:
        super().__init__(place)
        at_least_one(key_width=key_width, expansion=expansion)
        if key_width % 2:
            raise ValueError(f"key_width must be even, for its two halves, got {key_width}")
        check_one_of(GammaInit, gamma_init=gamma_init)
        self.rotary = rotary
        options = {"gamma_init": gamma_init, "rotary": rotary, **others}
        second = partial(type(self), place, key_width=key_width, expansion=expansion, **options)
        self.second = second if gau_replaces_ffn else None
        inner = expansion * place.width
        self.gate_projection = nn.Linear(place.width, inner)
        self.value_projection = nn.Linear(place.width, inner)
        self.shared_projection = nn.Linear(place.width, key_width)
        self.out_projection = nn.Linear(inner, place.width)
        centre = 1.0 if gamma_init == "one" else 0.0
        self.gamma = nn.Parameter(centre + _SPREAD * torch.randn(copies, key_width))
        self.beta = nn.Parameter(torch.zeros(copies, key_width))
        self.relative_bias = RelativeBias(bias_length, key_width)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        gate = F.silu(self.gate_projection(query))
        v = F.silu(self.value_projection(query))
        z = F.silu(self.shared_projection(query))
        copies = z[:, None] * self.gamma[:, None] + self.beta[:, None]
        if self.rotary:
            copies = rotate(copies)
        out = self.attend(copies.to(v.dtype), v[:, None], **seen)
        return saturate(self.out_projection(saturate(gate * out[:, 0])))

    @abstractmethod
    def attend(self, copies: Tensor, v: Tensor, **seen: Unpack[Seen]) -> Tensor:
        """The mechanism: copies (B, copies, L, s), v (B, 1, L, e) -> (B, 1, L, e)."""

    def feed_forward(self) -> nn.Module | None:
        return None if self.second is None else SecondUnit(self.second())


class SecondUnit(nn.Module):
    """A unit in place of the feed-forward of a layer; causal where its place is."""

    def __init__(self, attention: GatedUnit) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        out: Tensor = self.attention(x, causal=self.attention.place.causal)
        return out


class RelativeBias(nn.Module):
    """The bias of every distance j - i from -(M - 1) to M - 1, as a vector of 2M - 1 numbers.

    Up to M = 512 the numbers are parameters. Above, as in the paper's appendix, they follow from
    two vectors a, b of width s: rotate(a, i)·rotate(b, j), which depends only on j - i. In both
    forms the bias starts with a standard deviation of 0.02.
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.length = length
        start = _SPREAD * torch.randn(2 * length - 1)
        if length > _LEARNED:
            start = (_SPREAD * width**-0.5) ** 0.5 * torch.randn(2, width)
        self.weight = nn.Parameter(start)

    def forward(self) -> Tensor:
        if self.weight.ndim == 1:
            return self.weight
        a, b = self.weight
        distances = b.expand(2 * self.length - 1, -1)
        bias: Tensor = (rotate(distances, 1 - self.length) * a).sum(1)
        return bias


def saturate(x: Tensor) -> Tensor:
    """`x`, with float16 overflows replaced by its largest number: the units grow steeply with x."""
    if x.dtype is not torch.float16:
        return x
    limit = torch.finfo(x.dtype).max
    return x.clamp(-limit, limit)


def scores_at_once(x: Tensor) -> int:
    """How many scores to hold at a time: on a CPU, as many as fit the caches of its threads."""
    return at_once(x, (1 << 18) * torch.get_num_threads(), numbers=3)


def stacks(scores: int, *tensors: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield tensors (B, H, ...) as views (pairs, ...) of the series and heads to compute together.

    There are as many pairs as can be held when each has `scores` scores: heads of one series, or
    series with one head, in the memory layout of a batched matmul. The slice names the pairs.
    """
    count = max(1, scores_at_once(tensors[0]) // scores)
    if tensors[0].shape[1] == 1:
        together = [tuple(x[:, 0] for x in tensors)]
    else:
        together = list(zip(*(x.unbind(0) for x in tensors), strict=True))
    for stack in together:
        for pairs in cuts(len(stack[0]), count):
            yield pairs, [x[pairs] for x in stack]


def relu_scores(
    q: Float[Tensor, "pairs rows s"],
    k: Float[Tensor, "pairs columns s"],
    bias: Tensor | None,
    place: tuple[slice, int, int],
    causal: bool,
) -> Float[Tensor, "pairs rows columns"]:
    """relu(q kᵀ + bias) of one tile of the scores, 0 where `causal` hides the key.

    `place` gives the tile's heads, first row and first column. `bias` is the bias of all tiles:
    (1 or H, L, S), or (1 or H, 2M - 1) when relative.
    """
    scores = torch.bmm(q, k.mT)
    if bias is not None:
        part = _of_tile(bias, scores.shape, place)
        if bias.ndim == 2:
            last_row_first = part.unfold(1, scores.shape[2], 1)
            order = torch.arange(scores.shape[1] - 1, -1, -1, device=q.device)
            part = last_row_first.index_select(1, order)
        scores.add_(part)
    scores.relu_()
    _, row, column = place
    return scores.tril_(row - column) if causal and column + scores.shape[2] > row else scores


def add_bias_gradient(
    total: Tensor, grad_scores: Float[Tensor, "pairs rows columns"], place: tuple[slice, int, int]
) -> None:
    """Add the bias gradient of one tile of scores to `total`, the gradient of the whole bias."""
    part = _of_tile(total, grad_scores.shape, place)
    if total.shape[0] == 1:
        grad_scores = grad_scores.sum(0, keepdim=True)
    if total.ndim == 2:
        # Row r from the bottom moves r to the right, so that each column holds one distance.
        _, rows, columns = grad_scores.shape
        width = rows + columns - 1
        shifted = F.pad(grad_scores.flip(1), (0, rows)).flatten(1)[:, : rows * width]
        grad_scores = shifted.unflatten(1, (rows, width)).sum(1)
    part += grad_scores


def _of_tile(bias: Tensor, shape: torch.Size, place: tuple[slice, int, int]) -> Tensor:
    """The bias of a tile; when relative, from (last row, first key) to (first row, last key)."""
    heads, row, column = place
    _, rows, columns = shape
    part = bias if bias.shape[0] == 1 else bias[heads]
    if bias.ndim == 3:
        return part[:, row : row + rows, column : column + columns]
    first = (bias.shape[1] + 1) // 2 - row - rows + column
    return part[:, first : first + rows + columns - 1]
