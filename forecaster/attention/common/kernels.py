"""Pieces shared by several mechanisms: argument checks, the fused softmax kernel, prefix sums,
and how much to compute at a time, so that it stays in a CPU's cache."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.base.shapes import Bool, Float

_BLOCK = 32  # steps per triangular matmul of a prefix sum; only speed and rounding depend on it


def outside_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, marked while torch.compile runs so that it is called and not traced."""
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


def at_least_one(**arguments: float | int) -> None:
    """Raise ValueError naming the first argument that is below 1."""
    for name, value in arguments.items():
        if not value >= 1:  # nan neither
            raise ValueError(f"{name} must be at least 1, got {name}={value}")


def check_probability(**arguments: float) -> float:
    """Return the given argument. Raises ValueError naming it unless 0 <= value < 1."""
    ((name, value),) = arguments.items()
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1, got {name}={value}")
    return value


def check_one_of(kind: object, **arguments: str) -> None:
    """Raise ValueError naming the first argument whose value is not in the Literal `kind`."""
    for name, value in arguments.items():
        if value not in get_args(kind):
            known = ", ".join(map(repr, get_args(kind)))
            raise ValueError(f"{name} must be one of {known}, got {value!r}")


def check_inputs(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, key_mask: Tensor | None = None
) -> None:
    """Raise ValueError, naming the shapes, unless q, k, v and the mask fit each other."""
    shapes = f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"q, k and v must be (batch, heads, length, width), {shapes}")
    if not q.shape[:2] == k.shape[:2] == v.shape[:2]:
        raise ValueError(f"q, k and v must agree in batch and heads, {shapes}")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k must have the same width, {shapes}")
    if k.shape[2] != v.shape[2]:
        raise ValueError(f"k and v must have the same length, {shapes}")
    check_visibility(q.shape[0], q.shape[2], k.shape[2], causal, key_mask)


def check_self_inputs(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, key_mask: Tensor | None
) -> None:
    """`check_inputs`, and raise ValueError unless there are as many keys as queries."""
    check_inputs(q, k, v, causal, key_mask)
    if q.shape[2] != k.shape[2]:
        raise ValueError(
            "the mechanism relates a series to itself and needs as many keys as queries, got "
            f"{q.shape[2]} queries, {k.shape[2]} keys"
        )


def check_visibility(
    batch: int, queries: int, keys: int, causal: bool, key_mask: Tensor | None
) -> None:
    """Raise ValueError unless `causal` and `key_mask` fit the sizes."""
    if causal and queries != keys:
        raise ValueError(
            f"causal attention needs as many keys as queries, got {queries} queries, {keys} keys"
        )
    if key_mask is None:
        return
    if key_mask.dtype != torch.bool or key_mask.shape != (batch, keys):
        raise ValueError(
            f"key_mask must be bool of shape (batch, keys) = {(batch, keys)}, True for a real "
            f"observation, got {key_mask.dtype} of shape {tuple(key_mask.shape)}"
        )


def softmax_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    *,
    visible: Bool[Tensor, "#B #H #L S"] | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    may_be_empty: bool = True,
) -> Float[Tensor, "B H L Ev"]:
    """One call of the fused kernel; `visible` (True: takes part) and `causal` exclude each other.

    A row that sees nothing is 0 and passes no gradient on; `may_be_empty=False` promises that there
    is none. Unequal widths are padded with zeros, because torch would otherwise build the L x S
    matrix.
    """
    width, value_width = q.shape[3], v.shape[3]
    scale = width**-0.5 if scale is None else scale
    if width < value_width:
        q, k = (F.pad(x, (0, value_width - width)) for x in (q, k))
    else:
        v = F.pad(v, (0, width - value_width)) if width > value_width else v
    empty = None
    if visible is not None and may_be_empty:
        # An empty row sees everything inside the kernel: back ends treat a row of -inf differently,
        # and it must never become NaN, not even in the gradient.
        empty = ~visible.any(dim=-1, keepdim=True)
        visible = visible | empty
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=visible, is_causal=causal, scale=scale, dropout_p=dropout_p
    )
    if empty is not None:
        out = out.masked_fill(empty, 0.0)
    return out[..., :value_width]


def visible_keys(causal: bool, key_mask: Tensor | None) -> Tensor | None:
    """The (B, 1, 1 or S, S) bool mask of a padded batch, None when there is nothing to mask.

    On a CPU a mask without False counts as none, because the unmasked kernel is faster. On a GPU
    the check would make the host wait for the device, and a trace has no values to check.
    """
    if key_mask is None:
        return None
    looks = key_mask.device.type == "cpu" and not torch.compiler.is_compiling()
    if looks and bool(key_mask.all()):
        return None
    visible = key_mask[:, None, None, :]
    if causal:
        steps = torch.arange(key_mask.shape[1], device=key_mask.device)
        visible = visible & (steps <= steps[:, None])
    return visible


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums are taken: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def empty_heads_last(x: Tensor) -> Tensor:
    """An empty tensor like x (B, H, L, E), with the memory layout that projections produce."""
    return x.new_empty(x.transpose(1, 2).shape).transpose(1, 2)


def prefix_sum(x: Float[Tensor, "B H L E"], reverse: bool = False) -> Float[Tensor, "B H L E"]:
    """Sum over the steps up to (`reverse`: from) each step, in float32 at least.

    On a CPU it uses triangular matmuls over blocks, faster than `cumsum` along an inner axis.
    """
    x = x.to(accumulator(x.dtype))
    if x.device.type != "cpu":
        return x.flip(2).cumsum(2).flip(2) if reverse else x.cumsum(2)
    if torch.compiler.is_exporting():
        return _prefix_sum(x, reverse)
    sums: Tensor = _PrefixSum.apply(x, reverse)  # type: ignore[no-untyped-call]
    return sums


class _PrefixSum(torch.autograd.Function):
    """The gradient is the sum in the other direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, reverse: bool) -> Tensor:
        ctx.reverse = reverse
        return _prefix_sum(x, reverse)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return prefix_sum(grad, not ctx.reverse), None


def _prefix_sum(x: Tensor, reverse: bool) -> Tensor:
    B, H, L, E = x.shape
    blocks = math.ceil(L / _BLOCK)
    size = math.ceil(L / blocks)
    x = x.transpose(1, 2).reshape(B, L, H * E)
    if blocks * size > L:
        x = F.pad(x, (0, 0, 0, blocks * size - L))
    triangle = torch.ones(size, size, dtype=x.dtype)
    triangle = triangle.triu_() if reverse else triangle.tril_()
    with torch.autocast("cpu", enabled=False):
        sums = triangle @ x.view(B, blocks, size, H * E)
    if reverse:
        sums[:, :-1] += sums[:, 1:, :1].flip(1).cumsum(1).flip(1)
    else:
        sums[:, 1:] += sums[:, :-1, -1:].cumsum(1)
    return sums.view(B, blocks * size, H, E)[:, :L].transpose(1, 2)


def visible_sum(v: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    """The sum of the visible values, in float32 at least.

    v (B, H, S, Ev) -> (B, H, 1, Ev), or (B, H, S, Ev), one sum per step, when causal.
    """
    if key_mask is not None:
        v = v.masked_fill(~key_mask[:, None, :, None], 0.0)
    return prefix_sum(v) if causal else v.sum(dim=2, keepdim=True, dtype=accumulator(v.dtype))


def visible_count(v: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    """How many values each entry of `visible_sum` adds, 1 instead of 0; broadcasts to it."""
    kind = accumulator(v.dtype)
    if key_mask is None:  # by one kernel
        first = 1 if causal else v.shape[2]
        return torch.arange(first, v.shape[2] + 1, dtype=kind, device=v.device)[:, None]
    count = key_mask.cumsum(1) if causal else key_mask.sum(1, keepdim=True)
    return count.clamp(min=1).to(kind)[:, None, :, None]


def visible_mean(v: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    """The mean of the visible values, as `visible_sum`; 0 if there are none."""
    if not causal and key_mask is None:  # by one kernel
        return v.mean(dim=2, keepdim=True, dtype=accumulator(v.dtype))
    return visible_sum(v, causal, key_mask) / visible_count(v, causal, key_mask)


def at_once(x: Tensor, on_cpu: int, numbers: int = 1) -> int:
    """How many scores to compute at a time, if each takes so many numbers in 32 bits.

    On a CPU `on_cpu`, which stay in its cache; on a GPU as many as a 32nd of its memory holds,
    because each tile waits for its launches.
    """
    if x.device.type == "cpu":
        return on_cpu
    memory: int = torch.cuda.get_device_properties(x.device).total_memory
    return max(on_cpu, memory // (32 * 4 * numbers))


def cuts(total: int, size: int, start: int = 0) -> list[slice]:
    """Slices of `size` numbers, the last one shorter, that together hold those from `start` on."""
    return [slice(i, min(i + size, total)) for i in range(start, total, size)]


def slices(series: int, heads: int, size: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of the series and of their heads that together hold about `most` numbers.

    One head of one series holds `size` numbers. A slice has several series only if it has all
    heads, and never less than one head of one series. In an export, which must work for any number
    of series, one slice holds all.
    """
    if torch.compiler.is_exporting():
        yield slice(None), slice(None)
        return
    pairs = max(1, most // size)
    some_series, some_heads = max(1, pairs // heads), min(heads, pairs)
    yield from product(cuts(series, some_series), cuts(heads, some_heads))
