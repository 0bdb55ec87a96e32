"""tests/model/test_informer.py compares the heads with loops, mixed and not."""

import torch

from forecaster.attention import FullAttention, Place
from forecaster.attention.full import definition
from tests.attention.agreement import visible


def test_each_head_attends_on_its_own_features() -> None:
    attention = FullAttention(Place(6, 3, 5, 7)).double()
    query, context = torch.randn(2, 5, 6).double(), torch.randn(2, 7, 6).double()
    q = attention.query_projection(query)
    k, v = attention.key_projection(context), attention.value_projection(context)
    heads = []
    for h in range(3):
        one = (x[:, None, :, 2 * h : 2 * h + 2] for x in (q, k, v))
        heads.append(definition(*one, seen=visible(5, 7))[:, 0])
    want = attention.out_projection(torch.cat(heads, dim=2))
    torch.testing.assert_close(attention(query, context), want)
