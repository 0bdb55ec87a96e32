import pytest
import torch

from forecaster.attention import Place, aft_attention, aft_simple_attention
from forecaster.attention.aft_local import AFTLocalAttention, aft_local_attention, definition

from .agreement import assert_agree, defined, inputs

both = pytest.mark.parametrize("causal", [False, True])


@both
@pytest.mark.parametrize("length", [127, 128, 129, 161])
def test_lengths_around_the_real_tiles(length: int, causal: bool) -> None:
    band = torch.randn(length, 63, generator=torch.Generator().manual_seed(2)).double()
    assert_agree(
        lambda *x: aft_local_attention(*x, window=32, causal=causal),
        lambda *x: defined(definition)(*x, window=32, causal=causal),
        [*inputs(1, 2, length, length), band],
        1e-9,
    )


@both
def test_its_limits_are_aft_simple_and_aft_full(causal: bool) -> None:
    tensors = inputs(queries=9, keys=9)
    narrow = aft_local_attention(*tensors, torch.zeros(9, 1).double(), window=1, causal=causal)
    torch.testing.assert_close(narrow, aft_simple_attention(*tensors, causal=causal))
    w = torch.randn(9, 9).double()
    band = torch.zeros(9, 17).double()
    for t in range(9):
        band[t, 8 - t : 17 - t] = w[t]
    wide = aft_local_attention(*tensors, band, window=9, causal=causal)
    torch.testing.assert_close(wide, aft_attention(*tensors, w, causal=causal))


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
