import pytest
import torch

from forecaster.attention import Place
from forecaster.attention.aft_local import AFTLocalAttention


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
