from typing import Any

import torch

from forecaster.attention import mixed_chunk_attention

from .agreement import inputs


def test_large_values_of_the_future_leave_no_rounding() -> None:
    sizes: dict[str, Any] = {"queries": 9, "keys": 9, "dtype": torch.float32}
    *quad, v = inputs(3, **sizes, value_width=5)
    tensors = [*quad, *inputs(3, **sizes, width=4, seed=1)[:2], v]
    late = [torch.cat([x[:, :, :4], 1e9 + x[:, :, 4:]], dim=2) for x in tensors]
    before, after = (mixed_chunk_attention(*x, chunk_size=3, causal=True) for x in (tensors, late))
    assert torch.equal(before[:, :, :4], after[:, :, :4])


def test_the_linear_path_is_summed_in_float32() -> None:
    ones = torch.ones(1, 1, 4096, 1, dtype=torch.bfloat16)  # bfloat16 is exact up to 256
    out = mixed_chunk_attention(0 * ones, ones, ones, ones, ones, linear_scale=1.0)
    assert (out == 4096).all()
