"""The parts of the definitions, against torch's own attention."""

import torch

from forecaster.attention.common.definitions import biased_mean
from tests.attention.agreement import inputs, visible


def test_a_biased_mean_is_attention_with_the_same_scores_for_each_feature() -> None:
    _, k, v = inputs(1, 1, queries=4, keys=4)
    w, seen = torch.randn(1, 4, 4).double(), visible(4, 4, True)
    out = biased_mean(k, v, w, seen)
    for e in range(3):
        scores = (k[..., e] + w).masked_fill(~seen[0], -torch.inf)
        torch.testing.assert_close(out[0, ..., e], (scores.softmax(2) @ v[0, ..., e, None])[..., 0])
