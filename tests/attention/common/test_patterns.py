"""FlexAttention on a CPU has a forward pass alone; the GPU tests run both."""

import pytest
import torch

from forecaster.attention.common import patterns
from forecaster.attention.common.patterns import pattern_mask
from forecaster.attention.fixed import FixedPattern
from forecaster.attention.logsparse import log_sparse_pattern
from forecaster.attention.strided import StridedPattern
from tests.attention.agreement import run


def test_a_mask_made_in_inference_serves_training_too() -> None:
    device = torch.device("cpu")
    with torch.inference_mode():
        mask = pattern_mask((StridedPattern(3),), 19, device)
    assert not mask.is_inference()
    assert pattern_mask((StridedPattern(3),), 19, device) is mask
    assert pattern_mask((StridedPattern(3, causal=False),), 19, device) is not mask


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [100, 400])
def test_a_mask_of_blocks_is_that_of_torch(length: int, causal: bool) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    device = torch.device("cpu")
    for pattern in (
        StridedPattern(20, causal),
        FixedPattern(20, 6, causal),
        log_sparse_pattern(length, causal=causal),
    ):
        with torch.inference_mode():
            made = patterns._block_mask(pattern, length, device)
        wanted = create_block_mask(
            lambda batch, head, i, j, pattern=pattern: pattern(i, j),
            *(None, None, length, length),
            device="cpu",
        )
        assert made.seq_lengths == wanted.seq_lengths
        for side in ("kv", "q"):
            for kind in (side, f"full_{side}"):
                for part in ("num_blocks", "indices"):
                    mask, same = (getattr(x, f"{kind}_{part}") for x in (made, wanted))
                    assert torch.equal(mask, same)
                    assert mask.dtype == same.dtype
                    assert not mask.is_inference(), "it serves training, too"


PROGRAM = """
import torch

from forecaster.attention.fixed import FixedPattern
from forecaster.attention.common.patterns import flex_pattern
from forecaster.attention.logsparse import log_sparse_pattern
from forecaster.attention.strided import StridedPattern

generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(2, 2, 150, 16, generator=generator) for _ in range(3))
steps = torch.arange(150)
for causal in (False, True):
    for pattern in (
        StridedPattern(11, causal, "merged"),
        StridedPattern(11, causal, "column"),
        FixedPattern(11, 2, causal, 0),
        log_sparse_pattern(150, 40, 5, 10, causal),
    ):
        scores = (0.3 * q @ k.mT).masked_fill(~pattern(steps[:, None], steps), -torch.inf)
        out = flex_pattern(q, k, v, pattern, 0.3)
        torch.testing.assert_close(out, scores.softmax(3) @ v, atol=1e-5, rtol=1e-5)
        print(pattern)
"""


@pytest.mark.slow
def test_sees_what_the_patterns_show() -> None:
    assert len(run(PROGRAM)) == 8
