"""Compare a fast function with its slow definition, forward and backward."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from forecaster.attention import Attention

Core = Callable[..., Tensor]


def inputs(
    batch: int = 2,
    heads: int = 2,
    queries: int = 7,
    keys: int = 7,
    width: int = 3,
    value_width: int | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k, v that require gradients, laid out as heads split from (B, L, H*E)."""
    generator = torch.Generator().manual_seed(seed)

    def draw(length: int, size: int) -> Tensor:
        x = torch.randn(batch, length, heads, size, generator=generator, dtype=torch.float64)
        return x.to(dtype).transpose(1, 2).requires_grad_()

    return draw(queries, width), draw(keys, width), draw(keys, value_width or width)


def visible(L: int, S: int, causal: bool = False, key_mask: Tensor | None = None) -> Tensor:
    """Which keys each query sees: the real ones, and if `causal` none after it."""
    seen = torch.ones(1, 1, L, S, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    return seen if key_mask is None else seen & key_mask[:, None, None]


def defined(definition: Core) -> Core:
    """A definition that takes `causal` and `key_mask`, as its function does."""
    signature = inspect.signature(definition)

    def core(
        *tensors: Tensor, causal: bool = False, key_mask: Tensor | None = None, **options: Any
    ) -> Tensor:
        given = signature.bind_partial(*tensors, **options).arguments
        keys = given["v"].shape[2]
        queries = given["A"].shape[1] if "A" in given else next(iter(given.values())).shape[2]
        if "causal" in signature.parameters:
            options["causal"] = causal
        return definition(*tensors, seen=visible(queries, keys, causal, key_mask), **options)

    return core


def value_and_gradients(core: Core, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The output and the gradients of a loss that weighs every element differently."""
    tensors = [x.detach().requires_grad_() for x in tensors]
    out = core(*tensors)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    gradients = torch.autograd.grad(
        (out * weights).sum(), tensors, allow_unused=True, materialize_grads=True
    )
    return [out.detach(), *gradients]


def assert_agree(fast: Core, slow: Core, tensors: Sequence[Tensor], tolerance: float) -> None:
    """`fast` in the given type equals `slow` in float64, relative to the largest element."""
    got = value_and_gradients(fast, tensors)
    want = value_and_gradients(slow, [x.detach().double() for x in tensors])
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape
        error = (x.double() - y).abs().max()
        assert error <= tolerance * y.abs().max().clamp(min=1.0), f"error {error:.1e}"


def assert_is(module: Attention, formula: Core) -> None:
    """A module in float64 equals a formula of its query and context, at its place, masked."""
    place = module.place
    seen = {"causal": place.causal, "key_mask": torch.rand(2, place.key_length) > 0.3}
    lengths = (place.query_length, place.key_length)
    x, y = (torch.randn(2, length, place.width).double() for length in lengths)
    own = partial(module, **seen)
    if place.role == "cross":
        assert_agree(own, partial(formula, **seen), [x, y], 1e-9)
    else:
        assert_agree(own, lambda x: formula(x, x, **seen), [x], 1e-9)


def projected(
    module: Any, x: Tensor, y: Tensor, heads: int = 1, value: Core | None = None
) -> list[Tensor]:
    """q of x, and k and v of y, (B, H, L, E), from the projections of a module."""
    value = value or module.value_projection
    made = module.query_projection(x), module.key_projection(y), value(y)
    return [each.unflatten(2, (heads, -1)).transpose(1, 2) for each in made]


def run(program: str, *arguments: str) -> list[str]:
    """The lines that a program prints in a process of its own, where no check of shapes stands
    before a tracer. Fails when the program does."""
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
