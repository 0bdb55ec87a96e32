"""The gradients are tested by logsparse, lsh, strided and fixed, with either kind of operators."""

import pytest
import torch

from forecaster.attention.common import tiles
from forecaster.attention.common.tiles import HIDDEN, merge, softmax_part
from tests.attention.agreement import inputs


def test_this_torch_has_the_private_operator() -> None:
    assert tiles._FORWARD is not None


@pytest.mark.parametrize("hidden_first", [False, True])
def test_a_hidden_part_adds_exactly_nothing(hidden_first: bool) -> None:
    q, k, v = (x.detach() for x in inputs(queries=5, keys=5))
    biases = (q.new_full((1, 1, 5, 5), each) for each in (0.0, HIDDEN))
    parts = [softmax_part(q, k, v, scale=0.7, bias=bias) for bias in biases]
    assert (parts[1][1] < HIDDEN / 2).all()
    (o1, z1), (o2, z2) = parts[::-1] if hidden_first else parts
    want = [x.clone() for x in parts[0]]
    merge(o1, z1, o2, z2)
    assert torch.equal(o1, want[0])
    assert torch.equal(z1, want[1])
