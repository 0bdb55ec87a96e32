import math

import pytest
import torch

from forecaster.attention import Place, gated_delta_attention, state_space_attention
from forecaster.attention.common.recurrence import Decay, ShortConvolution
from tests.attention.agreement import inputs


def test_the_heads_begin_with_reaches_up_to_the_series() -> None:
    decay = Decay(Place(6, 3, 64, 64))
    log_decay, step = decay(torch.randn(2, 5, 6))
    torch.testing.assert_close(step, torch.full_like(step, 0.1))
    torch.testing.assert_close(log_decay[0, :, 0], -torch.tensor([1 / 4, 1 / 16, 1 / 64]))


def test_a_convolution_reads_its_taps_and_no_hidden_step() -> None:
    conv = ShortConvolution(1, 4)
    for causal, reach in ((True, [2, 3, 4, 5]), (False, [3, 4, 5, 6])):
        x = torch.randn(1, 9, 1, requires_grad=True)
        (seen,) = torch.autograd.grad(conv(x, causal, None)[0, 5, 0], x)
        assert seen[0, :, 0].nonzero()[:, 0].tolist() == reach
        mask = torch.arange(9)[None] != 4
        (seen,) = torch.autograd.grad(conv(x, causal, mask)[0, 5, 0], x)
        assert seen[0, :, 0].nonzero()[:, 0].tolist() == [n for n in reach if n != 4]


@pytest.mark.parametrize("rule", ["sum", "delta"])
def test_a_step_may_forget_all(rule: str) -> None:
    q, k, v = inputs(queries=60, keys=60)
    log_decay = torch.full((2, 2, 60), -0.01, dtype=torch.float64)
    log_decay[:, :, 50] = -math.inf
    beta = torch.full((2, 2, 60), 0.5, dtype=torch.float64)
    attend, gates = state_space_attention, [log_decay]
    if rule == "delta":
        attend, gates, k = gated_delta_attention, [log_decay, beta], k / k.norm(dim=3, keepdim=True)
    out = attend(q, k, v, *gates, causal=True)
    after = attend(*(x[:, :, 50:] for x in (q, k, v, *gates)), causal=True)
    torch.testing.assert_close(out[:, :, 50:], after)
    assert torch.autograd.grad(out.sum(), q)[0].isfinite().all()


def test_what_a_masked_step_holds_does_not_matter() -> None:
    q, k, v = inputs(queries=60, keys=60)
    k = k / k.norm(dim=3, keepdim=True)
    gates = [torch.full((2, 2, 60), x, dtype=torch.float64) for x in (-0.01, 0.5)]
    mask = (torch.arange(60) != 10).expand(2, 60)
    real = gated_delta_attention(q, k, v, *gates, key_mask=mask)[:, :, mask[0]]
    for x in (k := k.detach().clone(), v := v.detach().clone(), *gates):
        x[:, :, 10] = math.nan
    out = gated_delta_attention(q, k, v, *gates, key_mask=mask)[:, :, mask[0]]
    torch.testing.assert_close(out, real)
