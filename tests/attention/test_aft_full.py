import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    AFTFullAttention,
    Place,
    aft_attention,
    aft_full,
    aft_simple_attention,
)

from .agreement import assert_agree, inputs

both = pytest.mark.parametrize("causal", [False, True])


def module(length: int = 11) -> AFTFullAttention:
    torch.manual_seed(0)
    return AFTFullAttention(Place(6, 2, length, length))


def biases(length: int, size: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return (size * (2 * torch.rand(length, length, generator=generator) - 1)).double()


@both
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_keys_of_any_size(causal: bool, dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = inputs(queries=37, keys=37, dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    uniform = 100 * torch.rand(k.shape, generator=generator, dtype=torch.float64) - 50
    ramp = torch.linspace(-50, 50, 37)[:, None].to(dtype) + k.detach()
    for keys in (uniform.to(dtype), ramp, -ramp, 20 * ramp, -20 * ramp):
        assert_agree(
            lambda *x: aft_attention(*x, causal=causal),
            lambda *x: aft_full.definition(*x, causal=causal),
            [q, keys, v, biases(37, 10.0).to(dtype)],
            tolerance,
        )


@both
def test_a_bias_that_is_not_learned_gets_no_gradient(causal: bool) -> None:
    tensors, bias = inputs(), biases(7)
    learned, fixed = (
        torch.autograd.grad(aft_attention(*tensors, w, causal=causal).sum(), tensors)
        for w in (bias.clone().requires_grad_(), bias)
    )
    for got, want in zip(fixed, learned, strict=True):
        assert torch.equal(got, want)


def test_biases_of_the_future_have_no_effect() -> None:
    tensors, bias = inputs(), biases(7)
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    plain = aft_attention(*tensors, bias, causal=True)
    for value in (1000.0, torch.inf):
        changed = aft_attention(*tensors, bias.masked_fill(future, value), causal=True)
        torch.testing.assert_close(changed, plain)


@both
def test_no_biases_make_aft_simple(causal: bool) -> None:
    tensors = inputs(queries=40, keys=40)
    out = aft_attention(*tensors, torch.zeros(40, 40).double(), causal=causal)
    torch.testing.assert_close(out, aft_simple_attention(*tensors, causal=causal))


@pytest.mark.parametrize(
    "shapes", [[(7, 5)], [(3, 7, 7)], [(7,)], [(7, 4), (5, 4)], [(7, 4), (7, 3)], [(2, 7, 7)] * 2]
)
def test_says_which_biases_do_not_fit(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"position_bias must be \(L, S\) = \(7, 7\), .* got \("):
        aft_full.check_bias(tuple(torch.zeros(shape) for shape in shapes), 2, 7, 7)


def test_the_module_has_biases_for_its_place() -> None:
    attention = AFTFullAttention(Place(6, 2, 11, 8))
    assert attention.query_positions.shape == (11, 128)
    assert attention.key_positions.shape == (8, 128)
    assert attention(torch.randn(1, 11, 6), torch.randn(1, 8, 6)).shape == (1, 11, 6)
    for queries, keys in ((12, 8), (11, 9)):
        message = f"at most 11 queries and 8 keys, got {queries} queries and {keys} keys"
        with pytest.raises(ValueError, match=message):
            attention(torch.randn(1, queries, 6), torch.randn(1, keys, 6))
    with pytest.raises(ValueError, match=r"attention 'aft-full' .* set model\.mix=false"):
        AFTFullAttention(Place(6, 2, 7, 7, mix=True))


def test_a_shorter_series_uses_the_first_biases() -> None:
    long, short = module(11), module(7)
    state = long.state_dict()
    for name in ("query_positions", "key_positions"):
        state[name] = state[name][:7]
    short.load_state_dict(state)
    x = torch.randn(2, 7, 6)
    assert torch.equal(long(x, causal=True), short(x, causal=True))


def test_the_module_is_its_definition_between_projections() -> None:
    attention, x = module(7), torch.randn(2, 7, 6)
    with torch.no_grad():
        attention.query_positions.mul_(10)
        attention.key_positions.mul_(10)
    projections = (
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
    )
    q, k, v = (projection(x)[:, None] for projection in projections)  # one head of all features
    y = aft_full.definition(q, k, v, (attention.query_positions, attention.key_positions))
    torch.testing.assert_close(attention(x), attention.out_projection(y[:, 0]))
