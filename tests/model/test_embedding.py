"""test_informer.py compares the whole embedding with loops."""

import pytest
import torch

from forecaster.model.embedding import sinusoids

from . import naive


@pytest.mark.parametrize("width", [2, 6, 64])
def test_sinusoids_are_those_of_the_formula_even_far_out(width: int) -> None:
    table = sinusoids(20_001, width)
    assert table.dtype == torch.float32
    for t in (0, 1, 7, 4_999, 5_000, 20_000):
        wanted = torch.tensor([naive.position(t, d, width) for d in range(width)])
        torch.testing.assert_close(table[t], wanted, atol=1e-6, rtol=0)
