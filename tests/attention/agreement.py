"""Compare a fast function with its slow definition, forward and backward."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

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
