"""The softmax mean of the past at every step, in linear time.

    y_t = Σ_{s<=t} e^(a_s) x_s / Σ_{s<=t} e^(a_s)

Steps are cut into chunks; F_c is the largest score up to the end of chunk c. Inside a chunk both
sums are a triangular matmul over e^(a_s − F_c); earlier chunks enter through a scan over the sums
of chunks, with factors e^(F_b − F_c) <= 1. The gradient is computed in the same way from the end,
with g = ∂y and the denominator d_t:

    ∂x_s = e^(a_s) Σ_{t>=s} g_t / d_t        ∂a_s = e^(a_s) Σ_{t>=s} (g_t / d_t)·(x_s − y_t)

Where scores rise so steeply within a chunk that a d_t is negligible relative to e^(F_c), those
steps are computed again in chunks of one step: d_t is then at least 1, and nothing overflows or
vanishes.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forecaster.attention.common.kernels import cuts, outside_graphs
from forecaster.base.shapes import Bool, Float

LOWEST = -80.0
"""The lowest exponent: e^-80 is negligible relative to 1, and exp is slow below e^-87."""
STEEP = math.exp(-40)
"""A sum of weights below this is too near to e^LOWEST to be accurate."""

_CHUNK = 32  # steps of a triangular matmul; only speed and rounding depend on it
_AT_ONCE = 1 << 18  # elements worked on at a time, so that they stay in a CPU's cache


def prefix_softmax_mean(
    score: Float[Tensor, "B H L #E"],
    value: Float[Tensor, "B H L E"],
    key_mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B H L E"]:
    """The mean of the values up to each step, weighted by e^score, with one score per step or one
    per feature. Both tensors have the same type, float32 at least.

    `key_mask` True is a real step; others have no weight, and a step that sees none gives 0.
    """
    average: Callable[..., Tensor] = _PrefixSoftmaxMean.apply
    if score.device.type == "cpu":
        average = outside_graphs(average)  # its control flow depends on values
    return average(*masked(score, value, key_mask))


def masked(
    score: Tensor, value: Tensor, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Both without weight at hidden steps, and 1 for each real one (B, 1, L, 1), None for all."""
    if key_mask is None:
        return score, value, None
    hidden, lowest = ~key_mask[:, None, :, None], torch.finfo(score.dtype).min
    real = (~hidden).to(value.dtype)
    return score.masked_fill(hidden, lowest), value.masked_fill(hidden, 0.0), real


def parts(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Pairs (series, steps) of x (B, H, L, E) that fit a CPU's cache; on other devices all."""
    B, H, L, E = x.shape
    at_once = _AT_ONCE // (H * E) if x.device.type == "cpu" else B * L
    series = max(1, at_once // L)
    steps = L if at_once >= L else max(1, at_once // _CHUNK) * _CHUNK
    return product(cuts(B, series), cuts(L, steps))


def softmax_weights(score: Tensor, top: Tensor) -> Tensor:
    """e^(score − top), for top >= score, no lower than e^LOWEST."""
    return (score - top).clamp_(min=LOWEST).exp_()


class _Block(NamedTuple):
    """Consecutive steps of some series, in chunks of `chunk` steps; n is the number of chunks.

    `tops` (b, n + 1, H, 1 or E): the largest score before the block and up to the end of each of
    its chunks.
    """

    series: slice
    steps: slice
    chunk: int
    tops: Tensor

    def cut(self, x: Tensor) -> Tensor:
        """(B, L, H, .) -> (b, n, chunk, H, .), a view."""
        chunks: Tensor = x[self.series, self.steps].unflatten(1, (-1, self.chunk))
        return chunks

    def weights(self, score: Tensor, real: Tensor | None) -> Tensor:
        """e^(a − F), 0 at hidden steps."""
        e = softmax_weights(self.cut(score), self.tops[:, 1:, None])
        return e if real is None else e.mul_(self.cut(real))

    def lift(self) -> Tensor:
        """(b, n, H, .): the factor with which earlier chunks enter the sums of each chunk."""
        return softmax_weights(self.tops[:, :-1], self.tops[:, 1:])


class _PrefixSoftmaxMean(torch.autograd.Function):
    """Works block by block; inside, steps come before heads, as in the output of a projection."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, value: Tensor, real: Tensor | None) -> Tensor:
        a, x = score.transpose(1, 2), value.transpose(1, 2)
        real = None if real is None else real.transpose(1, 2)
        y, d = x.new_empty(x.shape), a.new_empty(a.shape)
        blocks = []
        with torch.autocast(x.device.type, enabled=False):
            for series, steps, chunk in _cuts(x):
                if steps.start == 0:
                    lowest = torch.full_like(a[series, 0], torch.finfo(a.dtype).min)
                    past = (lowest, *(torch.zeros_like(t[series, 0]) for t in (x, a)))
                for size in (chunk, 1):
                    block = _Block(series, steps, size, _tops(a[series, steps], past[0], size))
                    (upper, lower), ends = _sum_up(block, a, x, real, past[1:])
                    if size == 1 or float(lower.amin()) >= STEEP:
                        break
                torch.div(upper, lower, out=block.cut(y))
                block.cut(d).copy_(lower)
                past = block.tops[:, -1], *ends
                blocks.append(block)
        ctx.save_for_backward(score, value, real, y, d)
        ctx.blocks = blocks
        return y.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        score, value, real, y, d = ctx.saved_tensors
        a, x, g = (t.transpose(1, 2) for t in (score, value, grad))
        grad_a, grad_x = a.new_empty(a.shape), x.new_empty(x.shape)
        later: list[Tensor] = []
        with torch.autocast(x.device.type, enabled=False):
            for block in reversed(ctx.blocks):
                if block.steps.stop == x.shape[1]:
                    later = [torch.zeros_like(t[block.series, 0]) for t in (x, a)]
                e = block.weights(a, real)
                over = block.cut(g) / block.cut(d)
                less = (over * block.cut(y)).sum_to_size(e.shape)
                sums = [_within(t, True) for t in (over, less)]
                lift = block.lift()
                after = [
                    torch.cat([lift * t[:, :, 0], end[:, None]], 1)
                    for t, end in zip(sums, later, strict=True)
                ]
                for t, c in zip(sums, _scan(after, block.tops, True), strict=True):
                    t += c[:, 1:, None]
                later = [c[:, 0] for c in after]
                torch.mul(e, sums[0], out=block.cut(grad_x))
                both = sums[0].mul_(block.cut(x)).sum_to_size(e.shape).sub_(sums[1])
                torch.mul(e, both, out=block.cut(grad_a))
        return grad_a.transpose(1, 2), grad_x.transpose(1, 2), None


def _tops(a: Tensor, before: Tensor, chunk: int) -> Tensor:
    """The running maximum at the start of the block and at the end of each chunk."""
    chunks = a.unflatten(1, (-1, chunk)).amax(2)
    return torch.cat([before[:, None], chunks], 1).cummax(1).values


def _sum_up(
    block: _Block, a: Tensor, x: Tensor, real: Tensor | None, past: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
    """The numerator and the denominator at each step, and both at the end of the block.

    `past` holds both at the start of the block; at the start and the end they are relative to e^F.
    """
    e = block.weights(a, real)
    upper, lower = _within(e * block.cut(x)), _within(e)
    ends = [
        torch.cat([start[:, None], t[:, :, -1]], 1)
        for t, start in zip((upper, lower), past, strict=True)
    ]
    lift = block.lift()[:, :, None]
    for t, end in zip((upper, lower), _scan(ends, block.tops), strict=True):
        t += lift * end[:, :-1, None]
    if real is not None:
        lower += lower == 0  # nothing seen: 0 / 1
    return (upper, lower), tuple(end[:, -1] for end in ends)


def _cuts(x: Tensor) -> Iterator[tuple[slice, slice, int]]:
    """Yield the `parts` of x (B, L, H, E) with the length of their chunks.

    On other devices than a CPU a chunk is one step, because the host would have to wait for the
    device to find steep scores.
    """
    for series, steps in parts(x.transpose(1, 2)):
        count = steps.stop - steps.start
        if x.device.type != "cpu":
            yield series, steps, 1
            continue
        whole = steps.stop - count % _CHUNK
        if steps.start < whole:
            yield series, slice(steps.start, whole), _CHUNK
        if whole < steps.stop:
            yield series, slice(whole, steps.stop), steps.stop - whole


def _within(x: Tensor, reverse: bool = False) -> Tensor:
    """Sum over the steps of a chunk up to (`reverse`: from) each step; x is (b, n, chunk, H, .)."""
    chunk = x.shape[2]
    if chunk == 1:
        return x
    triangle = x.new_ones(chunk, chunk).tril_()
    return ((triangle.T if reverse else triangle) @ x.flatten(3)).view_as(x)


def _scan(sums: list[Tensor], tops: Tensor, reverse: bool = False) -> list[Tensor]:
    """Add up in place along axis 1: entry i becomes Σ_{j<=i} e^(F_j − F_i) x_j, or with `reverse`
    Σ_{j>=i} e^(F_i − F_j) x_j. Each round doubles the number of entries summed."""
    reach = 1
    while reach < tops.shape[1]:
        factor = softmax_weights(tops[:, :-reach], tops[:, reach:])
        for x in sums:
            if reverse:
                x[:, :-reach] += factor * x[:, reach:]
            else:
                x[:, reach:] += factor * x[:, :-reach]
        reach *= 2
    return sums
