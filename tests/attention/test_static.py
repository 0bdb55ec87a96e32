import sys

import pytest
import torch

from forecaster.attention import static_attention
from forecaster.attention.static import LONGEST
from forecaster.base.machine import memory_rise

from .agreement import inputs

both = pytest.mark.parametrize("causal", [False, True])


@both
def test_a_row_without_weight_is_zero(causal: bool) -> None:
    v = inputs(3, dtype=torch.float32)[2]
    lost = torch.full((2, 7, 7), -200.0, requires_grad=True)
    out = static_attention(v, lost, causal=causal)
    assert torch.equal(out, torch.zeros_like(out))
    gradients = torch.autograd.grad(out.sum(), (v, lost))
    assert all(torch.equal(each, torch.zeros_like(each)) for each in gradients)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@both
def test_a_batch_shares_its_weights(causal: bool) -> None:
    """There is never a matrix for each of 16 series: forward, backward and A need five in all."""

    def run(length: int) -> None:
        v = torch.randn(16, 1, length, 4, requires_grad=True)
        A = torch.zeros(1, length, length, requires_grad=True)
        mask = torch.arange(length) < torch.arange(1, 17)[:, None]
        static_attention(v, A, causal=causal, key_mask=mask).sum().backward()

    run(64)
    matrix = LONGEST * LONGEST * 4
    assert memory_rise(lambda: run(LONGEST), "cpu")[1] < 8 * matrix
