import pytest
import torch
from torch import Tensor

from forecaster.attention import mixed_chunk_attention, relu_squared_attention

from .agreement import inputs


def draws() -> list[Tensor]:
    """quad_q, quad_k, lin_q, lin_k (of another width) and v (of a third)."""
    quad_q, quad_k, v = inputs(3, queries=9, keys=9, value_width=5)
    return [quad_q, quad_k, *inputs(3, queries=9, keys=9, width=4, seed=1)[:2], v]


@pytest.mark.parametrize("causal", [False, True])
def test_one_chunk_without_the_linear_path_is_squared_relu(causal: bool) -> None:
    quad_q, quad_k, _, _, v = tensors = draws()
    out = mixed_chunk_attention(*tensors, chunk_size=9, causal=causal, linear_scale=0.0)
    torch.testing.assert_close(out, relu_squared_attention(quad_q, quad_k, v, causal=causal))


def test_large_values_of_the_future_leave_no_rounding() -> None:
    tensors = [x.float() for x in draws()]
    late = [torch.cat([x[:, :, :4], 1e9 + x[:, :, 4:]], dim=2) for x in tensors]
    before, after = (mixed_chunk_attention(*x, chunk_size=3, causal=True) for x in (tensors, late))
    assert torch.equal(before[:, :, :4], after[:, :, :4])


def test_the_linear_path_is_summed_in_float32() -> None:
    ones = torch.ones(1, 1, 4096, 1, dtype=torch.bfloat16)  # bfloat16 is exact up to 256
    out = mixed_chunk_attention(0 * ones, ones, ones, ones, ones, linear_scale=1.0)
    assert (out == 4096).all()


def test_float16_saturates() -> None:
    x = torch.full((1, 1, 8, 64), 300.0, dtype=torch.float16)
    assert (mixed_chunk_attention(x, x, x, x, x) == torch.finfo(torch.float16).max).all()
