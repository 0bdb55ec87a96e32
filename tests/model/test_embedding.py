"""test_informer.py compares the whole embedding with loops."""

import pytest
import torch

from forecaster.model.embedding import Embedding, sinusoids

from . import naive


@pytest.mark.parametrize("width", [2, 6, 64])
def test_sinusoids_are_those_of_the_formula_even_far_out(width: int) -> None:
    table = sinusoids(20_001, width)
    assert table.dtype == torch.float32
    for t in (0, 1, 7, 4_999, 5_000, 20_000):
        wanted = torch.tensor([naive.position(t, d, width) for d in range(width)])
        torch.testing.assert_close(table[t], wanted, atol=1e-6, rtol=0)


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even width, got width=7"):
        sinusoids(5, 7)


def test_the_value_convolution_starts_with_the_variance_of_its_inputs_kept() -> None:
    torch.manual_seed(0)
    module = Embedding(columns=20, known=1, length=1, width=400, dropout=0.0)
    expected = (2 / 1.0001 / 60) ** 0.5  # Kaiming, fan in 20 * 3, leaky ReLU of slope 0.01
    assert module.value.weight.std().item() == pytest.approx(expected, rel=0.02)
