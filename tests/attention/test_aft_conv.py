import pytest
import torch

from forecaster.attention.aft_conv import AFTConvAttention, aft_conv_kernel
from forecaster.attention.base import Place


def test_the_kernel_is_normalised_then_scaled() -> None:
    raw = torch.randn(3, 9, generator=torch.Generator().manual_seed(0)).double()
    gain, offset = torch.tensor([[0.5, -2.0, 0.0], [1.0, 3.0, -4.0]]).double()
    kernel = aft_conv_kernel(raw, gain, offset)
    torch.testing.assert_close(kernel.mean(1), offset)
    torch.testing.assert_close(kernel.std(1, correction=0), gain.abs(), rtol=1e-4, atol=0)


def test_only_a_decoder_may_have_an_even_window() -> None:
    decoder = AFTConvAttention(Place(6, 2, 7, 7, role="decoder"), window=8)
    series = torch.randn(2, 7, 6)
    assert decoder(series, causal=True).shape == series.shape
    with pytest.raises(ValueError, match="window=8"):
        decoder(series)
