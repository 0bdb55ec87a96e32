import torch

from forecaster.attention import Place
from forecaster.attention.common.recurrence import Decay, ShortConvolution


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
