import torch

from forecaster.attention import FixedAttention, Place, fixed
from forecaster.attention.fixed import FixedPattern

from .agreement import defined, inputs


def test_the_predicate_broadcasts() -> None:
    i, j = torch.arange(7)[:, None], torch.arange(7)
    assert FixedPattern(3, 1)(i, j)[4].tolist() == [False, False, True, True, True, False, False]
    assert FixedPattern(4, 1, causal=False, slot=1)(torch.tensor(0), torch.tensor(6))


def test_the_module_passes_its_options_on() -> None:
    options = {"stride": 6, "summary": 2, "distinct_heads": True}
    attention = FixedAttention(Place(8, 4, 23, 23), **options)
    q, k, v = inputs(2, 4, 23, 23, 2)
    seen = {"causal": False, "key_mask": torch.arange(23).expand(2, 23) % 3 > 0}
    want = defined(fixed.definition)(q, k, v, **options, **seen)
    torch.testing.assert_close(attention.attend(q, k, v, **seen), want, atol=1e-6, rtol=1e-4)
