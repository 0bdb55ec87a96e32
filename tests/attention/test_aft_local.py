import pytest
import torch

from forecaster.attention import Place
from forecaster.attention.aft_local import AFTLocalAttention, aft_local_attention, definition

from .agreement import assert_defined, inputs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [127, 128, 129, 161])
def test_lengths_around_the_real_tiles(length: int, causal: bool) -> None:
    band = torch.randn(length, 63, generator=torch.Generator().manual_seed(2)).double()
    tensors = [*inputs(1, 2, length, length), band]
    assert_defined(aft_local_attention, definition, tensors, 1e-9, window=32, causal=causal)


@pytest.mark.parametrize(("length", "window"), [(1, 1), (1, 5), (4, 9), (9, 3), (10, 4), (23, 23)])
def test_the_factors_are_multiplied_where_the_band_is(length: int, window: int) -> None:
    attention = AFTLocalAttention(Place(6, 2, 23, 23), window=window)
    with torch.no_grad():
        a, b = attention.query_factors[:length], attention.key_factors[:length]
        band, products = attention.band_bias(length), a @ b.T
    assert band.shape == (length, 2 * window - 1)
    for t in range(length):
        for s in range(max(0, t - window + 1), min(length, t + window)):
            torch.testing.assert_close(band[t, s - t + window - 1], products[t, s])
