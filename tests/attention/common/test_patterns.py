"""Masks of patterns, which are kept."""

import torch

from forecaster.attention.common.patterns import pattern_mask
from forecaster.attention.strided import StridedPattern


def test_a_mask_made_in_inference_serves_training_too() -> None:
    device = torch.device("cpu")
    with torch.inference_mode():
        mask = pattern_mask((StridedPattern(3),), 19, device)
    assert not mask.is_inference()
    assert pattern_mask((StridedPattern(3),), 19, device) is mask
    assert pattern_mask((StridedPattern(3, causal=False),), 19, device) is not mask
