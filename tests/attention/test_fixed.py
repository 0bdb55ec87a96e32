from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    FixedAttention,
    Place,
    fixed,
    fixed_attention,
)
from forecaster.attention.fixed import FixedPattern

from .agreement import inputs


def holes(length: int) -> Tensor:
    """Three key masks: some keys hidden, the first half hidden, all hidden."""
    steps = torch.arange(length)
    return torch.stack([steps % 3 > 0, steps > length // 2, steps < 0])


def test_the_predicate_broadcasts() -> None:
    i, j = torch.arange(7)[:, None], torch.arange(7)
    assert FixedPattern(3, 1)(i, j)[4].tolist() == [False, False, True, True, True, False, False]
    assert FixedPattern(4, 1, causal=False, slot=1)(torch.tensor(0), torch.tensor(6))


def module(length: int = 23, **options: Any) -> FixedAttention:
    torch.manual_seed(0)
    return FixedAttention(Place(8, 4, length, length), **options)


def test_the_module_passes_its_options_on() -> None:
    attention = module(stride=6, summary=2, distinct_heads=True)
    q, k, v = (x.detach() for x in inputs(2, 4, 23, 23, 2, dtype=torch.float32))
    out = attention.attend(q, k, v, causal=False, key_mask=holes(23)[:2])
    want = fixed.definition(
        q.double(),
        k.double(),
        v.double(),
        stride=6,
        summary=2,
        causal=False,
        distinct_heads=True,
        key_mask=holes(23)[:2],
    )
    torch.testing.assert_close(out.double(), want, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("length", "stride", "summary"), [(1, 1, 1), (2, 1, 1), (84, 9, 1), (8192, 91, 11)]
)
def test_the_default_sizes_follow_from_the_length(length: int, stride: int, summary: int) -> None:
    attention = module(length)
    assert (attention.stride, attention.summary) == (stride, summary)


@pytest.mark.parametrize(
    ("stride", "summary", "message"),
    [
        (0, 1, "stride must be at least 1, got stride=0"),
        (3, 0, "summary must be at least 1, got summary=0"),
        (3, 4, "summary must be at most stride, got summary=4, stride=3"),
    ],
)
def test_refuses_impossible_sizes(stride: int, summary: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(stride=stride, summary=summary)
    with pytest.raises(ValueError, match=message):
        fixed_attention(*inputs(), stride=stride, summary=summary)
