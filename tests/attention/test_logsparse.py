import math
from itertools import product

import pytest
import torch
from torch import Tensor

from forecaster.attention import Place, logsparse
from forecaster.attention.logsparse import (
    LogSparseAttention,
    log_sparse_attention,
    log_sparse_offsets,
    log_sparse_pattern,
)

from .agreement import assert_defined, defined, inputs

both_directions = pytest.mark.parametrize("causal", [True, False])


@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 257])
def test_offsets_follow_the_formula_and_keep_their_bound(length: int) -> None:
    for sub_len, local_len in product([None, 1, 2, 7, 64, 300], [None, 1, 5, 40]):
        period = sub_len or length
        window = local_len or max(1, math.ceil(math.log2(period)))
        cells = {*range(window), *(window - 1 + 2**n for n in range(12))}
        got = log_sparse_offsets(length, sub_len, local_len)
        assert got == [d for d in range(length) if d % period in cells]
        assert len(got) <= math.ceil(length / period) * (window + math.ceil(math.log2(period)))


@both_directions
def test_tiles_of_full_size_equal_the_definition(causal: bool) -> None:
    mask = torch.rand(2, 389, generator=torch.Generator().manual_seed(2)) > 0.3
    for options in ({}, {"sub_len": 40, "dense_prefix": 70}):
        options = {**options, "causal": causal, "key_mask": mask}
        tensors = inputs(2, 2, 389, 389)
        assert_defined(log_sparse_attention, logsparse.definition, tensors, 1e-9, **options)


@both_directions
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
def test_queries_and_keys_are_convolutions_over_time(causal: bool, kernel_size: int) -> None:
    torch.manual_seed(0)
    attention = LogSparseAttention(Place(6, 2, 11, 11), kernel_size=kernel_size).eval()
    x = torch.randn(3, 11, 6)
    before = kernel_size - 1 if causal else kernel_size // 2

    def convolved(convolution: torch.nn.Module) -> Tensor:
        weight, bias = convolution.weight, convolution.bias
        steps = []
        for t in range(11):
            step = bias.expand(3, 6)
            for n in range(kernel_size):
                if 0 <= t - before + n < 11:
                    step = step + x[:, t - before + n] @ weight[:, :, n].T
            steps.append(step)
        return torch.stack(steps, dim=1).view(3, 11, 2, 3).transpose(1, 2)

    q, k = convolved(attention.query_projection), convolved(attention.key_projection)
    v = attention.value_projection(x).view(3, 11, 2, 3).transpose(1, 2)
    out = defined(logsparse.definition)(q, k, v, causal=causal).transpose(1, 2).flatten(2)
    torch.testing.assert_close(
        attention(x, causal=causal), attention.out_projection(out), atol=1e-5, rtol=1e-4
    )


@both_directions
def test_plan_costs_less_than_a_dense_matrix(causal: bool) -> None:
    L = 8192
    pattern = log_sparse_pattern(L, causal=causal)
    height, reach, far = logsparse._plan(L, pattern)
    assert (height + 2 * reach, len(far)) == (96, 8 if causal else 16)
    dense = log_sparse_pattern(L, sub_len=8, causal=causal)  # 6 of every 8 distances
    assert logsparse._plan(L, dense)[2] == ()
