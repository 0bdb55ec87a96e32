from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    Place,
    StridedAttention,
    strided,
    strided_attention,
)
from forecaster.attention.strided import StridedPattern

from .agreement import inputs


def holes(length: int) -> Tensor:
    """Three key masks: some keys hidden, the first half hidden, all hidden."""
    steps = torch.arange(length)
    return torch.stack([steps % 3 > 0, steps > length // 2, steps < 0])


def test_refuses_an_impossible_stride() -> None:
    for build in (lambda: module(stride=0), lambda: strided_attention(*inputs(), stride=0)):
        with pytest.raises(ValueError, match="stride must be at least 1, got stride=0"):
            build()


def test_the_predicate_broadcasts() -> None:
    i, j = torch.arange(7)[:, None], torch.arange(7)
    assert StridedPattern(3)(i, j)[5].tolist() == [False, False, True, True, True, True, False]
    assert StridedPattern(3, causal=False, keys="column")(torch.tensor(5), torch.tensor(2))


def module(heads: Any = "merged", depth: int = 0, **options: Any) -> StridedAttention:
    torch.manual_seed(0)
    return StridedAttention(Place(8, 4, 23, 23, depth), heads=heads, **options)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "depth", "patterns"),
    [
        ("merged", 1, ["merged"] * 4),
        ("interleaved", 0, ["local"] * 4),
        ("interleaved", 1, ["column"] * 4),
        ("interleaved", 2, ["local"] * 4),
        ("split", 0, ["local", "local", "column", "column"]),
    ],
)
def test_heads_share_the_sets_out(
    heads: Any, depth: int, patterns: list[str], causal: bool
) -> None:
    attention = module(heads, depth, stride=4)
    q, k, v = (x.detach() for x in inputs(2, 4, 23, 23, 2, dtype=torch.float32))
    out = attention.attend(q, k, v, causal=causal, key_mask=holes(23)[:2])
    for h, pattern in enumerate(patterns):
        one = (x[:, h : h + 1].double() for x in (q, k, v))
        want = strided.definition(
            *one, stride=4, causal=causal, pattern=pattern, key_mask=holes(23)[:2]
        )
        torch.testing.assert_close(out[:, h : h + 1].double(), want, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("length", "stride"), [(1, 1), (2, 1), (84, 9), (8192, 91)])
def test_the_default_stride_is_the_root_of_the_length(length: int, stride: int) -> None:
    assert StridedAttention(Place(8, 4, length, length)).stride == stride


def test_one_head_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="needs at least 2 heads, got 1"):
        StridedAttention(Place(8, 1, 23, 23), heads="split")
