import sys
from typing import Any

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

from .agreement import assert_agree, inputs
from .memory import peak_mib
from .naive.static import static as slow_static

# 13 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])

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
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    causal: bool, masked: bool, dtype: torch.dtype, tolerance: float
) -> None:
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK if masked else None}
    assert_agree(
        lambda v, A: static_attention(v, A, **options),
        lambda v, A: slow_static(v, A, **options),
        drawn(13, 13, dtype),
        tolerance,
    )


@pytest.mark.parametrize(("queries", "keys"), [(7, 13), (13, 7), (1, 5), (5, 1), (1, 1)])
def test_lengths_may_differ(queries: int, keys: int) -> None:
    for mask in (None, torch.arange(keys) < torch.tensor([keys - 1, keys, 1])[:, None]):
        assert_agree(
            lambda v, A, mask=mask: static_attention(v, A, key_mask=mask),
            lambda v, A, mask=mask: slow_static(v, A, key_mask=mask),
            drawn(queries, keys),
            1e-9,
        )


@both
def test_gradients_by_finite_differences(causal: bool) -> None:
    mask = torch.tensor([[False, True, True, True]] * 3)
    assert torch.autograd.gradcheck(
        lambda v, A: static_attention(v, A, causal=causal, key_mask=mask), drawn(4, 4)
    )


@both
def test_weights_of_any_size(causal: bool) -> None:
    v, A = drawn(9, 9, torch.float32, size=40.0)
    assert_agree(
        lambda v, A: static_attention(v, A, causal=causal),
        lambda v, A: slow_static(v, A, causal=causal),
        (v, A),
        1e-4,
    )


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


@both
def test_hidden_keys_may_hold_anything(causal: bool) -> None:
    v, A = drawn(7, 7)
    v = v.detach()
    options: dict[str, Any] = {"causal": causal, "key_mask": (torch.arange(7) != 3).expand(3, 7)}
    before = static_attention(v, A, **options)
    v[:, :, 3] = torch.nan
    assert torch.equal(static_attention(v, A, **options), before)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(causal: bool, dtype: torch.dtype) -> None:
    v, A = (x.detach() for x in drawn(20, 20, dtype))
    out = static_attention(30 * v, A, causal=causal)
    assert out.dtype is dtype
    exact = static_attention((30 * v).float(), A.float(), causal=causal)
    assert torch.equal(out, exact.to(dtype))


def test_autocast_changes_nothing() -> None:
    v, A = drawn(7, 7, torch.float32)
    plain = static_attention(v, A, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(static_attention(v, A, causal=True), plain)


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


def test_learns_all_it_owns() -> None:
    attention = module()
    attention(torch.randn(2, 11, 6), causal=True).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in attention.parameters())


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


def test_says_what_it_amounts_to() -> None:
    said = module().amounts_to()
    assert said.text == "static: 11 x 11 learned weights a head, the same for every series"
    assert not said.full


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
