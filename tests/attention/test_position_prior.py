import torch

from forecaster.attention import (
    Place,
    PositionPriorAttention,
    full_attention,
    position_prior_attention,
    static_attention,
)

from .agreement import inputs


def test_it_is_static_for_queries_of_0_and_full_for_a_table_of_0() -> None:
    q, k, v = inputs(queries=5, keys=9)
    A = torch.randn(2, 5, 9).double()
    out = position_prior_attention(0 * q, k, v, torch.nn.functional.softplus(A).log())
    torch.testing.assert_close(out, static_attention(v, A))
    torch.testing.assert_close(position_prior_attention(q, k, v, 0 * A), full_attention(q, k, v))


def test_the_module_starts_as_full_attention_and_learns_its_table() -> None:
    module = PositionPriorAttention(Place(12, 2, 7, 7)).double()
    q, k, v = inputs(width=6)
    seen = {"causal": True, "key_mask": None}
    torch.testing.assert_close(module.attend(q, k, v, **seen), full_attention(q, k, v, causal=True))
    torch.nn.init.normal_(module.alpha)
    want = position_prior_attention(q, k, v, module.alpha, causal=True)
    torch.testing.assert_close(module.attend(q, k, v, **seen), want)
