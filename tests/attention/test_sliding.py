import torch

from forecaster.attention import Place, SlidingAttention, sliding_attention
from forecaster.attention.sliding import definition

from .agreement import defined, inputs


def test_the_module_has_its_window_and_sinks() -> None:
    module = SlidingAttention(Place(8, 2, 23, 23), window=3, sinks=2)
    q, k, v = inputs(2, 2, 23, 23, 4)
    for causal in (False, True):
        out = module.attend(q, k, v, causal=causal, key_mask=None)
        want = defined(definition)(q, k, v, window=3, sinks=2, causal=causal)
        torch.testing.assert_close(out, want)


def test_a_step_sees_its_window_and_the_sinks_in_long_series() -> None:
    v = inputs(1, 1, 1500, 1500, 4, dtype=torch.float32)[2]
    zero = torch.zeros_like(v)
    for causal in (False, True):
        out = sliding_attention(zero, zero, v, window=100, sinks=3, causal=causal)
        (seen,) = torch.autograd.grad(out[0, 0, 1000].sum(), v)
        steps = seen[0, 0, :, 0].nonzero()[:, 0].tolist()
        assert steps == [0, 1, 2, *range(901, 1001 if causal else 1100)]
