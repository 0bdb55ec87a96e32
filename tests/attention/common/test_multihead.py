import torch
from torch import Tensor

from forecaster.attention import FullAttention, Place
from forecaster.attention.full import definition
from tests.attention.agreement import visible

WIDTH, HEADS = 6, 3


def module(mix: bool = False) -> FullAttention:
    torch.manual_seed(0)
    return FullAttention(Place(WIDTH, HEADS, 5, 7, mix=mix)).double()


def by_head(attention: FullAttention, query: Tensor, context: Tensor) -> Tensor:
    """(B, L, H, E): each head alone, on its own slice of features."""
    q = attention.query_projection(query)
    k, v = attention.key_projection(context), attention.value_projection(context)
    width = WIDTH // HEADS
    heads = []
    for h in range(HEADS):
        own = slice(h * width, (h + 1) * width)
        one = (x[:, None, :, own] for x in (q, k, v))
        heads.append(definition(*one, seen=visible(5, 7))[:, 0])
    return torch.stack(heads, dim=2)


def test_each_head_attends_on_its_own_features() -> None:
    attention = module()
    query, context = torch.randn(2, 5, WIDTH).double(), torch.randn(2, 7, WIDTH).double()
    want = attention.out_projection(by_head(attention, query, context).flatten(2))
    torch.testing.assert_close(attention(query, context), want)


def test_mix_reads_heads_and_times_in_the_order_of_informer2020() -> None:
    attention = module(mix=True)
    query, context = torch.randn(2, 5, WIDTH).double(), torch.randn(2, 7, WIDTH).double()
    buffer = by_head(attention, query, context).transpose(2, 1).contiguous()  # B, H, L, E
    want = attention.out_projection(buffer.view(2, 5, WIDTH))
    torch.testing.assert_close(attention(query, context), want)
    assert not torch.allclose(want, module()(query, context))
