import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from forecaster.attention import Place, logsparse
from forecaster.attention.logsparse import (
    LogSparseAttention,
    log_sparse_offsets,
    log_sparse_pattern,
)

from .agreement import defined


@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 257])
def test_offsets_follow_the_formula_and_keep_their_bound(length: int) -> None:
    for sub_len, local_len in product([None, 1, 2, 7, 64, 300], [None, 1, 5, 40]):
        period = sub_len or length
        window = local_len or max(1, math.ceil(math.log2(period)))
        cells = {*range(window), *(window - 1 + 2**n for n in range(12))}
        got = log_sparse_offsets(length, sub_len, local_len)
        assert got == [d for d in range(length) if d % period in cells]
        assert len(got) <= math.ceil(length / period) * (window + math.ceil(math.log2(period)))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
def test_queries_and_keys_are_convolutions_over_time(causal: bool, kernel_size: int) -> None:
    torch.manual_seed(0)
    attention = LogSparseAttention(Place(6, 2, 11, 11), kernel_size=kernel_size).eval()
    x = torch.randn(3, 11, 6)
    before = kernel_size - 1 if causal else kernel_size // 2
    around = F.pad(x.mT, (before, kernel_size - 1 - before))
    q, k = (
        F.conv1d(around, own.weight, own.bias).mT
        for own in (attention.query_projection, attention.key_projection)
    )
    heads = (y.view(3, 11, 2, 3).transpose(1, 2) for y in (q, k, attention.value_projection(x)))
    out = defined(logsparse.definition)(*heads, causal=causal).transpose(1, 2).flatten(2)
    want = attention.out_projection(out)
    torch.testing.assert_close(attention(x, causal=causal), want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_plan_costs_less_than_a_dense_matrix(causal: bool) -> None:
    L = 8192
    pattern = log_sparse_pattern(L, causal=causal)
    height, reach, far = logsparse._plan(L, pattern)
    assert (height + 2 * reach, len(far)) == (96, 8 if causal else 16)
    dense = log_sparse_pattern(L, sub_len=8, causal=causal)  # 6 of every 8 distances
    assert logsparse._plan(L, dense)[2] == ()
