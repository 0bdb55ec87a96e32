from typing import Literal

import pytest
import torch

from forecaster.attention.common.kernels import (
    at_least_one,
    check_inputs,
    check_one_of,
    prefix_sum,
    softmax_attention,
    visible_keys,
)
from tests.attention.agreement import inputs


@pytest.mark.parametrize("length", [1, 31, 32, 33, 65, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_prefix_sum(length: int, reverse: bool) -> None:
    _, _, x = inputs(keys=length)
    want = x.flip(2).cumsum(2).flip(2) if reverse else x.cumsum(2)
    torch.testing.assert_close(prefix_sum(x, reverse), want)
    torch.testing.assert_close(prefix_sum(x.contiguous(), reverse), want)


def test_prefix_sum_takes_gradients_back() -> None:
    _, _, x = inputs(keys=40)
    weights = torch.randn_like(x)
    (gradient,) = torch.autograd.grad((prefix_sum(x) * weights).sum(), x)
    torch.testing.assert_close(gradient, weights.flip(2).cumsum(2).flip(2))


def test_prefix_sum_adds_in_single_precision_under_autocast_and_for_half() -> None:
    x = torch.full((1, 1, 3000, 1), 1.001)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert prefix_sum(x)[0, 0, -1, 0].item() == pytest.approx(3003, rel=1e-5)
    ones = torch.ones(1, 1, 3000, 1, dtype=torch.bfloat16)
    assert prefix_sum(ones)[0, 0, -1, 0].item() == 3000


def test_softmax_attention_pads_unequal_widths_exactly() -> None:
    q, k, v = inputs(width=2, value_width=5)
    want = (q @ k.transpose(2, 3) * 2**-0.5).softmax(3) @ v
    torch.testing.assert_close(softmax_attention(q, k, v), want)


def test_visible_keys_of_a_padded_causal_batch() -> None:
    mask = torch.tensor([[True, False, True]])
    visible = visible_keys(True, mask)
    assert visible is not None
    assert visible.int().tolist() == [[[[1, 0, 0], [1, 0, 0], [1, 0, 1]]]]


@pytest.mark.parametrize(
    ("k", "v", "message"),
    [
        ((2, 3, 7, 4), (2, 3, 6, 4), "k and v must have the same length, got q"),
        ((2, 3, 7, 5), (2, 3, 7, 5), "q and k must have the same width, got q"),
        ((1, 3, 7, 4), (1, 3, 7, 4), "agree in batch and heads, got q"),
        ((3, 7, 4), (3, 7, 4), r"must be \(batch, heads, length, width\), got q"),
    ],
)
def test_refuses_shapes_that_do_not_fit(
    k: tuple[int, ...], v: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_inputs(torch.zeros(2, 3, 5, 4), torch.zeros(k), torch.zeros(v))


def test_names_the_argument_that_is_too_small() -> None:
    with pytest.raises(ValueError, match="chunk must be at least 1, got chunk=0"):
        at_least_one(factor=1, chunk=0)


def test_a_value_must_be_one_of_its_choices() -> None:
    check_one_of(Literal["a", "b"], first="a", second="b")
    with pytest.raises(ValueError, match="second must be one of 'a', 'b', got 'c'"):
        check_one_of(Literal["a", "b"], first="a", second="c")
