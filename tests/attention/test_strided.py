from typing import Any

import pytest
import torch

from forecaster.attention import Place, StridedAttention, strided
from forecaster.attention.strided import StridedPattern

from .agreement import defined, inputs


def test_the_predicate_broadcasts() -> None:
    i, j = torch.arange(7)[:, None], torch.arange(7)
    assert StridedPattern(3)(i, j)[5].tolist() == [False, False, True, True, True, True, False]
    assert StridedPattern(3, causal=False, keys="column")(torch.tensor(5), torch.tensor(2))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "depth", "patterns"),
    [
        ("merged", 1, ["merged"] * 4),
        ("interleaved", 0, ["local"] * 4),
        ("interleaved", 1, ["column"] * 4),
        ("split", 0, ["local", "local", "column", "column"]),
    ],
)
def test_heads_share_the_sets_out(heads: Any, depth: int, patterns: Any, causal: bool) -> None:
    attention = StridedAttention(Place(8, 4, 23, 23, depth), heads=heads, stride=4)
    q, k, v = inputs(2, 4, 23, 23, 2)
    seen = {"causal": causal, "key_mask": torch.arange(23).expand(2, 23) % 3 > 0}
    out = attention.attend(q, k, v, **seen)
    for h, pattern in enumerate(patterns):
        one = (x[:, h : h + 1] for x in (q, k, v))
        want = defined(strided.definition)(*one, stride=4, pattern=pattern, **seen)
        torch.testing.assert_close(out[:, h : h + 1], want, atol=1e-6, rtol=1e-4)
