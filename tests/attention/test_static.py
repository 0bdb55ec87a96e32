import sys

import pytest
import torch

from forecaster.attention import (
    MeanAttention,
    Place,
    StaticAttention,
    full_attention,
    mean_attention,
    static_attention,
)
from forecaster.attention.static import LONGEST

from .agreement import inputs
from .memory import peak_mib

both = pytest.mark.parametrize("causal", [False, True])


@both
def test_a_row_without_weight_is_zero(causal: bool) -> None:
    v = inputs(3, dtype=torch.float32)[2]
    lost = torch.full((2, 7, 7), -200.0, requires_grad=True)
    out = static_attention(v, lost, causal=causal)
    assert torch.equal(out, torch.zeros_like(out))
    gradients = torch.autograd.grad(out.sum(), (v, lost))
    assert all(torch.equal(each, torch.zeros_like(each)) for each in gradients)


@both
def test_equal_scores_make_mean_attention(causal: bool) -> None:
    q, k, v = inputs(queries=8, keys=8)
    out = static_attention(v, torch.full((2, 8, 8), -1.5).double(), causal=causal)
    torch.testing.assert_close(out, mean_attention(q, k, v, causal=causal))


@both
def test_is_full_attention_to_scores_that_hang_on_positions_alone(causal: bool) -> None:
    """With the same queries and keys for every series, the scores depend on positions alone."""
    q, k, v = inputs(1, queries=6, keys=6)
    scores = 3**-0.5 * torch.einsum("bhle,bhse->hls", q, k)
    A = scores.exp().expm1().log()  # softplus(A) = e^scores
    out = static_attention(v, A, causal=causal)
    torch.testing.assert_close(out, full_attention(q, k, v, causal=causal))


def test_starts_as_mean_attention() -> None:
    torch.manual_seed(0)
    place = Place(6, 2, 7, 7)
    static, mean = StaticAttention(place), MeanAttention(place)
    mean.load_state_dict({k: x for k, x in static.state_dict().items() if k != "scores"})
    x = torch.randn(2, 7, 6)
    torch.testing.assert_close(static(x, causal=True), mean(x, causal=True))


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
    matrix = LONGEST * LONGEST * 4 / 2**20
    assert peak_mib(lambda: run(LONGEST)) < 8 * matrix
