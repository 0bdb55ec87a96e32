import pytest
import torch

from forecaster.model.embedding import Embedding, circular_conv, sinusoids

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


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.usefixtures("float64")
def test_the_convolution_ties_the_ends_together(length: int) -> None:
    torch.manual_seed(0)
    conv, x = circular_conv(3, 4), torch.randn(length, 3)
    wanted = naive.circular_conv({f"c.{k}": v for k, v in naive.weights(conv).items()}, "c", x)
    torch.testing.assert_close(conv(x.T[None])[0].T, wanted)


@pytest.mark.usefixtures("float64")
def test_the_embedding_is_the_sum_of_its_three_parts() -> None:
    torch.manual_seed(0)
    module = Embedding(columns=3, known=2, length=9, width=4, dropout=0.5).eval()
    values, calendar = torch.randn(2, 7, 3), torch.randn(2, 7, 2)
    w = {f"e.{key}": value for key, value in naive.weights(module).items()}
    for b in range(2):
        wanted = naive.embedding(w, "e", values[b], calendar[b])
        torch.testing.assert_close(module(values, calendar)[b], wanted)


def test_the_value_convolution_starts_with_the_variance_of_its_inputs_kept() -> None:
    torch.manual_seed(0)
    module = Embedding(columns=20, known=1, length=1, width=400, dropout=0.0)
    expected = (2 / 1.0001 / 60) ** 0.5  # Kaiming, fan in 20 * 3, leaky ReLU of slope 0.01
    assert module.value.weight.std().item() == pytest.approx(expected, rel=0.02)
