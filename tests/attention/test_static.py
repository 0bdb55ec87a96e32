import sys

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    AttentionChoice,
    MeanAttention,
    Place,
    StaticAttention,
    full_attention,
    mean_attention,
    static_attention,
)
from forecaster.attention.static import LONGEST, check_scores

from .agreement import inputs
from .memory import peak_mib

both = pytest.mark.parametrize("causal", [False, True])


def drawn(
    queries: int, keys: int, dtype: torch.dtype = torch.float64, size: float = 2.0
) -> tuple[Tensor, Tensor]:
    """v of three series, and A, of two heads."""
    generator = torch.Generator().manual_seed(4)
    A = size * torch.randn(2, queries, keys, generator=generator, dtype=torch.float64)
    v = inputs(3, queries=queries, keys=keys, dtype=dtype)[2]
    return v, A.to(dtype).requires_grad_()


def module(length: int = 11) -> StaticAttention:
    torch.manual_seed(0)
    attention = StaticAttention(Place(6, 2, length, length))
    torch.nn.init.normal_(attention.scores)
    return attention


@both
def test_a_row_without_weight_is_zero(causal: bool) -> None:
    v, A = drawn(5, 5, torch.float32)
    lost = torch.full_like(A, -200.0, requires_grad=True)
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


def test_scores_of_the_future_have_no_effect() -> None:
    v, A = drawn(7, 7)
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    plain = static_attention(v, A, causal=True)
    changed = static_attention(v, A.masked_fill(future, 1000.0), causal=True)
    assert torch.equal(changed, plain)


@pytest.mark.parametrize("shape", [(7, 7), (3, 7, 7), (2, 7, 5)])
def test_says_which_shapes_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"A \(heads, queries, keys\), got v \(3, 2, 7, 3\), A \("):
        check_scores(drawn(7, 7)[0], torch.zeros(shape))


def test_starts_as_mean_attention() -> None:
    torch.manual_seed(0)
    place = Place(6, 2, 7, 7)
    static, mean = StaticAttention(place), MeanAttention(place)
    mean.load_state_dict({k: x for k, x in static.state_dict().items() if k != "scores"})
    x = torch.randn(2, 7, 6)
    torch.testing.assert_close(static(x, causal=True), mean(x, causal=True))


def test_the_module_has_weights_for_its_place() -> None:
    attention = StaticAttention(Place(6, 2, 11, 8))
    assert attention.scores.shape == (2, 11, 8)
    assert attention(torch.randn(1, 11, 6), torch.randn(1, 8, 6)).shape == (1, 11, 6)
    for queries, keys in ((12, 8), (11, 9)):
        message = f"at most 11 queries and 8 keys, got {queries} queries and {keys} keys"
        with pytest.raises(ValueError, match=message):
            attention(torch.randn(1, queries, 6), torch.randn(1, keys, 6))


@pytest.mark.parametrize("lengths", [(LONGEST + 1, 4), (4, LONGEST + 1)])
def test_a_longer_place_is_refused(lengths: tuple[int, int]) -> None:
    StaticAttention(Place(4, 1, LONGEST, 4))
    with pytest.raises(ValueError, match="at most 2048 positions, got 2049: cut windows into"):
        AttentionChoice("static").build(Place(4, 1, *lengths))
    q, k, _ = inputs(1, 1, *lengths, width=1)
    assert StaticAttention.core is not None
    with pytest.raises(ValueError, match="at most 2048"):
        StaticAttention.core.build(q, k, k, torch.randn)


def test_a_shorter_series_uses_the_first_rows_and_columns() -> None:
    long, short = module(11), module(7)
    state = long.state_dict()
    short.load_state_dict({**state, "scores": state["scores"][:, :7, :7]})
    x = torch.randn(2, 7, 6)
    for options in ({}, {"causal": True}, {"key_mask": torch.arange(7).expand(2, 7) > 2}):
        torch.testing.assert_close(long(x, **options), short(x, **options))


def test_learns_which_positions_matter() -> None:
    """The step three back, which `mean` cannot distinguish from the others."""
    attention = StaticAttention(Place(4, 2, 12, 12))
    optimiser = torch.optim.Adam(attention.parameters(), lr=0.03)
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        x = torch.randn(32, 12, 4, generator=generator)
        loss = (attention(x) - x.roll(3, 1)).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert loss.item() < 0.1


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
